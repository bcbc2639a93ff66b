// SPDX-License-Identifier: Apache-2.0
#include "topology/plan.h"

#include <algorithm>
#include <numeric>

#include "base/hash.h"
#include "base/types.h"
#include "topology/cost.h"

namespace vcoll {

namespace {

constexpr uint64_t kSliceAlign = 16;
// Below twice this a segment rides one rail: cutting it costs more than the rails gain.
constexpr uint64_t kMinSliceBytes = 16384;
// Between nodes every slice costs system calls and hand-overs at both ends, so it has more bytes there.
constexpr uint64_t kMinSliceBytesAcross = 131072;
// Long queues travel in chunks of up to this many times chunkBytes, while the path still fills with a quarter of one.
constexpr uint64_t kMaxChunkFactor = 4;

uint64_t ceilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// Slots of one path: in and out rings share the budget.
uint64_t slotBytesWithin(uint64_t budget, uint32_t ids, uint32_t slots, uint64_t chunkBytes) {
  const uint64_t share = budget / (2 * uint64_t{ids} * slots);
  return std::min(chunkBytes, std::max<uint64_t>(1024, share / 1024 * 1024));
}

// The far and near ids of a hop of queue (source, rail), between the agents of nodes `near` and `far`.
struct HopIds {
  uint32_t nearId;
  uint32_t farId;
};
HopIds hopIds(const Topology& topology, const FlowLayout& layout, vcollPath_t path, uint32_t source, uint32_t rail,
              uint32_t near, uint32_t far) {
  const uint32_t section = path == vcollPathStar ? 0 : layout.idsPerPath;
  const uint32_t width = topology.maxRailSlots();
  // On a chain the neighbour towards the source is fixed, so the source tells hops apart at both ends. A star's source
  // has one hop per far node.
  const uint32_t keyAtNear = path == vcollPathStar ? far : source;
  return {section + keyAtNear * width + topology.railSlot(near, rail),
          section + source * width + topology.railSlot(far, rail)};
}

}  // namespace

uint64_t FlowLayout::ringOffset(uint32_t id) const {
  if (id < idsPerPath) return uint64_t{id} * slots * starSlotBytes;
  return uint64_t{idsPerPath} * slots * starSlotBytes + uint64_t{id - idsPerPath} * slots * chainSlotBytes;
}

FlowLayout makeFlowLayout(const Topology& topology, uint32_t slots, uint64_t chunkBytes) {
  FlowLayout layout;
  layout.slots = slots;
  if (topology.nodes() == 1) return layout;  // nothing travels between nodes
  layout.idsPerPath = topology.nodes() * topology.maxRailSlots();
  layout.chainSlotBytes = slotBytesWithin(kRingBudget / 3 * 2, layout.idsPerPath, slots, chunkBytes);
  layout.starSlotBytes = slotBytesWithin(kRingBudget / 3, layout.idsPerPath, slots, chunkBytes);
  return layout;
}

Status Plan::build(const PlanSpec& spec, const Topology& topology, const FlowLayout& layout, uint32_t rank,
                   std::unique_ptr<Plan>* plan) {
  std::unique_ptr<Plan> made(new Plan);
  made->spec_ = spec;
  VCOLL_TRY(made->check(topology));
  made->makeSlices(topology);
  made->choose(topology);
  made->makeQueues(topology, layout, rank);
  *plan = std::move(made);
  return {};
}

Status Plan::check(const Topology& topology) {
  if (spec_.lanes < 1 || spec_.lanes > kMaxLanes) {
    return makeError(vcollInvalidArgument, "lanes = {} is not in 1..{}", spec_.lanes, kMaxLanes);
  }
  if (spec_.chunkBytes < 1024 || spec_.chunkBytes % kSliceAlign != 0 || spec_.chunkBytes > (1u << 30)) {
    return makeError(vcollInvalidArgument, "chunkBytes = {} is not a multiple of 16 in 1024..2^30", spec_.chunkBytes);
  }
  if (typeInfo(spec_.type) == nullptr) {
    return makeError(vcollInvalidArgument, "type = {} is not a vcollDataType_t", static_cast<int>(spec_.type));
  }
  if (spec_.path >= vcollNumPaths) {
    return makeError(vcollInvalidArgument, "path = {} is not a vcollPath_t", static_cast<int>(spec_.path));
  }
  const TypeInfo& type = *typeInfo(spec_.type);
  const std::vector<vcollSegment_t>& segments = spec_.segments;
  Digest digest;
  std::vector<uint64_t> bytesOfRank(topology.ranks(), 0);
  digest.add(segments.size());
  bool sorted = true;
  uint64_t lastEnd = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    const vcollSegment_t& segment = segments[i];
    if (segment.owner < 0 || static_cast<uint32_t>(segment.owner) >= topology.ranks()) {
      return makeError(vcollInvalidArgument, "segments[{}].owner = {} is not a rank of this communicator (0..{})", i,
                       segment.owner, topology.ranks() - 1);
    }
    if (segment.reserved != 0) {
      return makeError(vcollInvalidArgument, "segments[{}].reserved = {} must be 0", i, segment.reserved);
    }
    if (segment.bytes > INT64_MAX || segment.offset > INT64_MAX - segment.bytes) {
      return makeError(vcollInvalidArgument, "segments[{}]: offset {} + bytes {} overflows", i, segment.offset,
                       segment.bytes);
    }
    if (segment.bytes > 0 && (segment.bytes % type.size != 0 || segment.offset % type.size != 0)) {
      return makeError(vcollInvalidArgument, "segments[{}]: offset {} and bytes {} must be multiples of {} ({})", i,
                       segment.offset, segment.bytes, type.size, type.name);
    }
    digest.add(static_cast<uint64_t>(segment.owner));
    digest.add(segment.offset);
    digest.add(segment.bytes);
    if (segment.bytes == 0) continue;
    bytesOfRank[static_cast<uint32_t>(segment.owner)] += segment.bytes;
    totalBytes_ += segment.bytes;
    extent_ = std::max(extent_, segment.offset + segment.bytes);
    sorted = sorted && segment.offset >= lastEnd;
    lastEnd = segment.offset + segment.bytes;
  }
  digest.add(spec_.type);
  digest.add(spec_.lanes);
  digest.add(spec_.chunkBytes);
  digest.add(spec_.path);
  digest.add(spec_.partialsFp32 ? 1 : 0);
  digest.add(static_cast<uint64_t>(spec_.rails));
  digest_ = digest.value();
  even_ = std::all_of(bytesOfRank.begin(), bytesOfRank.end(), [&](uint64_t b) { return b == bytesOfRank[0]; });
  if (sorted) return {};

  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < segments.size(); ++i) {
    if (segments[i].bytes > 0) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return segments[a].offset < segments[b].offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const vcollSegment_t& before = segments[order[i - 1]];
    const vcollSegment_t& after = segments[order[i]];
    if (before.offset + before.bytes > after.offset) {
      return makeError(vcollInvalidArgument,
                       "segments[{}] (rank {}, offset {}, bytes {}) overlaps segments[{}] (rank {}, offset {})",
                       order[i - 1], before.owner, before.offset, before.bytes, order[i], after.owner, after.offset);
    }
  }
  return {};
}

void Plan::makeSlices(const Topology& topology) {
  const uint32_t rails = topology.rails();
  slicesOfQueue_.resize(size_t{topology.nodes()} * rails);
  std::vector<uint32_t> nextRail(topology.nodes(), 0);
  const uint64_t minBytes =
      topology.nodes() == 1 ? kMinSliceBytes : std::clamp(2 * spec_.chunkBytes, kMinSliceBytes, kMinSliceBytesAcross);
  for (const vcollSegment_t& segment : spec_.segments) {
    if (segment.bytes == 0) continue;
    const auto owner = static_cast<uint32_t>(segment.owner);
    const uint32_t node = topology.nodeOf(owner);
    const uint32_t local = topology.localOf(owner);
    const bool whole = spec_.rails == RailPolicy::kOwnerRail;
    const uint64_t pieces = whole ? 1 : std::clamp<uint64_t>(segment.bytes / minBytes, 1, rails);
    const uint64_t end = segment.offset + segment.bytes;
    uint64_t begin = segment.offset;
    for (uint64_t piece = 0; piece < pieces; ++piece) {
      uint64_t cut = end;
      if (piece + 1 < pieces) {
        cut = (segment.offset + segment.bytes / pieces * (piece + 1) + kSliceAlign - 1) / kSliceAlign * kSliceAlign;
      }
      const uint32_t rail = whole ? local : nextRail[node];
      if (!whole) nextRail[node] = (nextRail[node] + 1) % rails;
      slicesOfQueue_[size_t{node} * rails + rail].push_back({begin, cut - begin, owner, local});
      begin = cut;
    }
  }
}

void Plan::choose(const Topology& topology) {
  PathLoad load{};
  load.nodes = topology.nodes();
  load.totalBytes = totalBytes_;
  std::vector<uint64_t> railBytes(topology.rails(), 0);
  for (size_t q = 0; q < slicesOfQueue_.size(); ++q) {
    uint64_t bytes = 0;
    for (const kernels::Slice& slice : slicesOfQueue_[q]) bytes += slice.bytes;
    load.maxQueueBytes = std::max(load.maxQueueBytes, bytes);
    railBytes[q % topology.rails()] += bytes;
  }
  load.maxRailBytes = *std::max_element(railBytes.begin(), railBytes.end());
  chunkBytes_ = spec_.chunkBytes;
  if (load.nodes > 1) {
    const uint64_t quarter = load.maxQueueBytes / (4 * uint64_t{load.nodes - 1}) / kSliceAlign * kSliceAlign;
    chunkBytes_ = std::clamp(quarter, spec_.chunkBytes, kMaxChunkFactor * spec_.chunkBytes);
  }
  load.chunkBytes = chunkBytes_;
  if (spec_.path == vcollPathAuto) {
    path_ = choosePath(load, kHostTcpProfile, &predictedUs_);
  } else {
    path_ = spec_.path;
    predictedUs_ = predictUs(path_, load, kHostTcpProfile);
  }
}

void Plan::makeQueues(const Topology& topology, const FlowLayout& layout, uint32_t rank) {
  const uint32_t nodes = topology.nodes();
  const uint32_t rails = topology.rails();
  const uint32_t node = topology.nodeOf(rank);
  const uint32_t pathIndex = path_ == vcollPathStar ? 0 : 1;
  const uint64_t wideFactor = spec_.partialsFp32 && typeInfo(spec_.type)->size == 2 ? 2 : 1;
  localRanks_ = topology.members(node);
  view_.rank = rank;
  view_.node = node;
  view_.local = topology.localOf(rank);
  view_.localCount = static_cast<uint32_t>(localRanks_.size());
  view_.laneCount = spec_.lanes;
  view_.chunkBytes = chunkBytes_;
  view_.reduceChunkBytes =
      nodes == 1 ? spec_.chunkBytes
                 : std::min(spec_.chunkBytes, layout.slotBytes(path_) / wideFactor) / kSliceAlign * kSliceAlign;
  view_.slots = layout.slots;

  std::vector<uint32_t> tasksOfLane(spec_.lanes, 0);
  for (uint32_t source = 0; source < nodes; ++source) {
    for (uint32_t rail = 0; rail < rails; ++rail) {
      const std::vector<kernels::Slice>& slices = slicesOfQueue_[size_t{source} * rails + rail];
      if (slices.empty()) continue;
      kernels::Queue queue{};
      queue.node = source;
      queue.rail = rail;
      queue.lane = (source + rail) % spec_.lanes;
      queue.agentLocal = topology.agentLocal(node, rail);
      queue.firstSlice = static_cast<uint32_t>(slices_.size());
      queue.sliceCount = static_cast<uint32_t>(slices.size());
      queue.arrivedBase = (pathIndex * nodes + source) * rails + rail;
      queue.firstDown = static_cast<uint32_t>(edges_.size());
      for (const kernels::Slice& slice : slices) {
        queue.chunks += ceilDiv(slice.bytes, view_.chunkBytes);
        queue.reduceChunks += ceilDiv(slice.bytes, view_.reduceChunkBytes);
        if (slice.owner == rank) queue.ownBytes += slice.bytes;
      }
      slices_.insert(slices_.end(), slices.begin(), slices.end());
      chunkCount_ += queue.chunks;

      // This node's place on the path: who feeds it, and whom it feeds.
      const uint32_t position = (node + nodes - source) % nodes;
      const auto edgeTo = [&](uint32_t near, uint32_t far, uint32_t peerNode) {
        const HopIds ids = hopIds(topology, layout, path_, source, rail, near, far);
        return kernels::Edge{topology.agent(peerNode, rail), ids.nearId, ids.farId};
      };
      if (position > 0) {
        const uint32_t near = path_ == vcollPathStar ? source : (node + nodes - 1) % nodes;
        queue.hasUp = 1;
        queue.up = edgeTo(near, node, near);
        queue.arrivedId = queue.up.farId;
      }
      if (queue.agentLocal == view_.local) {
        if (path_ == vcollPathStar && position == 0) {
          for (uint32_t hop = 1; hop < nodes; ++hop) {
            const uint32_t far = (source + hop) % nodes;
            edges_.push_back(edgeTo(node, far, far));
          }
        } else if (path_ == vcollPathChain && position + 1 < nodes) {
          const uint32_t far = (node + 1) % nodes;
          edges_.push_back(edgeTo(node, far, far));
        }
        if (queue.hasUp) peers_.push_back(static_cast<int>(queue.up.peer));
      }
      queue.downCount = static_cast<uint32_t>(edges_.size()) - queue.firstDown;
      tasksOfLane[queue.lane] += queue.downCount + 1;
      queues_.push_back(queue);
    }
  }
  slicesOfQueue_.clear();
  slicesOfQueue_.shrink_to_fit();
  for (const kernels::Edge& edge : edges_) peers_.push_back(static_cast<int>(edge.peer));
  std::sort(peers_.begin(), peers_.end());
  peers_.erase(std::unique(peers_.begin(), peers_.end()), peers_.end());

  view_.maxTasks = *std::max_element(tasksOfLane.begin(), tasksOfLane.end());
  view_.localRanks = localRanks_.data();
  view_.queueCount = static_cast<uint32_t>(queues_.size());
  view_.queues = queues_.data();
  view_.slices = slices_.data();
  view_.edges = edges_.data();
}

}  // namespace vcoll
