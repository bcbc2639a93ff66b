// SPDX-License-Identifier: Apache-2.0
// Entry points of plans and collectives: every argument is checked before anything is sent.
#include <algorithm>
#include <vector>

#include "api/entry.h"
#include "base/types.h"

using namespace vcoll;

namespace {

Status checkCounts(const size_t* counts, vcollComm_t comm, vcollDataType_t type, uint64_t* totalBytes) {
  VCOLL_TRY(checkPointer(counts, "recvcounts"));
  return totalBytesOf(counts, static_cast<uint32_t>(commOf(comm)->size()), type, totalBytes);
}

// No rank's place in recvbuf may overlap another's.
Status checkDisplacements(const size_t* counts, const size_t* displs, size_t ranks, size_t elementBytes) {
  std::vector<size_t> order;
  bool sorted = true;
  size_t end = 0;
  for (size_t r = 0; r < ranks; ++r) {
    if (counts[r] == 0) continue;
    if (displs[r] > static_cast<size_t>(INT64_MAX) / elementBytes - counts[r]) {
      return makeError(vcollInvalidArgument, "displs[{}] = {}: displacement + count overflows", r, displs[r]);
    }
    sorted = sorted && displs[r] >= end;
    end = displs[r] + counts[r];
    order.push_back(r);
  }
  if (sorted) return {};
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return displs[a] < displs[b]; });
  for (size_t i = 1; i < order.size(); ++i) {
    const size_t a = order[i - 1];
    const size_t b = order[i];
    if (displs[a] + counts[a] > displs[b]) {
      return makeError(vcollInvalidArgument,
                       "displs: the parts of rank {} (displacement {}, count {}) and rank {} (displacement {}) overlap",
                       a, displs[a], counts[a], b, displs[b]);
    }
  }
  return {};
}

// Plan bytes from `offset` must lie in the window.
Status checkRange(const Plan& plan, const WindowHandle& window, size_t offset, const char* name) {
  if (offset > window.bytes || plan.extent() > window.bytes - offset) {
    return makeError(vcollInvalidArgument, "{} = {}: the plan needs {} bytes from there, the window has {}", name,
                     offset, plan.extent(), window.bytes);
  }
  return {};
}

Status checkWindowOfPlan(vcollPlan_t plan, vcollWindow_t window, const char* name) {
  VCOLL_TRY(checkWindow(window, name));
  if (windowOf(window)->comm != planOf(plan)->comm) {
    return makeError(vcollInvalidArgument, "{} = {} belongs to another communicator than the plan", name,
                     static_cast<void*>(window));
  }
  return {};
}

Status readPlanConfig(const vcollPlanConfig_t* theirs, PlanSpec* spec) {
  vcollPlanConfig_t mine = VCOLL_PLAN_CONFIG_INITIALIZER;
  VCOLL_TRY(copyVersioned(theirs, &mine, sizeof mine, "config"));
  VCOLL_TRY(readPath(mine.path, &spec->path));
  const int64_t lanes = mine.lanes == VCOLL_UNDEF_INT ? params().lanes : mine.lanes;
  if (lanes < 1 || lanes > kMaxLanes) {
    return makeError(vcollInvalidArgument, "config->lanes = {} is not in 1..{}", lanes, kMaxLanes);
  }
  spec->lanes = static_cast<uint32_t>(lanes);
  return readChunkBytes(mine.chunkBytes, &spec->chunkBytes);
}

}  // namespace

extern "C" {

vcollResult_t vcollAllGatherV(const void* sendbuf, size_t sendcount, void* recvbuf, const size_t* recvcounts,
                              const size_t* displs, vcollDataType_t type, vcollComm_t comm, vcollStream_t stream) {
  return enterApi("vcollAllGatherV", [&]() -> Status {
    VCOLL_TRY(checkComm(comm));
    VCOLL_TRY(checkType(type));
    VCOLL_TRY(checkStream(stream, true));
    uint64_t total = 0;
    VCOLL_TRY(checkCounts(recvcounts, comm, type, &total));
    const int rank = commOf(comm)->rank();
    if (sendcount != recvcounts[rank]) {
      return makeError(vcollInvalidArgument, "sendcount = {} but recvcounts[{}] = {}, this rank's own", sendcount, rank,
                       recvcounts[rank]);
    }
    if (sendcount > 0) VCOLL_TRY(checkPointer(sendbuf, "sendbuf"));
    if (total > 0) VCOLL_TRY(checkPointer(recvbuf, "recvbuf"));
    if (displs != nullptr) {
      VCOLL_TRY(
          checkDisplacements(recvcounts, displs, static_cast<size_t>(commOf(comm)->size()), typeInfo(type)->size));
    }
    return commOf(comm)->allGatherV(sendbuf, recvbuf, recvcounts, displs, type, streamOf(stream));
  });
}

vcollResult_t vcollReduceScatterV(const void* sendbuf, void* recvbuf, const size_t* recvcounts, vcollDataType_t type,
                                  vcollRedOp_t op, vcollComm_t comm, vcollStream_t stream) {
  return enterApi("vcollReduceScatterV", [&]() -> Status {
    VCOLL_TRY(checkComm(comm));
    VCOLL_TRY(checkReduction(type, op));
    VCOLL_TRY(checkStream(stream, true));
    uint64_t total = 0;
    VCOLL_TRY(checkCounts(recvcounts, comm, type, &total));
    if (total > 0) VCOLL_TRY(checkPointer(sendbuf, "sendbuf"));
    if (recvcounts[commOf(comm)->rank()] > 0) VCOLL_TRY(checkPointer(recvbuf, "recvbuf"));
    return commOf(comm)->reduceScatterV(sendbuf, recvbuf, recvcounts, type, op, streamOf(stream));
  });
}

vcollResult_t vcollPlanCreate(vcollComm_t comm, const vcollSegment_t* segments, size_t nsegments, vcollDataType_t type,
                              const vcollPlanConfig_t* config, vcollPlan_t* plan) {
  return enterApi("vcollPlanCreate", [&]() -> Status {
    VCOLL_TRY(checkComm(comm));
    VCOLL_TRY(checkPointer(plan, "plan"));
    *plan = nullptr;
    VCOLL_TRY(checkType(type));
    if (nsegments > 0) VCOLL_TRY(checkPointer(segments, "segments"));
    if (nsegments > INT32_MAX)
      return makeError(vcollInvalidArgument, "nsegments = {} is more than 2^31 - 1", nsegments);
    PlanSpec spec;
    spec.segments.assign(segments, segments + nsegments);
    spec.type = type;
    VCOLL_TRY(readPlanConfig(config, &spec));
    PlanHandle* made = nullptr;
    VCOLL_TRY(commOf(comm)->createPlan(std::move(spec), &made));
    *plan = reinterpret_cast<vcollPlan_t>(made);
    Handles::get().add(*plan, HandleKind::kPlan);
    return {};
  });
}

vcollResult_t vcollPlanDestroy(vcollPlan_t plan) {
  return enterApi("vcollPlanDestroy", [&]() -> Status {
    if (plan == nullptr) return {};
    if (!Handles::get().remove(plan, HandleKind::kPlan)) return checkPlan(plan);
    return planOf(plan)->comm->destroyPlan(planOf(plan));
  });
}

vcollResult_t vcollPlanGetInfo(vcollPlan_t plan, vcollPlanInfo_t* info) {
  return enterApi("vcollPlanGetInfo", [&]() -> Status {
    VCOLL_TRY(checkPlan(plan));
    VCOLL_TRY(checkPointer(info, "info"));
    vcollPlanInfo_t mine = VCOLL_PLAN_INFO_INITIALIZER;
    VCOLL_TRY(copyVersioned(info, &mine, sizeof mine, "info"));
    const Plan& made = *planOf(plan)->plan;
    const Topology& topology = planOf(plan)->comm->topology();
    mine.path = made.path();
    mine.nodes = static_cast<int32_t>(topology.nodes());
    mine.rails = static_cast<int32_t>(topology.rails());
    mine.lanes = static_cast<int32_t>(made.spec().lanes);
    mine.even = made.even() ? 1 : 0;
    mine.segments = made.spec().segments.size();
    mine.slices = 0;
    for (uint32_t q = 0; q < made.view().queueCount; ++q) mine.slices += made.view().queues[q].sliceCount;
    mine.chunks = made.chunkCount();
    mine.bytes = made.totalBytes();
    mine.digest = made.digest();
    mine.predictedUs = made.predictedUs();
    return writeVersioned(&mine, info);
  });
}

vcollResult_t vcollPlanAllGatherV(vcollPlan_t plan, vcollWindow_t window, size_t offset, vcollStream_t stream) {
  return enterApi("vcollPlanAllGatherV", [&]() -> Status {
    VCOLL_TRY(checkPlan(plan));
    VCOLL_TRY(checkWindowOfPlan(plan, window, "window"));
    VCOLL_TRY(checkStream(stream, true));
    const PlanHandle& made = *planOf(plan);
    VCOLL_TRY(checkRange(*made.plan, *windowOf(window), offset, "offset"));
    return made.comm->planAllGatherV(made, *windowOf(window), offset, streamOf(stream));
  });
}

vcollResult_t vcollPlanReduceScatterV(vcollPlan_t plan, vcollWindow_t src, size_t srcOffset, vcollWindow_t dst,
                                      size_t dstOffset, vcollRedOp_t op, vcollStream_t stream) {
  return enterApi("vcollPlanReduceScatterV", [&]() -> Status {
    VCOLL_TRY(checkPlan(plan));
    VCOLL_TRY(checkWindowOfPlan(plan, src, "src"));
    VCOLL_TRY(checkWindowOfPlan(plan, dst, "dst"));
    VCOLL_TRY(checkStream(stream, true));
    const PlanHandle& made = *planOf(plan);
    VCOLL_TRY(checkReduction(made.plan->spec().type, op));
    VCOLL_TRY(checkRange(*made.plan, *windowOf(src), srcOffset, "srcOffset"));
    VCOLL_TRY(checkRange(*made.plan, *windowOf(dst), dstOffset, "dstOffset"));
    return made.comm->planReduceScatterV(made, *windowOf(src), srcOffset, *windowOf(dst), dstOffset, op,
                                         streamOf(stream));
  });
}

}  // extern "C"
