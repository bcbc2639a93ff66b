// SPDX-License-Identifier: Apache-2.0
// ReduceScatterV for one lane (DESIGN section 5): AllGatherV's path run backwards. Each agent sums a chunk over the
// ranks of its node, adds the partial sums that arrived from the far side, and puts the result into a slot of the next
// agent's ring towards the owner's node; there it goes to the owner's destination. A sender waits for the credit of the
// slot it would overwrite. Its own out slot has the same index and is free by the same credit.
#pragma once

#include "kernels/pipeline.h"

namespace vcoll::kernels {

template <typename Port>
class ReduceScatterV {
 public:
  struct Task {
    uint32_t queue;
    Cursor cursor;
  };

  // tasks: room for plan.maxTasks. All references outlive the call.
  VCOLL_HD ReduceScatterV(const PlanView& plan, Port& port, const Bases& bases, Task* tasks, uint32_t lane)
      : plan_(plan), port_(port), bases_(bases), tasks_(tasks), lane_(lane) {}

  VCOLL_HD void begin() {
    gate_.begin(port_);
    phase_ = kMoving;
    taskCount_ = 0;
    doneTasks_ = 0;
    for (uint32_t q = 0; q < plan_.queueCount; ++q) {
      const Queue& queue = plan_.queues[q];
      if (queue.lane != lane_ || queue.reduceChunks == 0 || queue.agentLocal != plan_.local) continue;
      Task& task = tasks_[taskCount_++];
      task.queue = q;
      task.cursor.reset(queue);
    }
  }

  // Moves what can move. True if anything did.
  VCOLL_HD bool step() {
    if (phase_ == kMoving) {
      if (taskCount_ > 0 && !gate_.allEntered(plan_, port_)) return false;
      const bool moved = advanceTasks(
          tasks_, taskCount_, doneTasks_, [this](Task& task) { return advance(task); },
          [this](const Task& task) { return finished(task); });
      if (doneTasks_ < taskCount_) return moved;
      port_.leave();
      phase_ = kLeaving;
    }
    if (phase_ == kLeaving) {
      if (!gate_.allLeft(plan_, port_, [this](uint32_t local) { return isAgent(local); })) return false;
      consumeCounters();
      phase_ = kDone;
    }
    return true;
  }
  VCOLL_HD bool done() const { return phase_ == kDone; }

  VCOLL_HD Pending pending() {
    if (phase_ == kLeaving) return {Pending::kLeave, plan_.node, 0, 0, 0, plan_.localRanks[gate_.firstStaying()]};
    if (!gate_.allEntered(plan_, port_)) {
      return {Pending::kEnter, plan_.node, 0, 0, 0, plan_.localRanks[gate_.firstMissing()]};
    }
    for (uint32_t i = doneTasks_; i < taskCount_; ++i) {
      const Queue& queue = plan_.queues[tasks_[i].queue];
      Pending result{Pending::kNothing,        queue.node,         queue.rail,
                     tasks_[i].cursor.chunk(), queue.reduceChunks, plan_.rank};
      const Edge* missing = missingPartial(queue, tasks_[i].cursor.chunk());
      if (missing != nullptr) {
        result.what = Pending::kPartial;
        result.peer = missing->peer;
      } else if (queue.hasUp && !hasRoom(queue, tasks_[i].cursor.chunk())) {
        result.what = hasCredit(queue, tasks_[i].cursor.chunk()) ? Pending::kRoom : Pending::kCredit;
        result.peer = queue.up.peer;
      }
      if (result.what != Pending::kNothing) return result;
    }
    return {Pending::kNothing, 0, 0, 0, 0, plan_.rank};
  }

 private:
  enum Phase : uint32_t { kMoving, kLeaving, kDone };

  VCOLL_HD bool finished(const Task& task) const {
    return task.cursor.chunk() == plan_.queues[task.queue].reduceChunks;
  }

  VCOLL_HD const Edge* missingPartial(const Queue& queue, uint64_t chunk) {
    for (uint32_t e = 0; e < queue.downCount; ++e) {
      const Edge& edge = plan_.edges[queue.firstDown + e];
      if (port_.counter(Counter::kPartial, edge.nearId) <= bases_.partial[edge.nearId] + chunk) return &edge;
    }
    return nullptr;
  }

  VCOLL_HD bool hasCredit(const Queue& queue, uint64_t chunk) {
    const uint64_t sent = bases_.credit[queue.up.farId] + chunk;
    return sent - port_.counter(Counter::kCredit, queue.up.farId) < plan_.slots;
  }

  VCOLL_HD bool hasRoom(const Queue& queue, uint64_t chunk) {
    return hasCredit(queue, chunk) && port_.ready(queue.up.peer);
  }

  VCOLL_HD bool advance(Task& task) {
    const Queue& queue = plan_.queues[task.queue];
    bool moved = false;
    for (int i = 0; i < kBurst && !finished(task); ++i) {
      const uint64_t chunk = task.cursor.chunk();
      if (missingPartial(queue, chunk) != nullptr) return moved;
      if (queue.hasUp && !hasRoom(queue, chunk)) return moved;

      const ChunkRef ref = task.cursor.peek(plan_, plan_.reduceChunkBytes);
      ReduceStep step{};
      step.queue = &queue;
      step.chunk = ref;
      step.partials = plan_.edges + queue.firstDown;
      step.partialCount = queue.downCount;
      step.partialBase = bases_.partial;
      step.index = chunk;
      if (queue.hasUp) {
        step.outId = queue.up.farId;
        step.outSlot = static_cast<uint32_t>((bases_.credit[queue.up.farId] + chunk) % plan_.slots);
      } else {
        step.ownerLocal = plan_.slices[ref.slice].ownerLocal;
      }
      port_.reduce(step);
      for (uint32_t e = 0; e < queue.downCount; ++e) {
        const Edge& edge = plan_.edges[queue.firstDown + e];
        port_.signal(edge.peer, Counter::kCredit, edge.farId);
      }
      if (queue.hasUp) port_.putPartial(queue.up.peer, step.outId, step.outSlot, ref.bytes, queue.up.nearId);
      task.cursor.advance(plan_, ref);
      moved = true;
    }
    return moved;
  }

  // Agents read every rank's source and write the owners' destinations.
  VCOLL_HD bool isAgent(uint32_t local) const {
    for (uint32_t q = 0; q < plan_.queueCount; ++q) {
      const Queue& queue = plan_.queues[q];
      if (queue.lane == lane_ && queue.reduceChunks > 0 && queue.agentLocal == local) return true;
    }
    return false;
  }

  VCOLL_HD void consumeCounters() {
    for (uint32_t i = 0; i < taskCount_; ++i) {
      const Queue& queue = plan_.queues[tasks_[i].queue];
      for (uint32_t e = 0; e < queue.downCount; ++e) {
        bases_.partial[plan_.edges[queue.firstDown + e].nearId] += queue.reduceChunks;
      }
      if (queue.hasUp) bases_.credit[queue.up.farId] += queue.reduceChunks;
    }
  }

  const PlanView& plan_;
  Port& port_;
  const Bases& bases_;
  Task* tasks_;
  uint32_t lane_;
  CallGate<Port> gate_;
  Phase phase_ = kDone;
  uint32_t taskCount_ = 0;
  uint32_t doneTasks_ = 0;
};

}  // namespace vcoll::kernels
