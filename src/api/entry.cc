// SPDX-License-Identifier: Apache-2.0
#include "api/entry.h"

#include <algorithm>
#include <cstring>

#include "base/types.h"

namespace vcoll {

std::string& threadError() {
  thread_local std::string text;
  return text;
}

Status checkPointer(const void* pointer, const char* name) {
  return pointer != nullptr ? Status() : makeError(vcollInvalidArgument, "{} is NULL", name);
}

Status checkComm(vcollComm_t comm) {
  if (Handles::get().has(comm, HandleKind::kComm)) return {};
  return makeError(vcollInvalidArgument, "comm = {} is not a live communicator", static_cast<const void*>(comm));
}

Status checkPlan(vcollPlan_t plan) {
  if (Handles::get().has(plan, HandleKind::kPlan)) return {};
  return makeError(vcollInvalidArgument, "plan = {} is not a live plan", static_cast<const void*>(plan));
}

Status checkWindow(vcollWindow_t window, const char* name) {
  if (Handles::get().has(window, HandleKind::kWindow)) return {};
  return makeError(vcollInvalidArgument, "{} = {} is not a registered window", name, static_cast<const void*>(window));
}

Status checkStream(vcollStream_t stream, bool mayBeNull) {
  if ((mayBeNull && stream == nullptr) || Handles::get().has(stream, HandleKind::kStream)) return {};
  return makeError(vcollInvalidArgument, "stream = {} is not a live host stream", static_cast<const void*>(stream));
}

Status checkType(vcollDataType_t type) {
  if (typeInfo(type) != nullptr) return {};
  return makeError(vcollInvalidArgument, "type = {} is not a vcollDataType_t", static_cast<int>(type));
}

Status checkReduction(vcollDataType_t type, vcollRedOp_t op) {
  VCOLL_TRY(checkType(type));
  if (opName(op) == nullptr)
    return makeError(vcollInvalidArgument, "op = {} is not a vcollRedOp_t", static_cast<int>(op));
  if (!typeInfo(type)->reducible) {
    return makeError(vcollUnsupported, "type = {} can be moved but not reduced", typeInfo(type)->name);
  }
  return {};
}

Status readPath(int32_t value, vcollPath_t* path) {
  if (value == VCOLL_UNDEF_INT) {
    value = params().path == "star" ? vcollPathStar : params().path == "chain" ? vcollPathChain : vcollPathAuto;
  }
  if (value < 0 || value >= vcollNumPaths) {
    return makeError(vcollInvalidArgument, "config->path = {} is not a vcollPath_t", value);
  }
  *path = static_cast<vcollPath_t>(value);
  return {};
}

Status readChunkBytes(int64_t value, uint64_t* chunkBytes) {
  if (value == 0) value = params().chunkBytes;
  if (value < 1024 || value % 16 != 0 || value > (1 << 30)) {
    return makeError(vcollInvalidArgument, "config->chunkBytes = {} is not a multiple of 16 in 1024..2^30", value);
  }
  *chunkBytes = static_cast<uint64_t>(value);
  return {};
}

Status copyVersioned(const void* theirs, void* mine, size_t mineBytes, const char* name) {
  if (theirs == nullptr) return {};
  size_t size = 0;
  std::memcpy(&size, theirs, sizeof size);
  constexpr size_t kPrefix = sizeof(size_t) + 2 * sizeof(uint32_t);
  if (size < kPrefix)
    return makeError(vcollInvalidArgument, "{}->size = {} is too small: use the initializer", name, size);
  uint32_t magic = 0;
  std::memcpy(&magic, static_cast<const unsigned char*>(theirs) + sizeof size, sizeof magic);
  if (magic != VCOLL_MAGIC) {
    return makeError(vcollInvalidArgument, "{}->magic = {:#x} is not {:#x}: use the initializer", name, magic,
                     VCOLL_MAGIC);
  }
  const size_t known = std::min(size, mineBytes);
  std::memcpy(static_cast<unsigned char*>(mine) + kPrefix, static_cast<const unsigned char*>(theirs) + kPrefix,
              known - kPrefix);
  return {};
}

Status writeVersioned(const vcollPlanInfo_t* mine, vcollPlanInfo_t* theirs) {
  constexpr size_t kPrefix = sizeof(size_t) + 2 * sizeof(uint32_t);
  const size_t known = std::min(theirs->size, sizeof *mine);
  std::memcpy(reinterpret_cast<unsigned char*>(theirs) + kPrefix,
              reinterpret_cast<const unsigned char*>(mine) + kPrefix, known - kPrefix);
  return {};
}

}  // namespace vcoll
