// SPDX-License-Identifier: Apache-2.0
#include "transport/sim/timed_publish.h"

#include <memory>
#include <numeric>
#include <queue>
#include <utility>

#include "kernels/publish.h"

namespace vcoll::sim {

namespace {

using kernels::PublishCounter;
using kernels::PublishHeader;

constexpr auto kPutTime = static_cast<Picoseconds>(kLanePutUs * kPicosecondsPerUs);
constexpr auto kLookTime = static_cast<Picoseconds>(kLaneLookUs * kPicosecondsPerUs);

class Cluster;

// The Port of kernels/publish.h on one node: it counts time, not bytes.
class TimedPort {
 public:
  TimedPort(Cluster& cluster, uint32_t node, const kernels::PublishView& view, uint32_t nodes);

  uint64_t pushed(uint32_t queue) const { return view_.queues[queue].itemCount; }
  uint64_t begun() const { return 1; }
  uint64_t stepNumber(uint64_t index) const { return index; }
  bool leased(uint32_t, uint32_t) const { return false; }
  uint64_t counter(PublishCounter counter, uint32_t id) const { return counters_[static_cast<uint32_t>(counter)][id]; }
  void signal(uint32_t peer, PublishCounter counter, uint32_t id);
  bool ready(uint32_t peer);
  PublishHeader header(uint64_t place) const { return headers_[place]; }
  void putHeader(uint32_t peer, uint64_t place, uint32_t id);
  void put(uint32_t peer, uint32_t copy, uint64_t offset, uint64_t bytes, uint32_t id);
  void overwriting(uint32_t, uint32_t) {}
  void whole(uint32_t, uint32_t, const PublishHeader&) { ++wholes; }
  void broken(uint32_t, const PublishHeader&) {}

  Picoseconds now = 0;
  Picoseconds roomAt = kNever;  // if the last pass found none
  uint64_t wholes = 0;
  uint64_t puts = 0;

 private:
  friend class Cluster;
  void post(uint32_t peer, uint64_t bytes, uint32_t id);

  Cluster& cluster_;
  const uint32_t node_;
  const kernels::PublishView& view_;
  std::vector<uint64_t> counters_[kernels::kPublishCounterKinds];
  std::vector<PublishHeader> headers_;
};

// All nodes. The lane whose next pass is earliest runs first, so that what it sees has all been sent.
class Cluster {
 public:
  Cluster(const LinkProfile& profile, uint32_t nodes) : network_(nodes, profile), nodes_(nodes) {}
  Status build(const PublishSpec& spec);
  TimedPublish run();

 private:
  friend class TimedPort;
  using Machine = kernels::Publish<TimedPort>;
  struct Lane {
    PublishPlan plan;
    std::unique_ptr<TimedPort> port;
    std::unique_ptr<Machine> machine;
    std::vector<Machine::QueueState> states;
    std::vector<Machine::Walk> sent;
    Picoseconds wake = kNever;
  };

  void wakeAt(uint32_t node, Picoseconds time) {
    if (time >= lanes_[node].wake) return;
    lanes_[node].wake = time;
    passes_.emplace(time, node);
  }
  void pass(uint32_t node, Picoseconds time);

  TimedNetwork network_;
  const uint32_t nodes_;
  std::vector<Lane> lanes_;
  using Pass = std::pair<Picoseconds, uint32_t>;
  std::priority_queue<Pass, std::vector<Pass>, std::greater<>> passes_;
  TimedPublish result_;
};

TimedPort::TimedPort(Cluster& cluster, uint32_t node, const kernels::PublishView& view, uint32_t nodes)
    : cluster_(cluster), node_(node), view_(view), headers_(size_t{view.copies} * view.itemCount) {
  for (auto& counters : counters_) counters.assign(nodes, 0);
  for (uint32_t q = 0; q < view.queueCount; ++q) {
    const kernels::PublishQueue& queue = view.queues[q];
    for (uint32_t i = queue.firstItem; i < queue.firstItem + queue.itemCount && !queue.hasUp; ++i) {
      headers_[i] = {0, 0, i, kernels::kPublishMagic, 0, 0};
    }
  }
}

void TimedPort::signal(uint32_t peer, PublishCounter counter, uint32_t id) {
  cluster_.wakeAt(peer, cluster_.network_.signal(peer, now, static_cast<uint32_t>(counter), id));
}

bool TimedPort::ready(uint32_t) {
  const Picoseconds at = cluster_.network_.roomAt(node_);
  if (at <= now) return true;
  roomAt = at;
  return false;
}

void TimedPort::post(uint32_t peer, uint64_t bytes, uint32_t id) {
  now += kPutTime;
  ++puts;
  constexpr auto kArrived = static_cast<uint32_t>(PublishCounter::kArrived);
  cluster_.wakeAt(peer, cluster_.network_.put(node_, peer, bytes, now, kArrived, id));
}

void TimedPort::putHeader(uint32_t peer, uint64_t place, uint32_t id) {
  cluster_.lanes_[peer].port->headers_[place] = headers_[place];
  post(peer, sizeof(PublishHeader), id);
}

void TimedPort::put(uint32_t peer, uint32_t, uint64_t, uint64_t bytes, uint32_t id) { post(peer, bytes, id); }

Status Cluster::build(const PublishSpec& spec) {
  std::vector<uint64_t> nodeKeys(nodes_);
  std::iota(nodeKeys.begin(), nodeKeys.end(), uint64_t{0});
  const Topology topology(nodeKeys);
  lanes_.resize(nodes_);
  for (uint32_t node = 0; node < nodes_; ++node) {
    Lane& lane = lanes_[node];
    VCOLL_TRY(PublishPlan::build(spec, topology, node, &lane.plan));
    const kernels::PublishView& view = lane.plan.rails().front().view;
    lane.port = std::make_unique<TimedPort>(*this, node, view, nodes_);
    lane.states.resize(view.queueCount);
    lane.sent.resize(view.edgeCount);
    lane.machine = std::make_unique<Machine>(view, *lane.port, lane.states.data(), lane.sent.data());
    wakeAt(node, 0);
  }
  return {};
}

void Cluster::pass(uint32_t node, Picoseconds time) {
  Lane& lane = lanes_[node];
  TimedPort& port = *lane.port;
  while (network_.nextArrival(node) <= time) {
    const TimedNetwork::Arrival arrival = network_.take(node);
    ++port.counters_[arrival.counter][arrival.id];
  }
  const uint64_t wholes = port.wholes;
  port.now = time + kLookTime * lane.states.size();
  port.roomAt = kNever;
  const bool moved = lane.machine->step();
  ++result_.passes;
  if (port.wholes > wholes) result_.ms = static_cast<double>(port.now) / kPicosecondsPerUs / 1e3;
  wakeAt(node, moved ? port.now : std::max(port.now, std::min(network_.nextArrival(node), port.roomAt)));
}

TimedPublish Cluster::run() {
  while (!passes_.empty()) {
    const auto [time, node] = passes_.top();
    passes_.pop();
    if (lanes_[node].wake != time) continue;  // it was woken earlier
    lanes_[node].wake = kNever;
    pass(node, time);
  }
  for (const Lane& lane : lanes_) result_.puts += lane.port->puts;
  return result_;
}

}  // namespace

Status timePublish(const PublishSpec& spec, uint32_t nodes, const LinkProfile& profile, TimedPublish* result) {
  if (spec.items.empty()) return makeError(vcollInvalidArgument, "no items to publish");
  Cluster cluster(profile, nodes);
  VCOLL_TRY(cluster.build(spec));
  *result = cluster.run();
  return {};
}

}  // namespace vcoll::sim
