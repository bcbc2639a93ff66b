// SPDX-License-Identifier: Apache-2.0
// The Port of one lane on the host fabric (kernels/pipeline.h lists what a Port does).
#pragma once

#include "base/types.h"
#include "kernels/pipeline.h"
#include "transport/host/host_fabric.h"
#include "transport/host/reduce.h"

namespace vcoll {

class HostPort {
 public:
  // Calls of at least this size leave nothing in the caches worth keeping there.
  static constexpr uint64_t kStreamingBytes = 16u << 20;

  HostPort(HostFabric& fabric, const HostCall& call, uint64_t sequence, uint32_t lane, bool pulls)
      : fabric_(fabric),
        call_(call),
        own_(fabric.controls_[fabric.local_]),
        sequence_(sequence),
        lane_(lane),
        pulls_(pulls),
        elementBytes_(typeInfo(call.plan->spec().type)->size),
        wide_(call.plan->spec().partialsFp32 && elementBytes_ == 2),
        streaming_(call.plan->totalBytes() >= kStreamingBytes) {}

  void enter() {
    if (call_.sendAddress != nullptr) {
      own_.header().sendAddress.store(reinterpret_cast<uintptr_t>(call_.sendAddress), std::memory_order_relaxed);
    }
    gate(fabric_.local_).entered.store(sequence_, std::memory_order_seq_cst);
    fabric_.wakeLocalRanks();
  }
  bool entered(uint32_t local) const { return gate(local).entered.load(std::memory_order_seq_cst) >= sequence_; }
  void leave() {
    gate(fabric_.local_).left.store(sequence_, std::memory_order_seq_cst);
    fabric_.wakeLocalRanks();
  }
  bool left(uint32_t local) const {
    return call_.deferLeave || gate(local).left.load(std::memory_order_seq_cst) >= sequence_;
  }

  uint64_t counter(kernels::Counter kind, uint32_t id) const {
    return own_.counter(own_.counterIndex(kind, id)).load(std::memory_order_seq_cst);
  }
  uint64_t arrived(uint32_t local, uint32_t id) const {
    const ControlView& control = fabric_.controls_[local];
    return control.counter(control.counterIndex(kernels::Counter::kArrived, id)).load(std::memory_order_seq_cst);
  }
  void signal(uint32_t peer, kernels::Counter kind, uint32_t id) {
    fabric_.wire_->signal(fabric_.wireComm_, static_cast<int>(peer), own_.counterIndex(kind, id), 1);
  }
  bool ready(uint32_t peer) const { return fabric_.wire_->ready(fabric_.wireComm_, static_cast<int>(peer)) != 0; }
  void put(uint32_t peer, uint32_t local, uint64_t offset, uint64_t bytes, uint32_t id) {
    fabric_.wire_->put(fabric_.wireComm_, static_cast<int>(peer), pointer(call_.sources[local], offset), bytes,
                       call_.window, call_.windowOffset + offset, own_.counterIndex(kernels::Counter::kArrived, id), 1);
  }
  bool flushed() const { return fabric_.wireComm_ == nullptr || fabric_.wire_->flushed(fabric_.wireComm_) != 0; }

  bool pulls() const { return pulls_; }
  void pull(uint32_t owner, uint32_t local, uint64_t offset, uint64_t bytes) {
    const uintptr_t to = call_.ownByOwner != nullptr ? call_.ownByOwner[owner] : call_.destinations[fabric_.local_];
    if (call_.sendAddress != nullptr) {
      readPeer(local, offset - call_.ownSources[owner], bytes, pointer(to, offset));
    } else {
      copyBytes(pointer(to, offset), pointer(call_.sources[local], offset), bytes, false);
    }
  }
  void landed(uint32_t owner, uint64_t offset, uint64_t bytes) {
    if (call_.ownByOwner != nullptr) pull(owner, fabric_.local_, offset, bytes);
  }
  void deliver(uint32_t local, uint64_t offset, uint64_t bytes) {
    for (uint32_t to = 0; to < fabric_.controls_.size(); ++to) {
      if (to == local) continue;
      copyBytes(pointer(call_.destinations[to], offset), pointer(call_.sources[local], offset), bytes, streaming_);
    }
  }

  // Direct calls: from `offset` of the send buffer that the peer announced.
  void readPeer(uint32_t local, uint64_t offset, uint64_t bytes, void* to);
  void reduce(const kernels::ReduceStep& step);
  void putPartial(uint32_t peer, uint32_t outId, uint32_t slot, uint64_t bytes, uint32_t ringId) {
    const FlowLayout& flow = fabric_.flow_;
    // The far end of the hop knows the ring's slots by the same index: both ends count the same chunks.
    const uint64_t target = flow.ringOffset(ringId) + slot * flow.slotBytesOfId(ringId);
    fabric_.wire_->put(fabric_.wireComm_, static_cast<int>(peer), outSlot(outId, slot), wide_ ? 2 * bytes : bytes,
                       HostFabric::kRingWindow, target, own_.counterIndex(kernels::Counter::kPartial, ringId), 1);
  }

 private:
  LaneGate& gate(uint32_t local) const { return fabric_.controls_[local].header().gates[lane_]; }
  static unsigned char* pointer(uintptr_t base, uint64_t offset) {
    return reinterpret_cast<unsigned char*>(base + offset);  // NOLINT(performance-no-int-to-ptr): see HostCall
  }
  unsigned char* inSlot(uint32_t id, uint64_t slot) const {
    const FlowLayout& flow = fabric_.flow_;
    return fabric_.rings_.base() + flow.ringOffset(id) + slot * flow.slotBytesOfId(id);
  }
  unsigned char* outSlot(uint32_t id, uint64_t slot) const { return inSlot(id, slot) + fabric_.flow_.ringBytes(); }

  HostFabric& fabric_;
  const HostCall& call_;
  const ControlView& own_;
  uint64_t sequence_;
  uint32_t lane_;
  bool pulls_;
  size_t elementBytes_;
  bool wide_;       // partial sums travel as fp32
  bool streaming_;  // copies bypass the caches
};

}  // namespace vcoll
