// SPDX-License-Identifier: Apache-2.0
#include "transport/sim/sim_cluster.h"

#include <algorithm>

#include "transport/sim/sim_port.h"

namespace vcoll::sim {

using kernels::Counter;
using kernels::Pending;

namespace {

constexpr uint32_t kReadyKind = static_cast<uint32_t>(Counter::kReady);
constexpr uint32_t kArrivedKind = static_cast<uint32_t>(Counter::kArrived);
constexpr uint32_t kPartialKind = static_cast<uint32_t>(Counter::kPartial);
constexpr uint32_t kCreditKind = static_cast<uint32_t>(Counter::kCredit);
constexpr const char* kPendingNames[] = {"nothing",        "enter of",  "ready of", "arrival from", "room for a put to",
                                         "partial sum of", "credit of", "flush of", "leave of"};
constexpr uint64_t kStallDelays = 1000;

}  // namespace

SimCluster::SimCluster(const SimOptions& options, const Topology& topology, const FlowLayout& layout,
                       uint64_t windowBytes, FiberPool& fibers)
    : options_(options),
      topology_(topology),
      layout_(layout),
      fibers_(fibers),
      scheduler_(options.seed, options.timeOrdered),
      network_(*this) {
  fibers_.reclaim();
  for (uint32_t r = 0; r < topology.ranks(); ++r) {
    auto rank = std::make_unique<Rank>();
    rank->cluster = this;
    rank->rank = r;
    if (options.slowRanksOneIn > 0 && scheduler_.rng().oneIn(options.slowRanksOneIn)) rank->slowness = 20;
    for (auto& window : rank->windows) window.resize(windowBytes);
    for (uint32_t kind = 0; kind < kernels::kCounterKinds; ++kind) {
      rank->counters[kind].assign(layout.ids(), 0);
      rank->bases[kind].assign(layout.ids(), 0);
    }
    rank->bases[kArrivedKind].assign(size_t{kPathKinds} * topology.nodes() * topology.rails(), 0);
    rank->baseView = {rank->bases[kReadyKind].data(), rank->bases[kArrivedKind].data(),
                      rank->bases[kPartialKind].data(), rank->bases[kCreditKind].data()};
    rank->inRings.resize(layout.ids());
    rank->outRings.resize(layout.ids());
    rank->partialsSent.assign(layout.ids(), 0);
    ranks_.push_back(std::move(rank));
  }
}

SimCluster::~SimCluster() { fibers_.reclaim(); }

Status SimCluster::addPlan(const PlanSpec& spec) {
  PlanSet set;
  for (const auto& rank : ranks_) {
    set.ofRank.emplace_back();
    VCOLL_TRY(Plan::build(spec, topology_, layout_, rank->rank, &set.ofRank.back()));
    const kernels::PlanView& view = set.ofRank.back()->view();
    while (rank->lanes.size() < view.laneCount) {
      auto lane = std::make_unique<Lane>();
      lane->cluster = this;
      lane->rank = rank->rank;
      lane->index = static_cast<uint32_t>(rank->lanes.size());
      lane->putsTo.assign(topology_.ranks(), 0);
      rank->lanes.push_back(std::move(lane));
    }
    for (const auto& lane : rank->lanes) lane->taskRoom = std::max(lane->taskRoom, view.maxTasks);
  }
  for (const vcollSegment_t& segment : spec.segments) {
    if (segment.bytes > 0) set.sorted.push_back(segment);
  }
  std::sort(set.sorted.begin(), set.sorted.end(),
            [](const vcollSegment_t& a, const vcollSegment_t& b) { return a.offset < b.offset; });
  plans_.push_back(std::move(set));
  return {};
}

const vcollSegment_t* SimCluster::segmentOf(uint32_t plan, uint64_t offset, uint64_t bytes) const {
  const std::vector<vcollSegment_t>& sorted = plans_[plan].sorted;
  auto after = std::upper_bound(sorted.begin(), sorted.end(), offset,
                                [](uint64_t value, const vcollSegment_t& s) { return value < s.offset; });
  if (bytes == 0 || after == sorted.begin()) return nullptr;
  const vcollSegment_t& segment = *(after - 1);
  return offset + bytes <= segment.offset + segment.bytes ? &segment : nullptr;
}

Ring& SimCluster::ring(std::vector<std::unique_ptr<Ring>>& rings, uint32_t id) {
  std::unique_ptr<Ring>& ring = rings[id];
  if (ring == nullptr) {
    ring = std::make_unique<Ring>();
    ring->slotBytes = layout_.slotBytesOfId(id);
    ring->bytes.assign(ring->slotBytes * layout_.slots, std::byte{0xee});
    ring->states.assign(layout_.slots, Ring::kFree);
  }
  return *ring;
}

std::string SimCluster::run(const std::vector<Call>& calls, User& user) {
  calls_ = calls;
  user_ = &user;
  for (const auto& rank : ranks_) {
    user.prepare(rank->rank, 0);
    scheduler_.after(delay(*rank), rank.get(), 0);
  }
  while (failure_.empty() && scheduler_.runOne()) {
    if (scheduler_.eventCount() > options_.maxEvents) {
      fail(fmt::format("no end after {} events{}", scheduler_.eventCount(), describeWaiting()));
    }
  }
  if (failure_.empty() && finishedRanks_ < ranks_.size()) {
    deadlocked_ = true;
    failure_ = "deadlock: no lane can move and nothing is under way" + describeWaiting();
  }
  for (uint32_t r = 0; failure_.empty() && r < ranks_.size(); ++r) failure_ = checkCounters(r, true);
  return failure_;
}

void SimCluster::Rank::fire(uint32_t) { cluster->startCall(*this); }

void SimCluster::startCall(Rank& rank) {
  rank.inside = true;
  rank.gathered = 0;
  rank.lanesInside = plan(calls_[rank.call].plan, rank.rank).view().laneCount;
  for (uint32_t l = 0; l < rank.lanesInside; ++l) {
    Lane& lane = *rank.lanes[l];
    lane.fiber = fibers_.take();
    lane.fiber->start(laneBody, &lane);
    scheduler_.after(delay(rank), &lane, 0);
  }
}

void SimCluster::Lane::fire(uint32_t) {
  fiber->resume();
  if (fiber->ended()) {
    cluster->fibers_.giveBack(fiber);
    fiber = nullptr;
    cluster->endLane(*this);
  }
}

void SimCluster::laneBody(void* argument) {
  Lane& lane = *static_cast<Lane*>(argument);
  SimCluster& cluster = *lane.cluster;
  if (cluster.calls_[cluster.ranks_[lane.rank]->call].op == Call::kAllGatherV) {
    cluster.drive<kernels::AllGatherV<SimPort>>(lane, lane.gatherTasks);
  } else {
    cluster.drive<kernels::ReduceScatterV<SimPort>>(lane, lane.reduceTasks);
  }
}

template <typename Machine, typename Task>
void SimCluster::drive(Lane& lane, std::unique_ptr<Task[]>& tasks) {
  if (tasks == nullptr) tasks.reset(new Task[lane.taskRoom]);
  Rank& rank = *ranks_[lane.rank];
  SimPort port(*this, lane);
  Machine machine(plan(calls_[rank.call].plan, lane.rank).view(), port, rank.baseView, tasks.get(), lane.index);
  lane.machine = &machine;
  lane.pending = [](void* m) { return static_cast<Machine*>(m)->pending(); };
  lane.inCall = true;
  machine.begin();
  while (true) {
    lane.changed = false;
    const bool moved = machine.step();
    if (machine.done()) break;
    if (!moved && !lane.changed) {
      lane.blocked = true;
      Fiber::suspend();
    } else {
      pausePoint(lane);
    }
  }
  lane.inCall = false;
}

void SimCluster::endLane(Lane& lane) {
  Rank& rank = *ranks_[lane.rank];
  if (--rank.lanesInside > 0) return;
  rank.inside = false;
  fail(checkCounters(rank.rank, false));
  fail(checkGathered(rank));
  fail(user_->returned(rank.rank, rank.call));
  if (!failure_.empty()) return;
  if (++rank.call == calls_.size()) {
    ++finishedRanks_;
    return;
  }
  user_->prepare(rank.rank, rank.call);
  scheduler_.after(scheduler_.rng().oneIn(2) ? 0 : delay(rank), &rank, 0);
}

void SimCluster::wake(uint32_t rank, uint32_t lane) {
  Lane& waiter = *ranks_[rank]->lanes[lane];
  waiter.changed = true;
  if (!waiter.blocked) return;
  waiter.blocked = false;
  scheduler_.after(delay(*ranks_[rank]), &waiter, 0);
}

void SimCluster::wakeNode(uint32_t rank, uint32_t lane) {
  for (const uint32_t member : topology_.members(topology_.nodeOf(rank))) wake(member, lane);
}

uint64_t SimCluster::delay(const Rank& rank) {
  Rng& rng = scheduler_.rng();
  const uint64_t usual = rng.below(options_.maxDelay) * rank.slowness;
  return options_.stallOneIn > 0 && rng.oneIn(options_.stallOneIn) ? usual + options_.maxDelay * kStallDelays : usual;
}

void SimCluster::pausePoint(Lane& lane) {
  // Outside a fiber: pending() of a report.
  if (Fiber::current() != nullptr && scheduler_.rng().oneIn(options_.yieldOneIn)) pause(lane);
}

void SimCluster::pause(Lane& lane) {
  scheduler_.after(delay(*ranks_[lane.rank]), &lane, 0);
  Fiber::suspend();
}

void SimCluster::stop(std::string text) {
  fail(std::move(text));
  while (Fiber::current() != nullptr) Fiber::suspend();
}

std::string SimCluster::describeWaiting() {
  std::string text;
  for (const auto& rank : ranks_) {
    for (const auto& lane : rank->lanes) {
      if (!lane->inCall) continue;
      const Pending pending = lane->pending(lane->machine);
      text += fmt::format(
          "\n  rank {} lane {} call {} ({}): waits for {} rank {}, queue (node {}, rail {}), chunk {} of {}",
          rank->rank, lane->index, rank->call,
          calls_[rank->call].op == Call::kAllGatherV ? "AllGatherV" : "ReduceScatterV", kPendingNames[pending.what],
          pending.peer, pending.node, pending.rail, pending.chunk, pending.chunks);
    }
  }
  return text;
}

std::string SimCluster::checkGathered(const Rank& rank) const {
  const Call& made = calls_[rank.call];
  if (made.op != Call::kAllGatherV || !options_.pulls) return {};
  uint64_t wanted = 0;
  for (const vcollSegment_t& segment : plans_[made.plan].sorted) {
    if (static_cast<uint32_t>(segment.owner) != rank.rank) wanted += segment.bytes;
  }
  if (rank.gathered == wanted) return {};
  return fmt::format("rank {} gathered {} bytes of {} in call {}", rank.rank, rank.gathered, wanted, rank.call);
}

std::string SimCluster::checkCounters(uint32_t index, bool settled) const {
  const Rank& rank = *ranks_[index];
  const auto check = [&](const char* what, uint32_t id, uint64_t used, uint64_t counted) -> std::string {
    if (settled ? used == counted : used <= counted) return {};
    return fmt::format("rank {}, {} counter {}: calls used {}, counted {}{}", index, what, id, used, counted,
                       settled ? " at the end" : "");
  };
  std::string bad;
  const auto note = [&](std::string text) {
    if (bad.empty()) bad = std::move(text);
  };
  for (const PlanSet& set : plans_) {
    const kernels::PlanView& view = set.ofRank[index]->view();
    for (uint32_t q = 0; q < view.queueCount; ++q) {
      const kernels::Queue& queue = view.queues[q];
      if (queue.hasUp) {
        const Rank& agent = *ranks_[view.localRanks[queue.agentLocal]];
        if (options_.mutant != Mutant::kSharedCounter) {
          note(check("arrived", queue.arrivedId, rank.bases[kArrivedKind][queue.arrivedBase],
                     agent.counters[kArrivedKind][queue.arrivedId]));
        }
      }
      if (queue.agentLocal != view.local) continue;
      for (uint32_t e = 0; e < queue.downCount; ++e) {
        const uint32_t id = view.edges[queue.firstDown + e].nearId;
        note(check("ready", id, rank.bases[kReadyKind][id], rank.counters[kReadyKind][id]));
        note(check("partial", id, rank.bases[kPartialKind][id], rank.counters[kPartialKind][id]));
      }
      if (queue.hasUp) {  // credits come back later than they are used: the other way round
        const uint32_t id = queue.up.farId;
        note(check("credit", id, rank.counters[kCreditKind][id], rank.bases[kCreditKind][id]));
      }
    }
  }
  return bad;
}

}  // namespace vcoll::sim
