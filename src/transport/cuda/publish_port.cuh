// SPDX-License-Identifier: Apache-2.0
// The Port of a PublishStream's lane on the CUDA fabric (kernels/publish.h says what it does). One block per rail, for
// as long as the stream lives; the leader runs the state machine, and the movers copy where there is no GIN. What the
// host says (steps, pushes, leases) and what it is told (versions) lies in host memory that the GPU reads and writes.
// Level of evidence: L0, compiled only. It has not run on any card.
#pragma once

#include "kernels/publish.h"
#include "transport/cuda/movers.cuh"

namespace vcoll::cuda {

struct PublishCall {
  kernels::PublishView view;
  void* states;  // QueueState of the machine, by queue; zeroed before the first launch
  void* sent;    // Walk of the machine, by edge; zeroed

  char* window;                     // of this rank
  kernels::PublishHeader* headers;  // [copy][item]
  uint64_t windowOffset;            // in the arena (GIN)
  uint64_t headersOffset;           // in the arena (GIN)

  // Written by the host.
  const uint64_t* pushed;
  const uint64_t* begun;
  const uint64_t* stepNumbers;  // [kStepsKept]
  const uint64_t* leases;       // [queue][copies]
  const uint32_t* stopFlag;     // the stream ends, or the communicator is in error
  // Written by the lane.
  uint64_t* versions;  // [item][copies]: step number + 1, 0 for none
  uint64_t* finished;  // [queue]
  LaneReport* report;
};

template <typename Net>
class PublishPort {
 public:
  __device__ PublishPort(const PublishCall& call, const Net& net, Command& command)
      : call_(call), net_(net), command_(command) {}

  __device__ uint64_t pushed(uint32_t) const { return ptx::loadAcquireSystem(call_.pushed); }
  __device__ uint64_t begun() const { return ptx::loadAcquireSystem(call_.begun); }
  __device__ uint64_t stepNumber(uint64_t index) const { return call_.stepNumbers[index % kernels::kStepsKept]; }
  __device__ bool leased(uint32_t queue, uint32_t copy) const {
    return ptx::loadAcquireSystem(call_.leases + queue * call_.view.copies + copy) > 0;
  }
  __device__ uint64_t counter(kernels::PublishCounter kind, uint32_t id) const {
    return net_.counter(counterOf(kind), id);
  }
  __device__ void signal(uint32_t peer, kernels::PublishCounter kind, uint32_t id) {
    net_.signal(peer, counterOf(kind), id);
  }
  __device__ bool ready(uint32_t peer) const { return net_.ready(blockIdx.x, peer); }
  __device__ kernels::PublishHeader header(uint64_t place) const { return call_.headers[place]; }

  __device__ void putHeader(uint32_t peer, uint64_t place, uint32_t id) {
    const uint64_t offset = place * sizeof(kernels::PublishHeader);
    if constexpr (Net::kStores) {
      store(peer, net_.rings[peer] + offset, reinterpret_cast<const char*>(call_.headers) + offset,
            sizeof(kernels::PublishHeader), id);
    } else {
      const uint64_t at = call_.headersOffset + offset;
      net_.put(blockIdx.x, peer, at, at, sizeof(kernels::PublishHeader), arrived(), id);
    }
  }
  __device__ void put(uint32_t peer, uint32_t, uint64_t offset, uint64_t bytes, uint32_t id) {
    if (bytes == 0) {
      net_.signal(peer, arrived(), id);
    } else if constexpr (Net::kStores) {
      store(peer, net_.windows[peer] + offset, call_.window + offset, bytes, id);
    } else {
      const uint64_t at = call_.windowOffset + offset;
      net_.put(blockIdx.x, peer, at, at, bytes, arrived(), id);
    }
  }

  __device__ void overwriting(uint32_t item, uint32_t copy) { setVersion(item, copy, 0); }
  __device__ void whole(uint32_t item, uint32_t copy, const kernels::PublishHeader& header) {
    setVersion(item, copy, header.step + 1);
  }
  __device__ void broken(uint32_t queue, const kernels::PublishHeader&) {
    call_.report->pending = {kernels::Pending::kArrived, queue, 0, 0, 0, call_.view.queues[queue].up.peer};
    ptx::storeReleaseSystem(&call_.report->state, LaneReport::kAborted);
  }

  __device__ bool stopped() const { return ptx::loadRelaxedSystem(call_.stopFlag) != 0; }
  __device__ void tellFinished(uint32_t queue, uint64_t steps) {
    ptx::storeReleaseSystem(call_.finished + queue, steps);
  }
  // Sends the movers home.
  __device__ void end() {
    command_.kind = Command::kEnd;
    ptx::barrier();
  }

 private:
  // The net knows counters by number only; a stream has a net of its own.
  __device__ static kernels::Counter counterOf(kernels::PublishCounter kind) {
    return static_cast<kernels::Counter>(kind);
  }
  __device__ static kernels::Counter arrived() { return counterOf(kernels::PublishCounter::kArrived); }

  __device__ void setVersion(uint32_t item, uint32_t copy, uint64_t value) {
    ptx::fenceSystem();  // what landed is there for whoever reads the version
    ptx::storeReleaseSystem(call_.versions + uint64_t{item} * call_.view.copies + copy, value);
  }
  __device__ void store(uint32_t peer, char* to, const char* from, uint64_t bytes, uint32_t id) {
    command_.kind = Command::kCopy;
    command_.to = to;
    command_.from = from;
    command_.bytes = bytes;
    ptx::barrier();
    ptx::barrier();
    net_.signal(peer, arrived(), id);
  }

  const PublishCall& call_;
  const Net& net_;
  Command& command_;
};

}  // namespace vcoll::cuda
