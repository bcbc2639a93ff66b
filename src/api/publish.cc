// SPDX-License-Identifier: Apache-2.0
// Entry points of PublishStream.
#include <vector>

#include "api/entry.h"

using namespace vcoll;

namespace {

PublishStream* publishOf(vcollPublishStream_t handle) { return reinterpret_cast<PublishStream*>(handle); }

Status checkPublishStream(vcollPublishStream_t stream) {
  if (Handles::get().has(stream, HandleKind::kPublishStream)) return {};
  return makeError(vcollInvalidArgument, "stream = {} is not a live PublishStream", static_cast<const void*>(stream));
}

Status checkHostStream(vcollStream_t stream) {
  if (stream == nullptr || Handles::get().has(stream, HandleKind::kStream)) return {};
  return makeError(vcollInvalidArgument, "hostStream = {} is not a live host stream", static_cast<const void*>(stream));
}

// A call on a live stream.
template <typename Work>
vcollResult_t enterPublish(const char* call, vcollPublishStream_t stream, const Work& work) {
  return enterApi(call, [&]() -> Status {
    VCOLL_TRY(checkPublishStream(stream));
    const Status status = work(*publishOf(stream));
    return status.ok() ? status : publishOf(stream)->comm().withName(status);
  });
}

Status readConfig(const vcollPublishConfig_t* theirs, PublishSpec* spec, bool* verify) {
  vcollPublishConfig_t mine = VCOLL_PUBLISH_CONFIG_INITIALIZER;
  VCOLL_TRY(copyVersioned(theirs, &mine, sizeof mine, "config"));
  VCOLL_TRY(readPath(mine.path, &spec->path));
  VCOLL_TRY(readChunkBytes(mine.chunkBytes, &spec->chunkBytes));
  spec->longChunks = mine.chunkBytes == 0;
  if (mine.copies != 1 && mine.copies != 2) {
    return makeError(vcollInvalidArgument, "config->copies = {} is neither 1 nor 2", mine.copies);
  }
  spec->copies = static_cast<uint32_t>(mine.copies);
  if (mine.copies == 2 ? mine.copyStride == 0 || mine.copyStride > spec->windowBytes : mine.copyStride != 0) {
    return makeError(vcollInvalidArgument, "config->copyStride = {} does not fit {} and a window of {} bytes",
                     mine.copyStride, mine.copies == 2 ? "two copies" : "one copy", spec->windowBytes);
  }
  spec->copyStride = mine.copyStride;
  if (mine.verify != VCOLL_UNDEF_INT && mine.verify != 0 && mine.verify != 1) {
    return makeError(vcollInvalidArgument, "config->verify = {} is neither 0 nor 1", mine.verify);
  }
  if (mine.reserved != 0) {
    return makeError(vcollInvalidArgument, "config->reserved = {} must be 0", mine.reserved);
  }
  *verify = mine.verify == VCOLL_UNDEF_INT ? params().publishVerify != 0 : mine.verify != 0;
  return {};
}

}  // namespace

extern "C" {

vcollResult_t vcollPublishStreamCreate(vcollComm_t comm, vcollWindow_t window, const vcollPublishItem_t* items,
                                       size_t nitems, const vcollPublishConfig_t* config,
                                       vcollPublishStream_t* stream) {
  return enterApi("vcollPublishStreamCreate", [&]() -> Status {
    VCOLL_TRY(checkComm(comm));
    VCOLL_TRY(checkPointer(stream, "stream"));
    *stream = nullptr;
    VCOLL_TRY(checkWindow(window, "window"));
    if (windowOf(window)->comm != commOf(comm)) {
      return makeError(vcollInvalidArgument, "window = {} belongs to another communicator", static_cast<void*>(window));
    }
    if (nitems > 0) VCOLL_TRY(checkPointer(items, "items"));
    if (nitems > INT32_MAX) return makeError(vcollInvalidArgument, "nitems = {} is more than 2^31 - 1", nitems);
    PublishSpec spec;
    spec.windowBytes = windowOf(window)->bytes;
    bool verify = false;
    VCOLL_TRY(readConfig(config, &spec, &verify));
    for (size_t i = 0; i < nitems; ++i) {
      VCOLL_TRY(checkPublishItem(items[i], i, static_cast<uint32_t>(commOf(comm)->size()), spec));
    }
    PublishStream* made = nullptr;
    VCOLL_TRY(commOf(comm)->createPublishStream(*windowOf(window), {items, items + nitems}, spec, verify, &made));
    *stream = reinterpret_cast<vcollPublishStream_t>(made);
    Handles::get().add(*stream, HandleKind::kPublishStream);
    return {};
  });
}

vcollResult_t vcollPublishStreamBegin(vcollPublishStream_t stream, uint64_t step) {
  return enterPublish("vcollPublishStreamBegin", stream, [&](PublishStream& made) { return made.begin(step); });
}

vcollResult_t vcollPublishStreamPush(vcollPublishStream_t stream, uint64_t item, vcollStream_t hostStream) {
  return enterPublish("vcollPublishStreamPush", stream, [&](PublishStream& made) -> Status {
    VCOLL_TRY(checkHostStream(hostStream));
    return made.push(item, streamOf(hostStream));
  });
}

vcollResult_t vcollPublishStreamEnd(vcollPublishStream_t stream, uint64_t step) {
  return enterPublish("vcollPublishStreamEnd", stream, [&](PublishStream& made) { return made.end(step); });
}

vcollResult_t vcollPublishStreamWait(vcollPublishStream_t stream, uint64_t item, uint64_t step,
                                     vcollStream_t hostStream) {
  return enterPublish("vcollPublishStreamWait", stream, [&](PublishStream& made) -> Status {
    VCOLL_TRY(checkHostStream(hostStream));
    return made.wait(item, step, streamOf(hostStream));
  });
}

vcollResult_t vcollPublishStreamWaitAll(vcollPublishStream_t stream, uint64_t step, vcollStream_t hostStream) {
  return enterPublish("vcollPublishStreamWaitAll", stream, [&](PublishStream& made) -> Status {
    VCOLL_TRY(checkHostStream(hostStream));
    return made.waitAll(step, streamOf(hostStream));
  });
}

vcollResult_t vcollPublishStreamTest(vcollPublishStream_t stream, uint64_t item, uint64_t step, int* ready) {
  return enterPublish("vcollPublishStreamTest", stream, [&](PublishStream& made) -> Status {
    VCOLL_TRY(checkPointer(ready, "ready"));
    bool isReady = false;
    const Status status = made.test(item, step, &isReady);
    *ready = isReady ? 1 : 0;
    return status;
  });
}

vcollResult_t vcollPublishStreamAcquire(vcollPublishStream_t stream, uint64_t item, uint64_t step, const void** ptr) {
  return enterPublish("vcollPublishStreamAcquire", stream,
                      [&](PublishStream& made) { return made.acquire(item, step, ptr); });
}

vcollResult_t vcollPublishStreamRelease(vcollPublishStream_t stream, uint64_t item, uint64_t step) {
  return enterPublish("vcollPublishStreamRelease", stream,
                      [&](PublishStream& made) { return made.release(item, step); });
}

vcollResult_t vcollPublishStreamAddress(vcollPublishStream_t stream, uint64_t item, uint64_t step, void** ptr) {
  return enterPublish("vcollPublishStreamAddress", stream, [&](PublishStream& made) -> Status {
    VCOLL_TRY(checkPointer(ptr, "ptr"));
    return made.address(item, step, ptr);
  });
}

vcollResult_t vcollPublishStreamGetVersion(vcollPublishStream_t stream, uint64_t item, uint64_t* step,
                                           const void** ptr) {
  return enterPublish("vcollPublishStreamGetVersion", stream, [&](PublishStream& made) -> Status {
    VCOLL_TRY(checkPointer(step, "step"));
    return made.getVersion(item, step, ptr);
  });
}

vcollResult_t vcollPublishStreamGetLeader(vcollPublishStream_t stream, uint64_t item, int node, int* rank) {
  return enterPublish("vcollPublishStreamGetLeader", stream, [&](PublishStream& made) -> Status {
    VCOLL_TRY(checkPointer(rank, "rank"));
    return made.getLeader(item, node, rank);
  });
}

vcollResult_t vcollPublishStreamDestroy(vcollPublishStream_t stream) {
  return enterApi("vcollPublishStreamDestroy", [&]() -> Status {
    if (stream == nullptr) return {};
    if (!Handles::get().remove(stream, HandleKind::kPublishStream)) return checkPublishStream(stream);
    return publishOf(stream)->comm().destroyPublishStream(publishOf(stream));
  });
}

}  // extern "C"
