// SPDX-License-Identifier: Apache-2.0
// The Port of one lane on the CUDA fabric (kernels/pipeline.h lists what a Port does).
//
// A block is a lane. Its thread 0, the leader, alone runs the state machine and calls the Port; warps 1.. are the
// movers, which copy and sum what the leader asks for, between two barriers. The rest of the leader's warp only keeps
// the barriers. It is not done by all threads redundantly, because a state machine reads and writes shared state
// without a barrier (cursors, Bases): a fast thread would add before a slow one has read, and both would add.
//
// The hop inside the node is a push. Rule 2 (DESIGN section 5): the leader's fence after the movers' barrier comes
// before every signal, and its acquire of a counter before the barrier that lets the movers read. Level of evidence:
// L0, compiled only. It has not run on any card.
#pragma once

#include "transport/cuda/movers.cuh"

namespace vcoll::cuda {

// Net: the way to other nodes, GinNet or MemoryNet.
template <typename Net>
class DevicePort {
 public:
  __device__ DevicePort(const DeviceCall& call, const Net& net, Command& command, uint32_t lane)
      : call_(call), net_(net), command_(command), lane_(lane), startNs_(ptx::globalTimerNs()) {}

  __device__ void enter() { setGates(kEntered); }
  __device__ bool entered(uint32_t local) const { return gateIsSet(kEntered, local); }
  __device__ void leave() { setGates(kLeft); }
  __device__ bool left(uint32_t local) const { return gateIsSet(kLeft, local); }

  __device__ uint64_t counter(kernels::Counter kind, uint32_t id) const { return net_.counter(kind, id); }
  // With a push only the agent asks, and for its own.
  __device__ uint64_t arrived(uint32_t, uint32_t id) const { return net_.counter(kernels::Counter::kArrived, id); }
  __device__ void signal(uint32_t peer, kernels::Counter kind, uint32_t id) { net_.signal(peer, kind, id); }
  __device__ bool ready(uint32_t peer) const { return net_.ready(lane_, peer); }
  __device__ bool flushed() const { return net_.flushed(lane_); }

  __device__ void put(uint32_t peer, uint32_t local, uint64_t offset, uint64_t bytes, uint32_t id) {
    if constexpr (Net::kStores) {
      copy(net_.windows[peer] + call_.destination.offset + offset, sourceOf(local) + offset, bytes);
      net_.signal(peer, kernels::Counter::kArrived, id);
    } else {
      // A NIC reads its own GPU's memory. The place is this rank's destination of the same bytes.
      if (local != call_.plan.local) {
        copy(destinationOf(call_.plan.local) + offset, sourceOf(local) + offset, bytes);
      }
      const uint64_t at = net_.windowOffset + offset;
      net_.put(lane_, peer, at, at, bytes, kernels::Counter::kArrived, id);
    }
  }

  __device__ static constexpr bool pulls() { return false; }
  __device__ void pull(uint32_t, uint32_t local, uint64_t offset, uint64_t bytes) {
    copy(destinationOf(call_.plan.local) + offset, sourceOf(local) + offset, bytes);
  }
  __device__ void landed(uint32_t, uint64_t, uint64_t) {}  // a window's bytes land where they belong
  __device__ void deliver(uint32_t local, uint64_t offset, uint64_t bytes) {
    command_.kind = Command::kDeliver;
    command_.local = local;
    command_.offset = offset;
    command_.bytes = bytes;
    work();
  }

  __device__ void reduce(const kernels::ReduceStep& step) {
    const bool last = step.queue->hasUp == 0;
    command_.kind = Command::kReduce;
    command_.offset = step.chunk.offset;
    command_.bytes = step.chunk.bytes;
    command_.to =
        last ? destinationOf(step.ownerLocal) + step.chunk.offset : call_.rings + outSlot(step.outId, step.outSlot);
    command_.toFp32 = !last && wide();
    command_.divisor = last ? call_.avgDivisor : 0;
    command_.partials = step.partials;
    command_.partialCount = step.partialCount;
    command_.partialBase = step.partialBase;
    command_.index = step.index;
    work();
  }
  __device__ void putPartial(uint32_t peer, uint32_t outId, uint32_t slot, uint64_t bytes, uint32_t ringId) {
    const uint64_t from = outSlot(outId, slot);
    const uint64_t to = call_.ringLayout.slotOffset(ringId, slot);
    const uint64_t size = wide() ? 2 * bytes : bytes;
    if constexpr (Net::kStores) {
      copy(net_.rings[peer] + to, call_.rings + from, size);
      net_.signal(peer, kernels::Counter::kPartial, ringId);
    } else {
      net_.put(lane_, peer, net_.ringOffset + to, net_.ringOffset + from, size, kernels::Counter::kPartial, ringId);
    }
  }

  // Rule 5. What the loop around step() asks when nothing moves.
  __device__ LaneReport::State verdict() const {
    if (ptx::loadRelaxedSystem(call_.abortFlag) != 0) return LaneReport::kAborted;
    return ptx::globalTimerNs() - startNs_ > call_.budgetNs ? LaneReport::kTimedOut : LaneReport::kRunning;
  }

  // Sends the movers home.
  __device__ void end() {
    command_.kind = Command::kEnd;
    ptx::barrier();
  }

 private:
  enum Gate : uint32_t { kEntered, kLeft };

  // A rank tells every rank of its node, so that each polls its own memory.
  __device__ void setGates(Gate gate) {
    ptx::fenceSystem();
    for (uint32_t to = 0; to < call_.plan.localCount; ++to) {
      ptx::storeRelaxedSystem(call_.gates[to] + gateCell(gate, call_.plan.local), call_.sequence);
    }
  }
  __device__ bool gateIsSet(Gate gate, uint32_t local) const {
    return ptx::loadAcquireSystem(call_.gates[call_.plan.local] + gateCell(gate, local)) >= call_.sequence;
  }
  __device__ uint64_t gateCell(Gate gate, uint32_t from) const {
    return (uint64_t{gate} * kLaneCap + lane_) * call_.plan.localCount + from;
  }

  __device__ const char* sourceOf(uint32_t local) const { return call_.source.bases[local] + call_.source.offset; }
  __device__ char* destinationOf(uint32_t local) const {
    return call_.destination.bases[local] + call_.destination.offset;
  }
  __device__ uint64_t outSlot(uint32_t id, uint32_t slot) const {
    return call_.ringLayout.bytes() + call_.ringLayout.slotOffset(id, slot);
  }
  __device__ bool wide() const { return call_.partialsFp32 && call_.element != Element::kFloat32; }

  __device__ void copy(char* to, const char* from, uint64_t bytes) {
    command_.kind = Command::kCopy;
    command_.to = to;
    command_.from = from;
    command_.bytes = bytes;
    work();
  }
  __device__ void work() {
    ptx::barrier();  // the movers see the command, and what the leader acquired
    ptx::barrier();  // the leader may signal what the movers did
  }

  const DeviceCall& call_;
  const Net& net_;
  Command& command_;
  uint32_t lane_;
  uint64_t startNs_;
};

}  // namespace vcoll::cuda
