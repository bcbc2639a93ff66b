// SPDX-License-Identifier: Apache-2.0
#include "transport/sim/publish_port.h"

#include <fmt/format.h>

#include <algorithm>

namespace vcoll::sim {

using kernels::PublishCounter;
using kernels::PublishHeader;

PublishPort::PublishPort(PublishCluster& cluster, PublishCluster::Lane& lane)
    : cluster_(cluster), lane_(lane), rank_(*lane.owner) {}

uint64_t PublishPort::pushed(uint32_t queue) {
  cluster_.pausePoint(lane_);
  return lane_.pushed[queue];
}

uint64_t PublishPort::begun() {
  cluster_.pausePoint(lane_);
  return rank_.numbers.size();
}

uint64_t PublishPort::stepNumber(uint64_t index) {
  cluster_.pausePoint(lane_);
  if (index >= rank_.numbers.size() || index + kernels::kStepsKept < rank_.numbers.size()) {
    cluster_.fail(fmt::format("rank {} asks for the number of step {}, but has begun {}", rank_.rank, index,
                              rank_.numbers.size()));
    PublishCluster::halt();
  }
  return rank_.numbers[index];
}

bool PublishPort::leased(uint32_t queue, uint32_t copy) {
  cluster_.pausePoint(lane_);
  if (is(PublishMutant::kIgnoreLease)) return false;
  const kernels::PublishQueue& asked = view().queues[queue];
  for (uint32_t i = 0; i < asked.itemCount; ++i) {
    if (cluster_.copyAt(rank_.rank, lane_.rail().firstItem + asked.firstItem + i, copy).leases > 0) return true;
  }
  return false;
}

uint64_t PublishPort::counter(PublishCounter counter, uint32_t id) {
  cluster_.pausePoint(lane_);
  if (is(PublishMutant::kIgnoreOpen) && counter == PublishCounter::kOpen) return UINT64_MAX;
  if (is(PublishMutant::kIgnoreHelped) && counter == PublishCounter::kHelped) return UINT64_MAX / 2;
  const uint64_t value = lane_.counters[static_cast<uint32_t>(counter)][id];
  return is(PublishMutant::kTakenEarly) && counter == PublishCounter::kTaken ? value + 1 : value;
}

PublishPost PublishPort::makePost(PublishPost::Kind kind, uint32_t peer, PublishCounter counter, uint32_t id) const {
  PublishPost post{};
  post.kind = kind;
  post.counter = counter;
  post.id = id;
  post.src = rank_.rank;
  post.dst = peer;
  post.rail = lane_.rail().rail;
  return post;
}

void PublishPort::signal(uint32_t peer, PublishCounter counter, uint32_t id) {
  cluster_.pausePoint(lane_);
  cluster_.network_.post(makePost(PublishPost::kSignal, peer, counter, id));
}

bool PublishPort::ready(uint32_t peer) {
  cluster_.pausePoint(lane_);
  return lane_.putsTo[0][peer] < cluster_.options_.maxPuts;
}

void PublishPort::checkRoom(uint32_t helper, uint32_t peer) const {
  if (lane_.putsTo[helper][peer] >= cluster_.options_.maxPuts) {
    cluster_.fail(fmt::format("rank {} puts to rank {} without room", rank_.rank, peer));
    PublishCluster::halt();
  }
  if (cluster_.topology_.nodeOf(peer) == cluster_.topology_.nodeOf(rank_.rank)) {
    cluster_.fail(fmt::format("rank {} puts to rank {} of its own node", rank_.rank, peer));
    PublishCluster::halt();
  }
}

PublishHeader PublishPort::header(uint64_t place) {
  cluster_.pausePoint(lane_);
  return lane_.headers[place];
}

void PublishPort::putHeader(uint32_t peer, uint64_t place, uint32_t id) {
  cluster_.pausePoint(lane_);
  checkRoom(0, peer);
  PublishPost post = makePost(PublishPost::kHeader, peer, PublishCounter::kArrived, id);
  post.place = place;
  post.bytes = sizeof(PublishHeader);
  cluster_.network_.post(post);
}

void PublishPort::put(uint32_t peer, uint32_t copy, uint64_t offset, uint64_t bytes, uint32_t id) {
  help(0, peer, copy, offset, bytes, id);
}

uint32_t PublishPort::helpers(uint32_t, uint32_t) {
  cluster_.pausePoint(lane_);
  Rng& rng = cluster_.scheduler_.rng();
  const uint32_t oneIn = cluster_.options_.helpersOneIn;
  return oneIn > 0 && rng.oneIn(oneIn) ? static_cast<uint32_t>(rng.between(1, kernels::kMaxHelpers)) : 0;
}

void PublishPort::setHelpers(uint64_t place, uint32_t count) {
  cluster_.pausePoint(lane_);
  if (lane_.unreadHeaders[place] > 0 && lane_.headers[place].helpers != count) {
    cluster_.fail(fmt::format("rank {} changes a header that a put still reads", rank_.rank));
    PublishCluster::halt();
  }
  lane_.headers[place].helpers = count;
}

bool PublishPort::canHelp(uint32_t helper) {
  cluster_.pausePoint(lane_);
  const std::vector<uint32_t>& puts = lane_.putsTo[helper];
  return std::all_of(puts.begin(), puts.end(), [&](uint32_t n) { return n < cluster_.options_.maxPuts; });
}

void PublishPort::help(uint32_t helper, uint32_t peer, uint32_t copy, uint64_t offset, uint64_t bytes, uint32_t id) {
  cluster_.pausePoint(lane_);
  checkRoom(helper, peer);
  const uint32_t counted = is(PublishMutant::kHelperMiscounts) ? 0 : helper;
  PublishPost post = makePost(PublishPost::kPut, peer, kernels::arrivedBy(counted), id);
  post.helper = helper;
  post.copy = copy;
  post.offset = offset;
  post.bytes = bytes;
  const kernels::PublishQueue& queue = view().queues[id];
  const uint64_t begin = offset - copy * view().copyStride;
  bool found = false;
  for (uint32_t i = queue.firstItem; i < queue.firstItem + queue.itemCount && !found; ++i) {
    const kernels::PublishItem& item = view().items[i];
    found = begin >= item.offset && begin + bytes <= item.offset + item.bytes && (bytes > 0 || item.bytes == 0);
    post.item = lane_.rail().firstItem + i;
  }
  if (!found) {
    cluster_.fail(fmt::format("put of rank {} to rank {} is not inside an item of node {} (offset {}, bytes {})",
                              rank_.rank, peer, queue.node, offset, bytes));
    PublishCluster::halt();
  }
  cluster_.network_.post(post);
}

void PublishPort::overwriting(uint32_t item, uint32_t copy) {
  cluster_.pausePoint(lane_);
  const uint32_t index = lane_.rail().firstItem + item;
  std::string reason = cluster_.reasonToKeep(rank_.rank, index, copy);
  if (!reason.empty()) {
    cluster_.fail(std::move(reason));
    PublishCluster::halt();
  }
  PublishCluster::Copy& held = cluster_.copyAt(rank_.rank, index, copy);
  if (is(PublishMutant::kKeepOld)) return;
  const bool first = held.state == PublishCluster::Copy::kNever;
  held.state = PublishCluster::Copy::kOverwritten;
  if (is(PublishMutant::kWholeEarly)) becomes(index, copy, first ? copy : held.step + cluster_.spec().copies);
}

void PublishPort::whole(uint32_t item, uint32_t copy, const PublishHeader& header) {
  cluster_.pausePoint(lane_);
  const uint32_t index = lane_.rail().firstItem + item;
  const auto number = std::find(rank_.numbers.begin(), rank_.numbers.end(), header.step);
  const auto step = static_cast<uint64_t>(number - rank_.numbers.begin());
  if (number == rank_.numbers.end() || cluster_.copyOf(step) != copy || header.item != item ||
      header.checksum != mix64(header.step ^ item)) {
    cluster_.fail(fmt::format("{} becomes whole with a header of step number {}, item {}",
                              cluster_.place(rank_.rank, index, copy), header.step, header.item));
    PublishCluster::halt();
  }
  const kernels::PublishView& v = view();
  for (uint32_t q = 0; q < v.queueCount; ++q) {
    if (item - v.queues[q].firstItem >= v.queues[q].itemCount) continue;
    if (lane_.wholes[q]++ / v.queues[q].itemCount != step) {
      cluster_.fail(fmt::format("{} becomes whole in step {}, {} items came before it",
                                cluster_.place(rank_.rank, index, copy), step, lane_.wholes[q] - 1));
      PublishCluster::halt();
    }
  }
  becomes(index, copy, step);
}

void PublishPort::becomes(uint32_t item, uint32_t copy, uint64_t step) {
  PublishCluster::Copy& held = cluster_.copyAt(rank_.rank, item, copy);
  held.state = PublishCluster::Copy::kWhole;
  held.step = step;
  std::string wrong = cluster_.users_->whole(rank_.rank, item, step);
  if (!wrong.empty()) {
    cluster_.fail(std::move(wrong));
    PublishCluster::halt();
  }
  cluster_.users_->changed(rank_.rank);
}

void PublishPort::broken(uint32_t, const PublishHeader&) {
  cluster_.pausePoint(lane_);
  rank_.broken = true;
  // The lane stops, but what is under way still lands: copies that were given up are not known any more.
  const uint64_t begun = rank_.numbers.size();
  for (uint32_t i = 0; i < view().itemCount; ++i) {
    const uint32_t item = lane_.rail().firstItem + i;
    for (uint32_t copy = 0; copy < cluster_.spec().copies; ++copy) {
      PublishCluster::Copy& held = cluster_.copyAt(rank_.rank, item, copy);
      const bool givenUp = held.state != PublishCluster::Copy::kWhole || held.step + cluster_.spec().copies < begun;
      const bool owner = static_cast<uint32_t>(cluster_.items()[item].owner) == rank_.rank;
      if (givenUp && !owner && held.leases == 0) held.state = PublishCluster::Copy::kOverwritten;
    }
  }
}

}  // namespace vcoll::sim
