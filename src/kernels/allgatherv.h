// SPDX-License-Identifier: Apache-2.0
// AllGatherV for one lane (DESIGN section 5). For each rail the agent of the owner's node puts the owner's slices to
// the next node of the path; each later agent forwards what landed in its own window. Landing is direct: the far end
// says once per call that it is inside (its buffer is free), then puts write final places. Inside a node ranks pull
// from the owner or the agent, or agents deliver to all, as the Port prefers.
#pragma once

#include "kernels/pipeline.h"

namespace vcoll::kernels {

template <typename Port>
class AllGatherV {
 public:
  struct Task {
    enum Kind : uint32_t { kSend, kPull, kDeliver, kAwait };
    Kind kind;
    uint32_t queue;
    Edge edge;  // of kSend
    Cursor cursor;
  };

  // tasks: room for plan.maxTasks. All references outlive the call.
  VCOLL_HD AllGatherV(const PlanView& plan, Port& port, const Bases& bases, Task* tasks, uint32_t lane)
      : plan_(plan), port_(port), bases_(bases), tasks_(tasks), lane_(lane) {}

  VCOLL_HD void begin() {
    gate_.begin(port_);
    phase_ = kMoving;
    taskCount_ = 0;
    doneTasks_ = 0;
    memoryIsRead_ = false;
    // Ranks start at different queues, so that they do not all read one owner at once.
    const uint32_t start = plan_.local * plan_.queueCount / plan_.localCount;
    for (uint32_t i = 0; i < plan_.queueCount; ++i) {
      const uint32_t index = start + i < plan_.queueCount ? start + i : start + i - plan_.queueCount;
      const Queue& queue = plan_.queues[index];
      if (queue.lane == lane_ && queue.chunks > 0) addTasks(index, queue);
    }
  }

  // Moves what can move. True if anything did.
  VCOLL_HD bool step() {
    if (phase_ == kMoving) {
      const bool moved = advanceTasks(
          tasks_, taskCount_, doneTasks_, [this](Task& task) { return advance(task); },
          [this](const Task& task) { return finished(task); });
      if (doneTasks_ < taskCount_) return moved;
      phase_ = kFlushing;
    }
    if (phase_ == kFlushing) {
      if (!port_.flushed()) return false;
      port_.leave();
      phase_ = kLeaving;
    }
    if (phase_ == kLeaving) {
      if (!gate_.allLeft(plan_, port_, [this](uint32_t local) { return mustWaitFor(local); })) return false;
      consumeCounters();
      phase_ = kDone;
    }
    return true;
  }
  VCOLL_HD bool done() const { return phase_ == kDone; }

  VCOLL_HD Pending pending() {
    if (phase_ == kFlushing) return {Pending::kFlush, plan_.node, 0, 0, 0, plan_.rank};
    if (phase_ == kLeaving) return {Pending::kLeave, plan_.node, 0, 0, 0, plan_.localRanks[gate_.firstStaying()]};
    for (uint32_t i = doneTasks_; i < taskCount_; ++i) {
      const Pending result = blockedOn(tasks_[i]);
      if (result.what != Pending::kNothing) return result;
    }
    return {Pending::kNothing, 0, 0, 0, 0, plan_.rank};
  }

 private:
  enum Phase : uint32_t { kMoving, kFlushing, kLeaving, kDone };

  VCOLL_HD void addTasks(uint32_t index, const Queue& queue) {
    const bool agent = queue.agentLocal == plan_.local;
    if (queue.ownBytes > 0 || (agent && queue.hasUp)) memoryIsRead_ = true;
    if (agent) {
      if (queue.hasUp) port_.signal(queue.up.peer, Counter::kReady, queue.up.nearId);
      for (uint32_t e = 0; e < queue.downCount; ++e) addTask(Task::kSend, index, plan_.edges[queue.firstDown + e]);
    }
    if (!port_.pulls()) {
      if (agent) addTask(Task::kDeliver, index, Edge{});
    } else if (agent && queue.hasUp) {
      addTask(Task::kAwait, index, Edge{});  // the bytes land where they belong
    } else {
      addTask(Task::kPull, index, Edge{});
    }
  }

  VCOLL_HD void addTask(typename Task::Kind kind, uint32_t index, Edge edge) {
    Task& task = tasks_[taskCount_++];
    task.kind = kind;
    task.queue = index;
    task.edge = edge;
    task.cursor.reset(plan_.queues[index]);
  }

  VCOLL_HD bool finished(const Task& task) const { return task.cursor.chunk() == plan_.queues[task.queue].chunks; }

  // The bytes of the chunk can be read in this node: at the owner if this is the source node, else at the agent.
  VCOLL_HD bool available(const Queue& queue, const ChunkRef& ref, uint64_t chunk) {
    if (!queue.hasUp) return port_.entered(plan_.slices[ref.slice].ownerLocal);
    return port_.arrived(queue.agentLocal, queue.arrivedId) > bases_.arrived[queue.arrivedBase] + chunk;
  }

  VCOLL_HD bool mayAct(const Task& task, const Queue& queue, const ChunkRef& ref) {
    if (task.kind == Task::kSend) {
      if (port_.counter(Counter::kReady, task.edge.nearId) <= bases_.ready[task.edge.nearId]) return false;
      if (!port_.ready(task.edge.peer)) return false;
    }
    if (task.kind == Task::kDeliver && !gate_.allEntered(plan_, port_)) return false;
    return available(queue, ref, task.cursor.chunk());
  }

  VCOLL_HD bool advance(Task& task) {
    const Queue& queue = plan_.queues[task.queue];
    bool moved = false;
    for (int i = 0; i < kBurst && !finished(task); ++i) {
      const ChunkRef ref = task.cursor.peek(plan_, plan_.chunkBytes);
      const Slice& slice = plan_.slices[ref.slice];
      if (task.kind != Task::kPull || slice.owner != plan_.rank) {
        if (!mayAct(task, queue, ref)) return moved;
        const uint32_t from = queue.hasUp ? queue.agentLocal : slice.ownerLocal;
        switch (task.kind) {
          case Task::kSend:
            port_.put(task.edge.peer, from, ref.offset, ref.bytes, task.edge.farId);
            break;
          case Task::kPull:
            port_.pull(slice.owner, from, ref.offset, ref.bytes);
            break;
          case Task::kDeliver:
            port_.deliver(from, ref.offset, ref.bytes);
            break;
          case Task::kAwait:
            port_.landed(slice.owner, ref.offset, ref.bytes);
            break;
        }
      }
      task.cursor.advance(plan_, ref);
      moved = true;
    }
    return moved;
  }

  // Who may still read this rank's window (pull), or write it (push)?
  VCOLL_HD bool mustWaitFor(uint32_t local) const {
    if (port_.pulls()) return memoryIsRead_;
    for (uint32_t q = 0; q < plan_.queueCount; ++q) {
      const Queue& queue = plan_.queues[q];
      if (queue.lane == lane_ && queue.chunks > 0 && queue.agentLocal == local) return true;
    }
    return false;
  }

  VCOLL_HD void consumeCounters() {
    for (uint32_t q = 0; q < plan_.queueCount; ++q) {
      const Queue& queue = plan_.queues[q];
      if (queue.lane != lane_ || queue.chunks == 0) continue;
      if (queue.hasUp) bases_.arrived[queue.arrivedBase] += queue.chunks;
      if (queue.agentLocal != plan_.local) continue;
      for (uint32_t e = 0; e < queue.downCount; ++e) bases_.ready[plan_.edges[queue.firstDown + e].nearId] += 1;
    }
  }

  VCOLL_HD Pending blockedOn(Task& task) {
    const Queue& queue = plan_.queues[task.queue];
    const ChunkRef ref = task.cursor.peek(plan_, plan_.chunkBytes);
    Pending result{Pending::kNothing, queue.node, queue.rail, task.cursor.chunk(), queue.chunks, plan_.rank};
    if (mayAct(task, queue, ref)) return result;
    if (task.kind == Task::kDeliver && !gate_.allEntered(plan_, port_)) {
      result.what = Pending::kEnter;
      result.peer = plan_.localRanks[gate_.firstMissing()];
    } else if (!available(queue, ref, task.cursor.chunk())) {
      result.what = queue.hasUp ? Pending::kArrived : Pending::kEnter;
      if (!queue.hasUp) {
        result.peer = plan_.slices[ref.slice].owner;
      } else {
        result.peer = queue.agentLocal == plan_.local ? queue.up.peer : plan_.localRanks[queue.agentLocal];
      }
    } else {
      result.peer = task.edge.peer;
      result.what = port_.counter(Counter::kReady, task.edge.nearId) <= bases_.ready[task.edge.nearId] ? Pending::kReady
                                                                                                       : Pending::kRoom;
    }
    return result;
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
  bool memoryIsRead_ = false;
};

}  // namespace vcoll::kernels
