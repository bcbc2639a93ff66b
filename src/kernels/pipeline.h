// SPDX-License-Identifier: Apache-2.0
// What the collectives share: counters that only grow, walking a queue chunk by chunk, and the way into and out of a
// call.
//
// A lane's state machine is advanced by step(), which never blocks: it moves what can move and returns. All that a
// lane may ask of its fabric is its Port:
//
//   void     enter() / bool entered(local)      this lane is inside the call / so is the same lane of a rank of my node
//   void     leave() / bool left(local)         this lane reads and writes nobody's memory any more / so does that one
//   uint64_t counter(Counter, id)               my own counter, acquire
//   uint64_t arrived(local, id)                 the Counter::kArrived of a rank of my node, acquire
//   void     signal(peer, Counter, id)          add 1 to peer's counter
//   bool     ready(peer)                        room for a put to peer
//   void     put(peer, local, offset, bytes, id)       from local's window to peer's at the same offset; then
//                                                      peer's kArrived[id] += 1, once the bytes are visible there
//   bool     pulls()                            one hop inside the node: ranks pull (true) or agents push (false)
//   void     pull(owner, local, offset, bytes)  rank owner's bytes from local's window to mine
//   void     landed(owner, offset, bytes)       rank owner's bytes have arrived in my own window from another node
//   void     deliver(local, offset, bytes)      from local's window to every rank of my node
//   void     reduce(ReduceStep)                 sum a chunk over my node and the partial sums that arrived
//   void     putPartial(peer, outId, slot, bytes, ringId)   from my out slot to peer's ring slot; then
//                                                           peer's kPartial[ringId] += 1
//   bool     flushed()                          my puts so far no longer read their sources
//
// Puts and signals to one peer that name the same id take effect in order, whatever lane they come from: two plans may
// serve a hop in different lanes, and a partial sum of the first must not be overtaken by one of the second.
//
// On a device one thread of the group runs the machine and calls the Port; the Port has the other threads copy and sum.
#pragma once

#include "kernels/plan_view.h"

namespace vcoll::kernels {

// One counter per source and purpose (DESIGN rule 1). They live in registered memory and are never reset.
enum class Counter : uint32_t {
  kReady = 0,    // at the near end: the far end is inside the call, its buffer is free
  kArrived = 1,  // at the far end: chunks that landed
  kPartial = 2,  // at the near end: partial sums that landed in the ring
  kCredit = 3,   // at the far end: ring slots that were read
};
constexpr uint32_t kCounterKinds = 4;

// How much of each counter earlier calls used up. One per communicator and rank, next to the counters.
struct Bases {
  uint64_t* ready;    // by nearId
  uint64_t* arrived;  // by Queue::arrivedBase; every rank of a node keeps it, agent or not
  uint64_t* partial;  // by nearId
  uint64_t* credit;   // by farId: partial sums ever sent on the edge
};

struct ChunkRef {
  uint32_t slice;
  uint64_t offset;
  uint64_t bytes;
};

// Walks the chunks of a queue in path order.
class Cursor {
 public:
  VCOLL_HD void reset(const Queue& queue) {
    slice_ = queue.firstSlice;
    done_ = 0;
    chunk_ = 0;
  }
  VCOLL_HD uint64_t chunk() const { return chunk_; }
  VCOLL_HD ChunkRef peek(const PlanView& plan, uint64_t chunkBytes) const {
    const Slice& slice = plan.slices[slice_];
    const uint64_t left = slice.bytes - done_;
    return {slice_, slice.offset + done_, left < chunkBytes ? left : chunkBytes};
  }
  VCOLL_HD void advance(const PlanView& plan, const ChunkRef& ref) {
    done_ += ref.bytes;
    ++chunk_;
    if (done_ == plan.slices[slice_].bytes) {
      ++slice_;
      done_ = 0;
    }
  }

 private:
  uint32_t slice_;
  uint64_t done_;
  uint64_t chunk_;
};

// One chunk of a reduction, for Port::reduce.
struct ReduceStep {
  const Queue* queue;
  ChunkRef chunk;
  const Edge* partials;  // edges whose ring slot holds a partial sum of this chunk, in order
  uint32_t partialCount;
  const uint64_t* partialBase;  // Bases::partial
  uint64_t index;               // of the chunk in this call: ring slot = (partialBase[nearId] + index) % slots
  uint32_t ownerLocal;          // on the source node: the result goes to this local rank's destination
  uint32_t outId;               // elsewhere: to this rank's out slot (outId, outSlot)
  uint32_t outSlot;
};

// What a lane that cannot move waits for; for time-out reports.
struct Pending {
  enum What : uint32_t { kNothing, kEnter, kReady, kArrived, kRoom, kPartial, kCredit, kFlush, kLeave, kTaken };
  What what;
  uint32_t node;  // queue: source node
  uint32_t rail;
  uint64_t chunk;
  uint64_t chunks;
  uint32_t peer;  // rank waited for
};

// Chunks one task may move before the lane looks at its other tasks.
constexpr int kBurst = 4;

// Advances the tasks that are not finished; those that finish gather at the front, `done` of them. True if any moved.
template <typename Task, typename Advance, typename Finished>
VCOLL_HD bool advanceTasks(Task* tasks, uint32_t count, uint32_t& done, const Advance& advance,
                           const Finished& finished) {
  bool moved = false;
  for (uint32_t i = done; i < count; ++i) {
    moved |= advance(tasks[i]);
    if (!finished(tasks[i])) continue;
    const Task over = tasks[i];
    tasks[i] = tasks[done];
    tasks[done++] = over;
  }
  return moved;
}

// Entry and exit of a call, the same for all collectives. A lane leaves once it touches nobody's memory any more; it
// may return once the lanes that could still touch its rank's memory have left.
template <typename Port>
class CallGate {
 public:
  VCOLL_HD void begin(Port& port) {
    enteredCount_ = 0;
    leftCount_ = 0;
    port.enter();
  }
  // All ranks of the node are inside.
  VCOLL_HD bool allEntered(const PlanView& plan, Port& port) {
    while (enteredCount_ < plan.localCount && port.entered(enteredCount_)) ++enteredCount_;
    return enteredCount_ == plan.localCount;
  }
  VCOLL_HD uint32_t firstMissing() const { return enteredCount_; }

  // needs(local): must that rank have left before this one returns?
  template <typename Needs>
  VCOLL_HD bool allLeft(const PlanView& plan, Port& port, const Needs& needs) {
    while (leftCount_ < plan.localCount && (leftCount_ == plan.local || !needs(leftCount_) || port.left(leftCount_))) {
      ++leftCount_;
    }
    return leftCount_ == plan.localCount;
  }
  VCOLL_HD uint32_t firstStaying() const { return leftCount_; }

 private:
  uint32_t enteredCount_;
  uint32_t leftCount_;
};

}  // namespace vcoll::kernels
