// SPDX-License-Identifier: Apache-2.0
#include "transport/host/host_port.h"

#include <sys/uio.h>

#include <cerrno>
#include <cstring>

namespace vcoll {

void HostPort::readPeer(uint32_t local, uint64_t offset, uint64_t bytes, void* to) {
  const uint64_t base = fabric_.controls_[local].header().sendAddress.load(std::memory_order_relaxed);
  auto* place = static_cast<unsigned char*>(to);
  while (bytes > 0) {
    const iovec here = {place, bytes};
    const iovec there = {pointer(base, offset), bytes};
    const ssize_t got = process_vm_readv(fabric_.pids_[local], &here, 1, &there, 1, 0);
    if (got <= 0) {
      const uint32_t peer = call_.plan->view().localRanks[local];
      if (got < 0 && errno == ESRCH) {
        fabric_.group_.raise(makeError(vcollRemoteError, "rank {} was lost: its process is gone", peer));
      } else {
        fabric_.group_.raise(makeError(vcollSystemError, "rank {} cannot read the send buffer of rank {}: {}",
                                       fabric_.group_.rank(), peer, got == 0 ? "nothing there" : std::strerror(errno)));
      }
      return;  // run() looks for it before it reports success
    }
    place += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
}

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
