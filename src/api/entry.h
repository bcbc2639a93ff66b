// SPDX-License-Identifier: Apache-2.0
// What every entry point does around its work: refuse forked children and bad parameters, keep the error text, let no
// exception out.
#pragma once

#include <new>
#include <string>

#include "api/handles.h"
#include "base/log.h"
#include "base/params.h"
#include "base/status.h"
#include "bootstrap/engine.h"
#include "comm/comm.h"

namespace vcoll {

// Text of the calling thread's last failure.
std::string& threadError();

template <typename Body>
vcollResult_t enterApi(const char* call, const Body& body) {
  Status status;
  try {
    if (inForkedChild()) {
      status = makeError(vcollInvalidUsage, "vcoll cannot be used in a child made by fork() after the library started");
    } else {
      (void)params(&status);
      if (status.ok()) status = body();
    }
  } catch (const std::bad_alloc&) {
    status = makeError(vcollSystemError, "out of memory");
  } catch (const std::exception& error) {
    status = makeError(vcollInternalError, "{}", error.what());
  }
  if (!status.ok()) {
    threadError() = formatText("{}: {}", call, status.text());
    if (status.code() != vcollInProgress) logWarn("{}", threadError());
  }
  return status.code();
}

inline Comm* commOf(vcollComm_t handle) { return reinterpret_cast<Comm*>(handle); }
inline PlanHandle* planOf(vcollPlan_t handle) { return reinterpret_cast<PlanHandle*>(handle); }
inline WindowHandle* windowOf(vcollWindow_t handle) { return reinterpret_cast<WindowHandle*>(handle); }
inline HostStream* streamOf(vcollStream_t handle) { return reinterpret_cast<HostStream*>(handle); }

// Errors name the argument.
Status checkPointer(const void* pointer, const char* name);
Status checkComm(vcollComm_t comm);
Status checkPlan(vcollPlan_t plan);
Status checkWindow(vcollWindow_t window, const char* name);
Status checkStream(vcollStream_t stream, bool mayBeNull);
Status checkType(vcollDataType_t type);
Status checkReduction(vcollDataType_t type, vcollRedOp_t op);

// Values of config structs, or what the environment says in their place.
Status readPath(int32_t value, vcollPath_t* path);
Status readChunkBytes(int64_t value, uint64_t* chunkBytes);

// Copies a caller's struct that starts with {size, magic, version}: what its size covers, defaults for the rest.
Status copyVersioned(const void* theirs, void* mine, size_t mineBytes, const char* name);
// The way back, for structs that the library fills: as much as the caller's size has room for.
Status writeVersioned(const vcollPlanInfo_t* mine, vcollPlanInfo_t* theirs);

}  // namespace vcoll
