// SPDX-License-Identifier: Apache-2.0
#include "transport/sim/publish_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "transport/sim/publish_port.h"

namespace vcoll::sim {

using kernels::Pending;
using kernels::PublishCounter;
using kernels::PublishHeader;

namespace {

constexpr uint64_t kStallDelays = 1000;

const char* nameOf(Pending::What what) {
  switch (what) {
    case Pending::kReady:
      return "openness of";
    case Pending::kArrived:
      return "arrival from";
    case Pending::kRoom:
      return "room for a put to";
    case Pending::kTaken:
      return "the step taken by";
    default:
      return "its own program, or";
  }
}

}  // namespace

PublishCluster::PublishCluster(const PublishOptions& options, const Topology& topology, FiberPool& fibers)
    : options_(options),
      topology_(topology),
      fibers_(fibers),
      scheduler_(options.seed, options.timeOrdered),
      network_(*this) {
  fibers_.reclaim();
}

PublishCluster::~PublishCluster() { fibers_.reclaim(); }

Status PublishCluster::build(const PublishSpec& spec) {
  for (uint32_t r = 0; r < topology_.ranks(); ++r) {
    ranks_.push_back(std::make_unique<Rank>());
    Rank& rank = *ranks_.back();
    rank.rank = r;
    VCOLL_TRY(PublishPlan::build(spec, topology_, r, &rank.plan));
    if (options_.slowRanksOneIn > 0 && scheduler_.rng().oneIn(options_.slowRanksOneIn)) rank.slowness = 20;
    rank.window.resize(spec.windowBytes);
    rank.copies.resize(spec.copies * spec.items.size());
    for (uint32_t i = 0; i < items().size(); ++i) {
      const uint64_t chunks = items()[i].bytes / spec.chunkBytes + 1;
      for (uint32_t copy = 0; copy < spec.copies; ++copy) copyAt(r, i, copy).unread.resize(chunks);
    }
    rank.byRail.resize(topology_.rails());
    makeLanes(rank);
  }
  return {};
}

void PublishCluster::makeLanes(Rank& rank) {
  for (const PublishPlan::Rail& rail : rank.plan.rails()) {
    rank.lanes.push_back(std::make_unique<Lane>());
    Lane& lane = *rank.lanes.back();
    rank.byRail[rail.rail] = &lane;
    lane.cluster = this;
    lane.owner = &rank;
    lane.index = static_cast<uint32_t>(rank.lanes.size() - 1);
    for (auto& puts : lane.putsTo) puts.assign(topology_.ranks(), 0);
    for (auto& counters : lane.counters) counters.assign(std::max(topology_.nodes(), rail.view.queueCount), 0);
    lane.headers.resize(size_t{spec().copies} * rail.view.itemCount);
    lane.unreadHeaders.resize(lane.headers.size());
    lane.pushed.resize(rail.view.queueCount);
    lane.wholes.resize(rail.view.queueCount);
    lane.states.resize(rail.view.queueCount);
    lane.sent.resize(rail.view.edgeCount);
    lane.port = std::make_unique<PublishPort>(*this, lane);
    lane.machine = std::make_unique<Machine>(lane.rail().view, *lane.port, lane.states.data(), lane.sent.data());
  }
}

bool PublishCluster::holds(uint32_t rank, uint32_t item) const {
  const auto owner = static_cast<uint32_t>(items()[item].owner);
  const uint32_t node = topology_.nodeOf(rank);
  return node == topology_.nodeOf(owner) ? rank == owner : rank == topology_.agent(node, topology_.localOf(owner));
}

std::string PublishCluster::run(PublishUsers& users) {
  users_ = &users;
  for (const auto& rank : ranks_) {
    for (const auto& lane : rank->lanes) {
      lane->fiber = fibers_.take();
      lane->fiber->start(laneBody, lane.get());
      scheduler_.after(delay(rank->rank), lane.get(), 0);
    }
  }
  while (failure_.empty() && scheduler_.runOne()) {
    if (options_.deadRank != kNoRank && scheduler_.eventCount() == options_.deathAt) died_ = true;
    if (scheduler_.eventCount() > options_.maxEvents) {
      fail(fmt::format("no end after {} events", scheduler_.eventCount()));
    }
  }
  return failure_;
}

void PublishCluster::Lane::fire(uint32_t) {
  if (!cluster->dead(owner->rank)) fiber->resume();
}

void PublishCluster::laneBody(void* argument) {
  Lane& lane = *static_cast<Lane*>(argument);
  PublishCluster& cluster = *lane.cluster;
  while (true) {
    lane.changed = false;
    const bool moved = lane.machine->step();
    uint64_t finished = UINT64_MAX;
    for (uint32_t q = 0; q < lane.rail().view.queueCount; ++q) finished = std::min(finished, lane.machine->finished(q));
    if (finished != lane.finished) {
      lane.finished = finished;
      cluster.users_->changed(lane.owner->rank);
    }
    if (!moved && !lane.changed) {
      lane.blocked = true;
      Fiber::suspend();
    } else {
      cluster.pausePoint(lane);
    }
  }
}

void PublishCluster::wake(Lane& lane) {
  lane.changed = true;
  if (!lane.blocked) return;
  lane.blocked = false;
  scheduler_.after(delay(lane.owner->rank), &lane, 0);
}

void PublishCluster::wakeAll(uint32_t rank) {
  for (const auto& lane : ranks_[rank]->lanes) wake(*lane);
}

uint64_t PublishCluster::delay(uint32_t rank) {
  Rng& rng = scheduler_.rng();
  const uint64_t usual = rng.below(options_.maxDelay) * ranks_[rank]->slowness;
  return options_.stallOneIn > 0 && rng.oneIn(options_.stallOneIn) ? usual + options_.maxDelay * kStallDelays : usual;
}

void PublishCluster::pausePoint(Lane& lane) {
  // Outside a fiber: a report.
  if (Fiber::current() != nullptr && scheduler_.rng().oneIn(options_.yieldOneIn)) pause(lane);
}

void PublishCluster::pause(Lane& lane) {
  scheduler_.after(delay(lane.owner->rank), &lane, 0);
  Fiber::suspend();
}

bool PublishCluster::mayBegin(uint32_t rank) const {
  if (options_.mutant == PublishMutant::kIgnoreFinished) return true;
  const uint64_t next = ranks_[rank]->numbers.size();
  return std::all_of(ranks_[rank]->lanes.begin(), ranks_[rank]->lanes.end(),
                     [&](const auto& lane) { return lane->finished + spec().copies >= next + 1; });
}

void PublishCluster::begin(uint32_t rank, uint64_t number) {
  ranks_[rank]->numbers.push_back(number);
  wakeAll(rank);
}

void PublishCluster::startWriting(uint32_t rank, uint32_t item, uint64_t step) {
  Copy& held = copyAt(rank, item, copyOf(step));
  for (const uint32_t puts : held.unread) {
    if (puts > 0) fail(place(rank, item, copyOf(step)) + " is overwritten by its owner while a put still reads it");
  }
  fail(reasonToKeep(rank, item, copyOf(step)));
  held.state = Copy::kOverwritten;
}

void PublishCluster::push(uint32_t rank, uint32_t item) {
  Rank& owner = *ranks_[rank];
  Lane& own = lane(rank, topology_.localOf(rank));
  const kernels::PublishView& view = own.rail().view;
  const uint64_t step = owner.numbers.size() - 1;
  const uint32_t local = item - own.rail().firstItem;
  for (uint32_t q = 0; q < view.queueCount; ++q) {
    const kernels::PublishQueue& queue = view.queues[q];
    if (local - queue.firstItem >= queue.itemCount) continue;
    const uint64_t at = uint64_t{copyOf(step)} * view.itemCount + queue.firstItem + own.pushed[q]++ % queue.itemCount;
    if (own.unreadHeaders[at] > 0) fail(fmt::format("rank {} overwrites a header that a put still reads", rank));
    if (options_.mutant == PublishMutant::kStaleHeader) {
      own.headers[at].step = owner.numbers[step];
      own.headers[at].magic = kernels::kPublishMagic;
    } else {
      own.headers[at] = {owner.numbers[step], mix64(owner.numbers[step] ^ local), local, kernels::kPublishMagic, 0, 0};
    }
  }
  Copy& held = copyAt(rank, item, copyOf(step));
  held.state = Copy::kWhole;
  held.step = step;
  wake(own);
}

bool PublishCluster::isWhole(uint32_t rank, uint32_t item, uint64_t step) const {
  const Copy& held = copy(rank, item, step);
  return held.state == Copy::kWhole && held.step == step;
}

void PublishCluster::lease(uint32_t rank, uint32_t item, uint64_t step) { ++copyAt(rank, item, copyOf(step)).leases; }

void PublishCluster::release(uint32_t rank, uint32_t item, uint64_t step) {
  --copyAt(rank, item, copyOf(step)).leases;
  wakeAll(rank);
}

std::byte* PublishCluster::memory(uint32_t rank, const PublishPost& post) {
  if (post.kind == PublishPost::kPut) return window(rank) + post.offset;
  return reinterpret_cast<std::byte*>(&lane(rank, post.rail).headers[post.place]);
}

uint32_t& PublishCluster::unread(const PublishPost& post) {
  if (post.bytes == 0) return readsNothing_;
  if (post.kind == PublishPost::kPut) return copyAt(post.src, post.item, post.copy).unread[chunkOf(post)];
  return lane(post.src, post.rail).unreadHeaders[post.place];
}

void PublishCluster::checkLanding(const PublishPost& post) {
  if (post.kind == PublishPost::kPut) {
    if (static_cast<uint32_t>(items()[post.item].owner) == post.dst) fail("a put lands at the item's owner");
    // Earlier chunks of this version may still be read.
    if (copyAt(post.dst, post.item, post.copy).unread[chunkOf(post)] > 0) {
      fail(place(post.dst, post.item, post.copy) + " is overwritten while a put still reads it");
    }
    return fail(reasonToKeep(post.dst, post.item, post.copy));
  }
  if (lane(post.dst, post.rail).unreadHeaders[post.place] > 0) {
    fail(fmt::format("rank {} overwrites a header of rank {} that a put still reads", post.src, post.dst));
  }
}

void PublishCluster::toOtherCopy(PublishPost* post) const {
  if (spec().copies == 1) return;
  post->offset = post->copy == 0 ? post->offset + spec().copyStride : post->offset - spec().copyStride;
  post->copy = 1 - post->copy;
}

std::string PublishCluster::place(uint32_t rank, uint32_t item, uint32_t copy) const {
  return fmt::format("rank {}'s copy {} of item {} (owner {})", rank, copy, item, items()[item].owner);
}

std::string PublishCluster::reasonToKeep(uint32_t rank, uint32_t item, uint32_t copy) {
  const Copy& held = copyAt(rank, item, copy);
  const uint64_t begun = ranks_[rank]->numbers.size();
  if (held.leases > 0) return place(rank, item, copy) + " is overwritten under a lease";
  if (held.state == Copy::kWhole && held.step + spec().copies >= begun) {
    return fmt::format("{} is overwritten, but holds step {} and only {} steps are begun", place(rank, item, copy),
                       held.step, begun);
  }
  if (begun <= copy) return place(rank, item, copy) + " is written before its step has begun";
  return {};
}

std::string PublishCluster::checkFinished(uint64_t steps) {
  for (const auto& rank : ranks_) {
    for (const auto& lane : rank->lanes) {
      const kernels::PublishView& view = lane->rail().view;
      if (lane->finished != steps) return "deadlock: nothing is under way" + describeWaiting(steps);
      for (uint32_t q = 0; q < view.queueCount; ++q) {
        const kernels::PublishQueue& queue = view.queues[q];
        uint64_t records = 0;
        for (uint32_t i = 0; i < queue.itemCount; ++i) records += 1 + view.items[queue.firstItem + i].chunks;
        uint64_t arrived = 0;
        for (uint32_t carrier = 0; carrier <= kernels::kMaxHelpers; ++carrier) {
          arrived += lane->counters[static_cast<uint32_t>(kernels::arrivedBy(carrier))][q];
        }
        if (arrived != (queue.hasUp ? records * steps : 0)) {
          return fmt::format("rank {}, queue of node {}: {} arrivals counted, {} records in {} steps", rank->rank,
                             queue.node, arrived, records, steps);
        }
        for (uint32_t e = queue.firstDown; e < queue.firstDown + queue.downCount; ++e) {
          for (const PublishCounter counter : {PublishCounter::kOpen, PublishCounter::kTaken}) {
            const uint64_t value = lane->counters[static_cast<uint32_t>(counter)][view.edges[e].nearId];
            if (value == steps) continue;
            return fmt::format("rank {}, counter {} of the hop to rank {}: {} in {} steps", rank->rank,
                               static_cast<uint32_t>(counter), view.edges[e].peer, value, steps);
          }
        }
      }
    }
  }
  return {};
}

std::string PublishCluster::describeWaiting(uint64_t steps) {
  std::string text;
  for (const auto& rank : ranks_) {
    for (const auto& lane : rank->lanes) {
      for (uint32_t q = 0; q < lane->rail().view.queueCount; ++q) {
        if (lane->machine->finished(q) == steps) continue;
        const Pending pending = lane->machine->pending(q, lane->machine->finished(q) + 1);
        text += fmt::format(
            "\n  rank {} rail {}, {} steps begun, {} finished by queue (node {}): waits for {} rank {}, "
            "item {} of {}",
            rank->rank, lane->rail().rail, rank->numbers.size(), lane->machine->finished(q), pending.node,
            nameOf(pending.what), pending.peer, pending.chunk, pending.chunks);
      }
    }
  }
  return text;
}

}  // namespace vcoll::sim
