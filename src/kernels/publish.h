// SPDX-License-Identifier: Apache-2.0
// PublishStream for one lane, which serves one rail on one node (DESIGN section 5). Items of an owner travel in the
// order of its pushes along the path from its node, step after step. Landing is direct: a station says once per queue
// and step that its copies may be overwritten ("open"); then a header names the item, its chunks follow into the final
// copy, and both are forwarded as they arrive. When a station has all of a step it says so ("taken"): the station
// before it may then overwrite what it sent.
//
// All items are pushed once in every step, so both ends of a hop count the same records: no other agreement is needed.
// The lane never ends; step() moves what can move. All that it may ask of its fabric is its Port:
//
//   uint64_t pushed(queue)                       items pushed so far into the queue of this node, in all steps; acquire
//   uint64_t begun()                             steps that this rank has begun; acquire
//   uint64_t stepNumber(index)                   of step `index` (from 0), one of the last kStepsKept begun
//   bool     leased(queue, copy)                 a reader here holds an item of the queue in that copy
//   uint64_t counter(PublishCounter, id)         my own counter, acquire
//   void     signal(peer, PublishCounter, id)    add 1 to peer's counter
//   bool     ready(peer)                         room for a put to peer
//   PublishHeader header(place)                  a header that was written here by a push, or has landed
//   void     putHeader(peer, place, id)          to the same place of peer; then peer's kArrived[id] += 1
//   void     put(peer, copy, offset, bytes, id)  from my copy to peer's at the same offset (bytes may be 0); then
//                                                peer's kArrived[id] += 1, once the bytes are visible there
//   void     overwriting(item, copy)             from here on the item's old version in that copy is gone
//   void     whole(item, copy, header)           the item's copy is complete: readers may have it
//   void     broken(queue, header)               a header that cannot be: peers disagree. The lane stops.
//
// Puts and signals to one peer take effect in order.
//
// A port may have helpers: other rails that are idle and carry some of a heavy item's chunks over the next hop, into
// the same copy. The header says how many; then chunk c rides with helper c % (helpers + 1), 0 being this lane itself.
// Each has a counter of its own at the far end, so chunks are told apart by their order. Helpers start when the far end
// has seen the header, and the next header follows when it has the whole item: else chunks could land while the far end
// cannot know yet what they overwrite, and never would if a sender died then. Such a port also offers
//
//   uint32_t helpers(queue, item)                how many shall carry chunks of this item, 0 to kMaxHelpers
//   void     setHelpers(place, count)            into the header there
//   bool     canHelp(helper)                     room for another chunk; helpers count from 1
//   void     help(helper, peer, copy, offset, bytes, id)   as put, by the helper; counts on peer's kArrived + helper
#pragma once

#include "kernels/pipeline.h"

namespace vcoll::kernels {

// Each counter only grows and is never reset (DESIGN rule 1).
enum class PublishCounter : uint32_t {
  kOpen = 0,     // at the near end of a hop, by Edge::nearId: steps for which the far end is open
  kTaken = 1,    // at the near end, by Edge::nearId: steps that the far end has completely
  kHelped = 2,   // at the near end, by Edge::nearId: of each item with helpers the far end has seen the header, has all
  kArrived = 3,  // at the far end, by queue: headers and chunks that landed; those of helpers follow
};
constexpr uint32_t kMaxHelpers = 3;
constexpr uint32_t kPublishCounterKinds = 4 + kMaxHelpers;
VCOLL_HD constexpr PublishCounter arrivedBy(uint32_t helper) {
  return static_cast<PublishCounter>(static_cast<uint32_t>(PublishCounter::kArrived) + helper);
}

struct PublishItem {
  uint64_t offset;  // in the window, of copy 0
  uint64_t bytes;
  uint64_t chunks;  // at least 1: the last one completes the item
};

struct PublishHeader {
  uint64_t step;      // its number
  uint64_t checksum;  // of the bytes, if the stream verifies
  uint32_t item;      // index into PublishView::items
  uint32_t magic;
  uint32_t helpers;  // on the hop that the header has come over
  uint32_t reserved;
};
constexpr uint32_t kPublishMagic = 0x56505542;

// The items of one source node on the rail.
struct PublishQueue {
  uint32_t node;       // source
  uint32_t firstItem;  // its items are [firstItem, firstItem + itemCount)
  uint32_t itemCount;  // > 0
  uint32_t hasUp;      // 0 on the source node
  Edge up;             // peer: the agent before this one; nearId: index of this hop's counters there
  uint32_t firstDown;  // edges to the agents after this one. Edge::farId is the queue's index, equal on all ranks
  uint32_t downCount;
};

struct PublishView {
  const PublishItem* items;
  uint32_t itemCount;
  const PublishQueue* queues;
  uint32_t queueCount;
  const Edge* edges;
  uint32_t edgeCount;
  uint64_t chunkBytes;
  uint32_t copies;      // 1, or 2: steps alternate between them
  uint64_t copyStride;  // from copy 0 to copy 1
};

// Steps whose numbers the port must know: those in flight and the one before.
constexpr uint32_t kStepsKept = 4;

template <typename Port>
class Publish {
  static constexpr bool kHasHelpers = requires(Port & port) { port.helpers(0u, 0u); };

 public:
  // A place in the endless sequence of a queue's records: for each item a header and then its chunks.
  struct Walk {
    uint64_t step;      // index, from 0
    uint32_t position;  // among the queue's items of this step, in the order of the pushes
    uint32_t item;      // once the header is passed
    uint32_t helpers;   // of the item
    uint64_t record;    // 0: the header is next; else chunk record - 1 is
    uint64_t helped;    // what kHelped comes to with the items so far

    VCOLL_HD bool before(const Walk& other) const {
      if (step != other.step) return step < other.step;
      if (position != other.position) return position < other.position;
      return record < other.record;
    }
  };
  struct QueueState {
    Walk received;
    uint64_t arrivals[1 + kMaxHelpers];  // records received so far, by who carried them
    uint64_t opened;                     // steps
  };

  // states: one per queue; sent: one per edge; both zeroed. All references outlive the lane.
  VCOLL_HD Publish(const PublishView& view, Port& port, QueueState* states, Walk* sent)
      : view_(view), port_(port), states_(states), sent_(sent) {}

  // Moves what can move. True if anything did.
  VCOLL_HD bool step() {
    bool moved = false;
    for (uint32_t q = 0; q < view_.queueCount && !stopped_; ++q) {
      const PublishQueue& queue = view_.queues[q];
      moved |= queue.hasUp ? open(q, queue) | receive(q, queue) : take(q, queue);
      for (uint32_t e = 0; e < queue.downCount; ++e) moved |= send(q, queue, queue.firstDown + e);
    }
    return moved;
  }

  // Steps that are over here: received, passed on and taken. Their copies may be overwritten.
  VCOLL_HD uint64_t finished(uint32_t q) const {
    const PublishQueue& queue = view_.queues[q];
    uint64_t steps = states_[q].received.step;
    for (uint32_t e = 0; e < queue.downCount; ++e) {
      const uint64_t taken = port_.counter(PublishCounter::kTaken, view_.edges[queue.firstDown + e].nearId);
      if (taken < steps) steps = taken;
    }
    return steps;
  }

  // Nothing that this lane has waits to be sent.
  VCOLL_HD bool idle() const {
    for (uint32_t q = 0; q < view_.queueCount; ++q) {
      const PublishQueue& queue = view_.queues[q];
      for (uint32_t e = queue.firstDown; e < queue.firstDown + queue.downCount; ++e) {
        if (sent_[e].before(states_[q].received)) return false;
      }
    }
    return true;
  }

  // What queue q waits for, to finish `steps` steps; for time-out reports.
  VCOLL_HD Pending pending(uint32_t q, uint64_t steps) const {
    const PublishQueue& queue = view_.queues[q];
    const QueueState& state = states_[q];
    Pending result{Pending::kNothing, queue.node, 0, state.received.position, queue.itemCount, 0};
    if (queue.hasUp && state.received.step < steps) {
      result.what = state.opened > state.received.step ? Pending::kArrived : Pending::kNothing;
      result.peer = queue.up.peer;
      return result;
    }
    for (uint32_t e = queue.firstDown; e < queue.firstDown + queue.downCount; ++e) {
      const Edge& edge = view_.edges[e];
      if (port_.counter(PublishCounter::kTaken, edge.nearId) >= steps) continue;
      result.peer = edge.peer;
      result.chunk = sent_[e].position;
      if (sent_[e].step >= steps) {
        result.what = Pending::kTaken;
      } else if (sent_[e].before(state.received)) {
        result.what = isOpen(edge, sent_[e]) ? Pending::kRoom : Pending::kReady;
      }
      return result;
    }
    return result;
  }

 private:
  VCOLL_HD uint32_t copyOf(uint64_t step) const { return static_cast<uint32_t>(step % view_.copies); }
  // Headers lie where the pushes are counted: by copy, queue and position.
  VCOLL_HD uint64_t placeOf(const PublishQueue& queue, const Walk& walk) const {
    return uint64_t{copyOf(walk.step)} * view_.itemCount + queue.firstItem + walk.position;
  }
  VCOLL_HD bool isOpen(const Edge& edge, const Walk& walk) const {
    return port_.counter(PublishCounter::kOpen, edge.nearId) > walk.step;
  }

  VCOLL_HD uint64_t helped(const Edge& edge) const {
    if constexpr (kHasHelpers) return port_.counter(PublishCounter::kHelped, edge.nearId);
    return 0;
  }

  VCOLL_HD uint32_t carrierOf(const Walk& walk) const {
    return walk.record == 0 ? 0 : static_cast<uint32_t>((walk.record - 1) % (walk.helpers + 1));
  }

  // True at the end of a step.
  VCOLL_HD bool advance(const PublishQueue& queue, Walk& walk) const {
    if (walk.record++ < view_.items[walk.item].chunks) return false;
    walk.record = 0;
    if (++walk.position < queue.itemCount) return false;
    walk.position = 0;
    ++walk.step;
    return true;
  }

  // A step is begun only when the one whose copies it overwrites has finished, so only readers can hold it up.
  VCOLL_HD bool open(uint32_t q, const PublishQueue& queue) {
    QueueState& state = states_[q];
    bool moved = false;
    while (state.opened < port_.begun() && !port_.leased(q, copyOf(state.opened))) {
      port_.signal(queue.up.peer, PublishCounter::kOpen, queue.up.nearId);
      ++state.opened;
      moved = true;
    }
    return moved;
  }

  VCOLL_HD bool receive(uint32_t q, const PublishQueue& queue) {
    QueueState& state = states_[q];
    Walk& walk = state.received;
    bool moved = false;
    for (int i = 0; i < kBurst; ++i) {
      const uint32_t carrier = carrierOf(walk);
      if (port_.counter(arrivedBy(carrier), q) <= state.arrivals[carrier]) return moved;
      const uint32_t copy = copyOf(walk.step);
      if (walk.record == 0) {
        const PublishHeader header = port_.header(placeOf(queue, walk));
        const bool possible = walk.step < state.opened && header.magic == kPublishMagic &&
                              header.step == port_.stepNumber(walk.step) && header.item >= queue.firstItem &&
                              header.item - queue.firstItem < queue.itemCount && header.helpers <= kMaxHelpers;
        if (!possible) {
          port_.broken(q, header);
          stopped_ = true;
          return moved;
        }
        walk.item = header.item;
        walk.helpers = header.helpers;
        port_.overwriting(walk.item, copy);
        if (walk.helpers > 0) port_.signal(queue.up.peer, PublishCounter::kHelped, queue.up.nearId);
      } else if (walk.record == view_.items[walk.item].chunks) {
        port_.whole(walk.item, copy, port_.header(placeOf(queue, walk)));
        if (walk.helpers > 0) port_.signal(queue.up.peer, PublishCounter::kHelped, queue.up.nearId);
      }
      ++state.arrivals[carrier];
      moved = true;
      if (advance(queue, walk)) port_.signal(queue.up.peer, PublishCounter::kTaken, queue.up.nearId);
    }
    return moved;
  }

  // At the source an item is there as a whole once it is pushed.
  VCOLL_HD bool take(uint32_t q, const PublishQueue& queue) {
    QueueState& state = states_[q];
    const uint64_t pushed = port_.pushed(q);
    if (state.arrivals[0] == pushed) return false;
    state.arrivals[0] = pushed;
    state.received.step = pushed / queue.itemCount;
    state.received.position = static_cast<uint32_t>(pushed % queue.itemCount);
    return true;
  }

  VCOLL_HD bool send(uint32_t q, const PublishQueue& queue, uint32_t e) {
    const Edge& edge = view_.edges[e];
    Walk& walk = sent_[e];
    bool moved = false;
    for (int i = 0; i < kBurst && walk.before(states_[q].received); ++i) {
      if (walk.record == 0 && (!isOpen(edge, walk) || helped(edge) < walk.helped)) return moved;
      const uint32_t carrier = carrierOf(walk);
      if (carrier == 0 && !port_.ready(edge.peer)) return moved;
      if (walk.record == 0) {
        const uint64_t place = placeOf(queue, walk);
        walk.item = port_.header(place).item;
        if constexpr (kHasHelpers) {
          walk.helpers = queue.downCount == 1 ? port_.helpers(q, walk.item) : 0;
          port_.setHelpers(place, walk.helpers);
          if (walk.helpers > 0) walk.helped += 2;
        }
        port_.putHeader(edge.peer, place, edge.farId);
      } else {
        const PublishItem& item = view_.items[walk.item];
        const uint32_t copy = copyOf(walk.step);
        const uint64_t done = (walk.record - 1) * view_.chunkBytes;
        const uint64_t offset = item.offset + copy * view_.copyStride + done;
        const uint64_t bytes = item.bytes - done < view_.chunkBytes ? item.bytes - done : view_.chunkBytes;
        if (carrier == 0) {
          port_.put(edge.peer, copy, offset, bytes, edge.farId);
        } else if constexpr (kHasHelpers) {
          if (helped(edge) + 1 < walk.helped || !port_.canHelp(carrier)) return moved;
          port_.help(carrier, edge.peer, copy, offset, bytes, edge.farId);
        }
      }
      advance(queue, walk);
      moved = true;
    }
    return moved;
  }

  const PublishView& view_;
  Port& port_;
  QueueState* states_;
  Walk* sent_;
  bool stopped_ = false;
};

}  // namespace vcoll::kernels
