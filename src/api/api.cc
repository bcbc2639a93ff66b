// SPDX-License-Identifier: Apache-2.0
// Entry points for the library, communicators, memory and streams. Collectives: collectives.cc.
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "api/entry.h"
#include "memory/allocation.h"

using namespace vcoll;

namespace {

Status readConfig(const vcollConfig_t* theirs, Comm::Config* config) {
  vcollConfig_t mine = VCOLL_CONFIG_INITIALIZER;
  VCOLL_TRY(copyVersioned(theirs, &mine, sizeof mine, "config"));
  const auto pick = [](int32_t value, int64_t fallback) { return value == VCOLL_UNDEF_INT ? fallback : value; };
  config->timeoutMs = pick(mine.timeoutMs, params().timeoutMs);
  if (config->timeoutMs < 1 || config->timeoutMs > 86400000) {
    return makeError(vcollInvalidArgument, "config->timeoutMs = {} is not in 1..86400000", config->timeoutMs);
  }
  const int64_t check = pick(mine.check, params().check);
  if (check != 0 && check != 1) return makeError(vcollInvalidArgument, "config->check = {} is not 0 or 1", check);
  config->check = check == 1;
  if (mine.name != nullptr) config->name = mine.name;
  config->hostId = mine.hostId != nullptr ? mine.hostId : params().hostId;
  if (params().fabric == "cuda") {
    return makeError(vcollUnsupported, "VCOLL_FABRIC=cuda: this build has the host fabric only");
  }
  return {};
}

// A launcher that started several ranks, and a world of one: the launch went wrong, or every rank would work alone.
Status checkLoneWorld(int nranks) {
  LaunchInfo info;
  if (nranks != 1) return {};
  (void)readLaunchInfo(&info);  // an address that is missing does not matter here
  if (info.nranks <= 1) return {};
  return makeError(vcollInvalidUsage,
                   "nranks = 1 but the environment ({}) says that {} ranks were started: use vcollCommSplit for "
                   "communicators of one rank, or unset the launcher's variables",
                   info.launcher, info.nranks);
}

// One launcher's variables say one rank, another's say more: ranks that take the first would each work alone.
Status checkOneLauncher() {
  const char* one = nullptr;
  const char* several = nullptr;
  for (const char* name : {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* value = std::getenv(name);
    if (value == nullptr) continue;
    (std::strcmp(value, "1") == 0 ? one : several) = name;
  }
  if (one == nullptr || several == nullptr) return {};
  return makeError(vcollInvalidUsage, "{} = 1 but {} = {}: unset the variable of the launcher that is not in use", one,
                   several, std::getenv(several));
}

// At exit: ranks that were not destroyed leave in good order, or peers that are still in their last call would take
// them for lost. A child made by fork() has no part in this.
void leaveAtExit() {
  if (inForkedChild()) return;
  Handles::get().forEach(HandleKind::kComm,
                         [](const void* handle) { static_cast<Comm*>(const_cast<void*>(handle))->goodbye(); });
}

Status publish(Comm* made, vcollComm_t* comm) {
  static std::once_flag once;
  std::call_once(once, [] { std::atexit(leaveAtExit); });
  *comm = reinterpret_cast<vcollComm_t>(made);
  Handles::get().add(*comm, HandleKind::kComm);
  return {};
}

Status initRank(vcollComm_t* comm, int nranks, const vcollUniqueId& id, int rank, const vcollConfig_t* config) {
  VCOLL_TRY(checkPointer(comm, "comm"));
  *comm = nullptr;
  if (nranks < 1) return makeError(vcollInvalidArgument, "nranks = {} is less than 1", nranks);
  if (rank < 0 || rank >= nranks) return makeError(vcollInvalidArgument, "rank = {} is not in 0..{}", rank, nranks - 1);
  Comm::Config settings;
  VCOLL_TRY(readConfig(config, &settings));
  VCOLL_TRY(checkLoneWorld(nranks));
  Comm* made = nullptr;
  VCOLL_TRY(Comm::init(nranks, id, rank, settings, &made));
  return publish(made, comm);
}

}  // namespace

extern "C" {

vcollResult_t vcollGetVersion(int* version) {
  return enterApi("vcollGetVersion", [&]() -> Status {
    VCOLL_TRY(checkPointer(version, "version"));
    *version = VCOLL_VERSION_CODE;
    return {};
  });
}

const char* vcollGetErrorString(vcollResult_t result) { return resultName(result); }

const char* vcollGetLastError(vcollComm_t comm) {
  if (comm != nullptr && Handles::get().has(comm, HandleKind::kComm)) {
    const Status status = commOf(comm)->asyncError();
    // The thread's own text says more where it has one for this error.
    if (!status.ok() && threadError().find(status.text()) == std::string::npos) threadError() = status.text();
  }
  return threadError().c_str();
}

vcollResult_t vcollGetUniqueId(vcollUniqueId* id) {
  return enterApi("vcollGetUniqueId", [&]() -> Status {
    VCOLL_TRY(checkPointer(id, "id"));
    return makeUniqueId(id);
  });
}

vcollResult_t vcollCommInitRank(vcollComm_t* comm, int nranks, vcollUniqueId id, int rank) {
  return enterApi("vcollCommInitRank", [&] { return initRank(comm, nranks, id, rank, nullptr); });
}

vcollResult_t vcollCommInitRankConfig(vcollComm_t* comm, int nranks, vcollUniqueId id, int rank,
                                      const vcollConfig_t* config) {
  return enterApi("vcollCommInitRankConfig", [&] { return initRank(comm, nranks, id, rank, config); });
}

vcollResult_t vcollCommInitFromEnv(vcollComm_t* comm) {
  return enterApi("vcollCommInitFromEnv", [&]() -> Status {
    VCOLL_TRY(checkPointer(comm, "comm"));
    *comm = nullptr;
    Comm::Config settings;
    VCOLL_TRY(readConfig(nullptr, &settings));
    VCOLL_TRY(checkOneLauncher());
    Comm* made = nullptr;
    VCOLL_TRY(Comm::initFromEnv(settings, &made));
    return publish(made, comm);
  });
}

vcollResult_t vcollCommSplit(vcollComm_t comm, int color, int key, vcollComm_t* newcomm, const vcollConfig_t* config) {
  return enterApi("vcollCommSplit", [&]() -> Status {
    VCOLL_TRY(checkComm(comm));
    VCOLL_TRY(checkPointer(newcomm, "newcomm"));
    *newcomm = nullptr;
    Comm::Config settings = commOf(comm)->config();
    if (config != nullptr) VCOLL_TRY(readConfig(config, &settings));
    Comm* made = nullptr;
    VCOLL_TRY(commOf(comm)->split(color, key, settings, &made));
    return made == nullptr ? Status() : publish(made, newcomm);
  });
}

vcollResult_t vcollCommFinalize(vcollComm_t comm) {
  return enterApi("vcollCommFinalize", [&]() -> Status {
    VCOLL_TRY(checkComm(comm));
    return commOf(comm)->finalize();
  });
}

vcollResult_t vcollCommDestroy(vcollComm_t comm) {
  return enterApi("vcollCommDestroy", [&]() -> Status {
    if (comm == nullptr) return {};
    if (!Handles::get().remove(comm, HandleKind::kComm)) return checkComm(comm);
    for (const auto& plan : commOf(comm)->plans()) Handles::get().remove(plan.get(), HandleKind::kPlan);
    for (const auto& stream : commOf(comm)->publishStreams()) {
      Handles::get().remove(stream.get(), HandleKind::kPublishStream);
    }
    for (const auto& window : commOf(comm)->windows()) Handles::get().remove(window.get(), HandleKind::kWindow);
    delete commOf(comm);
    return {};
  });
}

vcollResult_t vcollCommAbort(vcollComm_t comm) {
  return enterApi("vcollCommAbort", [&]() -> Status {
    VCOLL_TRY(checkComm(comm));
    commOf(comm)->abort();
    return {};
  });
}

vcollResult_t vcollCommGetAsyncError(vcollComm_t comm, vcollResult_t* asyncError) {
  return enterApi("vcollCommGetAsyncError", [&]() -> Status {
    VCOLL_TRY(checkComm(comm));
    VCOLL_TRY(checkPointer(asyncError, "asyncError"));
    *asyncError = commOf(comm)->asyncError().code();
    return {};
  });
}

vcollResult_t vcollCommCount(vcollComm_t comm, int* count) {
  return enterApi("vcollCommCount", [&]() -> Status {
    VCOLL_TRY(checkComm(comm));
    VCOLL_TRY(checkPointer(count, "count"));
    *count = commOf(comm)->size();
    return {};
  });
}

vcollResult_t vcollCommUserRank(vcollComm_t comm, int* rank) {
  return enterApi("vcollCommUserRank", [&]() -> Status {
    VCOLL_TRY(checkComm(comm));
    VCOLL_TRY(checkPointer(rank, "rank"));
    *rank = commOf(comm)->rank();
    return {};
  });
}

vcollResult_t vcollCommNodeCount(vcollComm_t comm, int* nodes) {
  return enterApi("vcollCommNodeCount", [&]() -> Status {
    VCOLL_TRY(checkComm(comm));
    VCOLL_TRY(checkPointer(nodes, "nodes"));
    *nodes = static_cast<int>(commOf(comm)->topology().nodes());
    return {};
  });
}

vcollResult_t vcollCommRankNode(vcollComm_t comm, int rank, int* node, int* localRank) {
  return enterApi("vcollCommRankNode", [&]() -> Status {
    VCOLL_TRY(checkComm(comm));
    VCOLL_TRY(checkPointer(node, "node"));
    VCOLL_TRY(checkPointer(localRank, "localRank"));
    const int size = commOf(comm)->size();
    if (rank < 0 || rank >= size) return makeError(vcollInvalidArgument, "rank = {} is not in 0..{}", rank, size - 1);
    *node = static_cast<int>(commOf(comm)->topology().nodeOf(static_cast<uint32_t>(rank)));
    *localRank = static_cast<int>(commOf(comm)->topology().localOf(static_cast<uint32_t>(rank)));
    return {};
  });
}

vcollResult_t vcollCommRailCount(vcollComm_t comm, int* rails) {
  return enterApi("vcollCommRailCount", [&]() -> Status {
    VCOLL_TRY(checkComm(comm));
    VCOLL_TRY(checkPointer(rails, "rails"));
    *rails = static_cast<int>(commOf(comm)->topology().rails());
    return {};
  });
}

vcollResult_t vcollMemAlloc(void** ptr, size_t bytes) {
  return enterApi("vcollMemAlloc", [&]() -> Status {
    VCOLL_TRY(checkPointer(ptr, "ptr"));
    *ptr = nullptr;
    return allocateMemory(bytes, ptr);
  });
}

vcollResult_t vcollMemFree(void* ptr) {
  return enterApi("vcollMemFree", [&]() -> Status { return ptr == nullptr ? Status() : freeMemory(ptr); });
}

vcollResult_t vcollWindowRegister(vcollComm_t comm, void* ptr, size_t bytes, vcollWindow_t* window) {
  return enterApi("vcollWindowRegister", [&]() -> Status {
    VCOLL_TRY(checkComm(comm));
    VCOLL_TRY(checkPointer(ptr, "ptr"));
    VCOLL_TRY(checkPointer(window, "window"));
    *window = nullptr;
    WindowHandle* made = nullptr;
    VCOLL_TRY(commOf(comm)->registerWindow(ptr, bytes, &made));
    *window = reinterpret_cast<vcollWindow_t>(made);
    Handles::get().add(*window, HandleKind::kWindow);
    return {};
  });
}

vcollResult_t vcollWindowDeregister(vcollComm_t comm, vcollWindow_t window) {
  return enterApi("vcollWindowDeregister", [&]() -> Status {
    if (window == nullptr) return {};
    VCOLL_TRY(checkComm(comm));
    VCOLL_TRY(checkWindow(window, "window"));
    if (windowOf(window)->comm != commOf(comm)) {
      return makeError(vcollInvalidArgument, "window = {} belongs to another communicator", static_cast<void*>(window));
    }
    if (commOf(comm)->isPublishing(windowOf(window))) {
      return makeError(vcollInvalidUsage, "window = {} is in use by a PublishStream: destroy that first",
                       static_cast<void*>(window));
    }
    Handles::get().remove(window, HandleKind::kWindow);
    return commOf(comm)->deregisterWindow(windowOf(window));
  });
}

vcollResult_t vcollWindowQuery(vcollWindow_t window, void** ptr, size_t* bytes) {
  return enterApi("vcollWindowQuery", [&]() -> Status {
    VCOLL_TRY(checkWindow(window, "window"));
    if (ptr != nullptr) *ptr = windowOf(window)->pointer;
    if (bytes != nullptr) *bytes = windowOf(window)->bytes;
    return {};
  });
}

vcollResult_t vcollHostStreamCreate(vcollStream_t* stream) {
  return enterApi("vcollHostStreamCreate", [&]() -> Status {
    VCOLL_TRY(checkPointer(stream, "stream"));
    *stream = nullptr;
    HostStream* made = nullptr;
    VCOLL_TRY(HostStream::create(&made));
    *stream = reinterpret_cast<vcollStream_t>(made);
    Handles::get().add(*stream, HandleKind::kStream);
    return {};
  });
}

vcollResult_t vcollHostStreamSynchronize(vcollStream_t stream) {
  return enterApi("vcollHostStreamSynchronize", [&]() -> Status {
    VCOLL_TRY(checkStream(stream, false));
    return streamOf(stream)->synchronize();
  });
}

vcollResult_t vcollHostStreamQuery(vcollStream_t stream) {
  return enterApi("vcollHostStreamQuery", [&]() -> Status {
    VCOLL_TRY(checkStream(stream, false));
    return streamOf(stream)->query();
  });
}

vcollResult_t vcollHostStreamDestroy(vcollStream_t stream) {
  return enterApi("vcollHostStreamDestroy", [&]() -> Status {
    if (stream == nullptr) return {};
    if (!Handles::get().remove(stream, HandleKind::kStream)) return checkStream(stream, false);
    delete streamOf(stream);
    return {};
  });
}

}  // extern "C"
