// SPDX-License-Identifier: Apache-2.0
#include "topology/publish_plan.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/hash.h"
#include "topology/cost.h"

namespace vcoll {

namespace {

// Long queues travel in chunks of up to this many times chunkBytes, while the path still fills with a quarter of one:
// every chunk costs system calls at both ends of a hop.
constexpr uint64_t kMaxChunkFactor = 8;

}  // namespace

Status checkPublishItem(const vcollPublishItem_t& item, size_t index, uint32_t ranks, const PublishSpec& spec) {
  if (item.owner < 0 || static_cast<uint32_t>(item.owner) >= ranks) {
    return makeError(vcollInvalidArgument, "items[{}].owner = {} is not a rank of this communicator (0..{})", index,
                     item.owner, ranks - 1);
  }
  if (item.reserved != 0) {
    return makeError(vcollInvalidArgument, "items[{}].reserved = {} must be 0", index, item.reserved);
  }
  const uint64_t room = spec.windowBytes - (spec.copies - 1) * spec.copyStride;
  if (item.bytes > room || item.offset > room - item.bytes) {
    return makeError(vcollInvalidArgument, "items[{}]: offset {} + bytes {} is beyond {} ({} of the window)", index,
                     item.offset, item.bytes, room,
                     spec.copies > 1 ? "the part before the last copyStride" : "the end");
  }
  return {};
}

int64_t PublishPlan::find(uint64_t id) const {
  const auto found = std::lower_bound(byId_.begin(), byId_.end(), id,
                                      [this](uint32_t index, uint64_t wanted) { return items()[index].id < wanted; });
  return found != byId_.end() && items()[*found].id == id ? int64_t{*found} : -1;
}

Status PublishPlan::checkManifest() const {
  for (size_t i = 1; i < byId_.size(); ++i) {
    const vcollPublishItem_t& a = items()[byId_[i - 1]];
    const vcollPublishItem_t& b = items()[byId_[i]];
    if (a.id == b.id) {
      return makeError(vcollInvalidArgument, "items: id {} occurs twice (rank {}, offset {}; rank {}, offset {})", a.id,
                       a.owner, a.offset, b.owner, b.offset);
    }
  }
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < items().size(); ++i) {
    if (items()[i].bytes > 0) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [this](uint32_t a, uint32_t b) { return items()[a].offset < items()[b].offset; });
  for (size_t i = 0; i < order.size(); ++i) {
    const vcollPublishItem_t& item = items()[order[i]];
    const uint64_t end = item.offset + item.bytes;
    if (i + 1 < order.size() && items()[order[i + 1]].offset < end) {
      const vcollPublishItem_t& next = items()[order[i + 1]];
      return makeError(vcollInvalidArgument,
                       "items: id {} (rank {}, offset {}, bytes {}) overlaps id {} (rank {}, offset {})", item.id,
                       item.owner, item.offset, item.bytes, next.id, next.owner, next.offset);
    }
    if (spec_.copies > 1 && end - items()[order[0]].offset > spec_.copyStride) {
      return makeError(vcollInvalidArgument,
                       "config->copyStride = {}: item id {} (offset {}, bytes {}) reaches into "
                       "the second copies, which begin at {}",
                       spec_.copyStride, item.id, item.offset, item.bytes, items()[order[0]].offset + spec_.copyStride);
    }
  }
  return {};
}

// Bytes of the queue, and of the rail, that carries most.
uint64_t PublishPlan::longestQueue(const Topology& topology, uint64_t* longestRail) const {
  std::vector<uint64_t> ofQueue(size_t{topology.rails()} * topology.nodes(), 0);
  std::vector<uint64_t> ofRail(topology.rails(), 0);
  for (const vcollPublishItem_t& item : items()) {
    const auto owner = static_cast<uint32_t>(item.owner);
    ofRail[topology.localOf(owner)] += item.bytes;
    ofQueue[size_t{topology.localOf(owner)} * topology.nodes() + topology.nodeOf(owner)] += item.bytes;
  }
  *longestRail = *std::max_element(ofRail.begin(), ofRail.end());
  return *std::max_element(ofQueue.begin(), ofQueue.end());
}

vcollPath_t PublishPlan::choosePath(const Topology& topology) const {
  PathLoad load{};
  load.nodes = topology.nodes();
  load.chunkBytes = spec_.chunkBytes;
  load.maxQueueBytes = longestQueue(topology, &load.maxRailBytes);
  double predicted = 0;
  return vcoll::choosePath(load, kHostTcpProfile, &predicted);
}

Status PublishPlan::build(PublishSpec spec, const Topology& topology, uint32_t rank, PublishPlan* plan) {
  PublishPlan made;
  const auto railOf = [&](const vcollPublishItem_t& item) {
    return topology.localOf(static_cast<uint32_t>(item.owner));
  };
  std::sort(spec.items.begin(), spec.items.end(), [&](const vcollPublishItem_t& a, const vcollPublishItem_t& b) {
    const auto key = [&](const vcollPublishItem_t& item) {
      return std::tuple(railOf(item), topology.nodeOf(static_cast<uint32_t>(item.owner)), item.id);
    };
    return key(a) < key(b);
  });
  made.spec_ = std::move(spec);
  made.byId_.resize(made.items().size());
  std::iota(made.byId_.begin(), made.byId_.end(), 0u);
  std::sort(made.byId_.begin(), made.byId_.end(),
            [&](uint32_t a, uint32_t b) { return made.items()[a].id < made.items()[b].id; });
  VCOLL_TRY(made.checkManifest());
  if (made.spec_.longChunks && topology.nodes() > 1) {
    uint64_t rail = 0;
    const uint64_t quarter = made.longestQueue(topology, &rail) / (4 * uint64_t{topology.nodes() - 1}) / 16 * 16;
    made.spec_.chunkBytes = std::clamp(quarter, made.spec_.chunkBytes, kMaxChunkFactor * made.spec_.chunkBytes);
  }
  made.path_ = made.spec_.path == vcollPathAuto ? made.choosePath(topology) : made.spec_.path;

  const uint64_t chunk = made.spec_.chunkBytes;
  Digest digest;
  for (const vcollPublishItem_t& item : made.items()) {
    for (const uint64_t word : {item.id, static_cast<uint64_t>(item.owner), item.offset, item.bytes}) digest.add(word);
    made.items_.push_back({item.offset, item.bytes, item.bytes == 0 ? 1 : (item.bytes + chunk - 1) / chunk});
  }
  made.digest_ = digest.value();
  const auto count = static_cast<uint32_t>(made.items().size());
  for (uint32_t begin = 0, end = 0; begin < count; begin = end) {
    const uint32_t rail = railOf(made.items()[begin]);
    while (end < count && railOf(made.items()[end]) == rail) ++end;
    if (topology.agent(topology.nodeOf(rank), rail) == rank) made.makeRail(topology, rank, rail, begin, end);
  }
  std::sort(made.peers_.begin(), made.peers_.end());
  made.peers_.erase(std::unique(made.peers_.begin(), made.peers_.end()), made.peers_.end());
  *plan = std::move(made);
  return {};
}

void PublishPlan::makeRail(const Topology& topology, uint32_t rank, uint32_t rail, uint32_t begin, uint32_t end) {
  const uint32_t nodes = topology.nodes();
  const uint32_t node = topology.nodeOf(rank);
  std::vector<kernels::PublishQueue>& queues = queues_.emplace_back();
  std::vector<kernels::Edge>& edges = edges_.emplace_back();
  for (uint32_t first = begin, last = begin; first < end; first = last) {
    const uint32_t source = topology.nodeOf(static_cast<uint32_t>(items()[first].owner));
    while (last < end && topology.nodeOf(static_cast<uint32_t>(items()[last].owner)) == source) ++last;
    const auto index = static_cast<uint32_t>(queues.size());
    kernels::PublishQueue queue{};
    queue.node = source;
    queue.firstItem = first - begin;
    queue.itemCount = last - first;
    queue.firstDown = static_cast<uint32_t>(edges.size());
    // Counters at the near end of a hop: a chain's station has one hop per queue, a star's source one per far node.
    const bool star = path_ == vcollPathStar;
    const uint32_t position = (node + nodes - source) % nodes;
    if (position > 0) {
      const uint32_t near = star ? source : (node + nodes - 1) % nodes;
      queue.hasUp = 1;
      queue.up = {topology.agent(near, rail), star ? node : index, index};
      peers_.push_back(static_cast<int>(queue.up.peer));
    }
    const uint32_t downs = star ? (position == 0 ? nodes - 1 : 0) : (position + 1 < nodes ? 1 : 0);
    for (uint32_t hop = 1; hop <= downs; ++hop) {
      const uint32_t far = (node + hop) % nodes;
      edges.push_back({topology.agent(far, rail), star ? far : index, index});
      peers_.push_back(static_cast<int>(edges.back().peer));
    }
    queue.downCount = downs;
    queues.push_back(queue);
  }
  Rail made{};
  made.rail = rail;
  made.firstItem = begin;
  made.firstPlace = uint64_t{begin} * spec_.copies;
  made.view.items = items_.data() + begin;
  made.view.itemCount = end - begin;
  made.view.queues = queues.data();
  made.view.queueCount = static_cast<uint32_t>(queues.size());
  made.view.edges = edges.data();
  made.view.edgeCount = static_cast<uint32_t>(edges.size());
  made.view.chunkBytes = spec_.chunkBytes;
  made.view.copies = spec_.copies;
  made.view.copyStride = spec_.copyStride;
  rails_.push_back(made);
}

}  // namespace vcoll
