// SPDX-License-Identifier: Apache-2.0
#include "transport/host/host_port.h"

namespace vcoll {

void HostPort::reduce(const kernels::ReduceStep& step) {
  const kernels::PlanView& view = call_.plan->view();
  const uint64_t offset = step.chunk.offset;
  const uint32_t owner = view.slices[step.chunk.slice].owner;

  std::vector<const void*>& sources = fabric_.reduceSources_;
  for (uint32_t local = 0; local < view.localCount; ++local) {
    const bool own = call_.ownSources != nullptr && local == fabric_.local_;
    sources[local] = pointer(own ? call_.ownSources[owner] : call_.sources[local], offset);
  }
  std::vector<const void*>& partials = fabric_.reducePartials_;
  for (uint32_t i = 0; i < step.partialCount; ++i) {
    const uint32_t id = step.partials[i].nearId;
    partials[i] = inSlot(id, (step.partialBase[id] + step.index) % view.slots);
  }

  ReduceJob job;
  job.type = call_.plan->spec().type;
  job.op = call_.op;
  job.sources = sources.data();
  job.nsources = view.localCount;
  job.partials = partials.data();
  job.npartials = step.partialCount;
  job.partialsFp32 = wide_;
  job.elements = step.chunk.bytes / elementBytes_;
  if (step.queue->hasUp) {
    job.out = outSlot(step.outId, step.outSlot);
    job.outFp32 = wide_;
  } else {
    const uintptr_t to = call_.ownByOwner != nullptr ? call_.ownByOwner[owner] : call_.destinations[step.ownerLocal];
    job.out = pointer(to, offset);
    if (call_.op == vcollAvg) job.avgDivisor = fabric_.topology().ranks();
  }
  reduceChunk(job);
}

}  // namespace vcoll
