// SPDX-License-Identifier: Apache-2.0
#include "topology/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <set>
#include <tuple>

#include "base/hash.h"
#include "topology/cost.h"

namespace vcoll {

namespace {

using kernels::Edge;
using kernels::PlanView;
using kernels::Queue;
using kernels::Slice;

Topology topologyOf(const std::vector<uint64_t>& sizes, bool roundRobin = false) {
  std::vector<uint64_t> keys;
  std::vector<uint64_t> left = sizes;
  const auto some = [&] { return std::any_of(left.begin(), left.end(), [](uint64_t n) { return n > 0; }); };
  for (uint64_t node = 0; some(); node = roundRobin || left[node] == 0 ? (node + 1) % left.size() : node) {
    if (left[node] == 0) continue;
    keys.push_back(node);
    --left[node];
  }
  return Topology(keys);
}

vcollSegment_t segment(uint32_t owner, uint64_t offset, uint64_t bytes) {
  return {static_cast<int32_t>(owner), 0, offset, bytes};
}

// Segments of many sizes with gaps, several per owner, in no order.
PlanSpec mixedSpec(uint32_t ranks, vcollPath_t path, RailPolicy rails = RailPolicy::kStripe) {
  PlanSpec spec;
  spec.path = path;
  spec.lanes = 3;
  spec.chunkBytes = 4096;
  spec.rails = rails;
  uint64_t offset = 3;
  for (uint32_t i = 0; i < 4 * ranks; ++i) {
    const uint64_t bytes = i % 5 == 0 ? 0 : mix64(i) % (i % 3 == 0 ? 200000 : 5000);
    spec.segments.push_back(segment(static_cast<uint32_t>(mix64(i + 1000)) % ranks, offset, bytes));
    offset += bytes + mix64(i + 2000) % 50;
  }
  std::reverse(spec.segments.begin(), spec.segments.end());
  return spec;
}

std::vector<std::unique_ptr<Plan>> buildAll(const PlanSpec& spec, const Topology& topology, const FlowLayout& layout) {
  std::vector<std::unique_ptr<Plan>> plans(topology.ranks());
  for (uint32_t rank = 0; rank < topology.ranks(); ++rank) {
    const Status status = Plan::build(spec, topology, layout, rank, &plans[rank]);
    INFO(status.text());
    REQUIRE(status.ok());
  }
  return plans;
}

std::unique_ptr<Plan> buildOne(const PlanSpec& spec, const Topology& topology, uint32_t rank = 0) {
  std::unique_ptr<Plan> plan;
  const Status status = Plan::build(spec, topology, makeFlowLayout(topology, 4, spec.chunkBytes), rank, &plan);
  INFO(status.text());
  REQUIRE(status.ok());
  return plan;
}

std::string errorOf(const PlanSpec& spec, const Topology& topology) {
  std::unique_ptr<Plan> plan;
  const Status status = Plan::build(spec, topology, makeFlowLayout(topology, 4, 65536), 0, &plan);
  REQUIRE(status.code() == vcollInvalidArgument);
  REQUIRE(plan == nullptr);
  return status.text();
}

std::string errorOf(std::vector<vcollSegment_t> segments, vcollDataType_t type = vcollUint8) {
  PlanSpec spec;
  spec.segments = std::move(segments);
  spec.type = type;
  return errorOf(spec, topologyOf({2, 2}));
}

const Queue* queueOf(const PlanView& view, uint32_t node, uint32_t rail) {
  for (uint32_t q = 0; q < view.queueCount; ++q) {
    if (view.queues[q].node == node && view.queues[q].rail == rail) return &view.queues[q];
  }
  return nullptr;
}

const std::vector<std::vector<uint64_t>> kClusters = {{1},    {4},       {1, 1},       {7, 8},
                                                      {1, 3}, {2, 2, 2}, {3, 1, 2, 5}, {8, 8, 8, 8, 8, 8, 8, 8}};

// Calls test(topology, spec) for many clusters, placements, paths and rail policies.
template <typename Test>
void forMany(const Test& test) {
  for (const std::vector<uint64_t>& sizes : kClusters) {
    for (const bool roundRobin : {false, true}) {
      const Topology topology = topologyOf(sizes, roundRobin);
      for (const vcollPath_t path : {vcollPathStar, vcollPathChain}) {
        for (const RailPolicy rails : {RailPolicy::kStripe, RailPolicy::kOwnerRail}) {
          INFO("nodes " << sizes.size() << " ranks " << topology.ranks() << " path " << path << " rails "
                        << static_cast<int>(rails));
          test(topology, mixedSpec(topology.ranks(), path, rails));
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("slices cover every byte of every segment once", "[plan]") {
  forMany([](const Topology& topology, const PlanSpec& spec) {
    const auto plan = buildOne(spec, topology, topology.ranks() - 1);
    const PlanView& view = plan->view();
    std::map<uint64_t, Slice> byOffset;
    uint64_t chunks = 0;
    uint64_t ownBytes = 0;
    for (uint32_t q = 0; q < view.queueCount; ++q) {
      const Queue& queue = view.queues[q];
      uint64_t queueChunks = 0;
      uint64_t reduceChunks = 0;
      REQUIRE(queue.sliceCount > 0);
      for (uint32_t s = queue.firstSlice; s < queue.firstSlice + queue.sliceCount; ++s) {
        const Slice& slice = view.slices[s];
        REQUIRE(slice.bytes > 0);
        REQUIRE(topology.nodeOf(slice.owner) == queue.node);
        REQUIRE(topology.localOf(slice.owner) == slice.ownerLocal);
        REQUIRE(byOffset.emplace(slice.offset, slice).second);
        queueChunks += (slice.bytes + view.chunkBytes - 1) / view.chunkBytes;
        reduceChunks += (slice.bytes + view.reduceChunkBytes - 1) / view.reduceChunkBytes;
      }
      REQUIRE(queue.chunks == queueChunks);
      REQUIRE(queue.reduceChunks == reduceChunks);
      REQUIRE(queue.lane < view.laneCount);
      chunks += queue.chunks;
      ownBytes += queue.ownBytes;
    }
    REQUIRE(plan->chunkCount() == chunks);

    uint64_t total = 0;
    uint64_t ownExpected = 0;
    uint64_t extent = 0;
    size_t used = 0;
    for (const vcollSegment_t& s : spec.segments) {
      total += s.bytes;
      if (s.bytes > 0) extent = std::max(extent, s.offset + s.bytes);
      if (static_cast<uint32_t>(s.owner) == view.rank) ownExpected += s.bytes;
      for (uint64_t at = s.offset; at < s.offset + s.bytes; ++used) {
        REQUIRE(byOffset.count(at) == 1);
        const Slice& slice = byOffset[at];
        REQUIRE(slice.owner == static_cast<uint32_t>(s.owner));
        REQUIRE((at == s.offset || at % 16 == 0));
        at += slice.bytes;
        REQUIRE(at <= s.offset + s.bytes);
      }
    }
    REQUIRE(used == byOffset.size());
    REQUIRE(plan->totalBytes() == total);
    REQUIRE(plan->extent() == extent);
    REQUIRE(ownBytes == ownExpected);
  });
}

TEST_CASE("all ranks see the same queues", "[plan]") {
  forMany([](const Topology& topology, const PlanSpec& spec) {
    const auto plans = buildAll(spec, topology, makeFlowLayout(topology, 4, spec.chunkBytes));
    const PlanView& first = plans[0]->view();
    for (const auto& plan : plans) {
      const PlanView& view = plan->view();
      REQUIRE(plan->digest() == plans[0]->digest());
      REQUIRE(plan->path() == plans[0]->path());
      REQUIRE(view.queueCount == first.queueCount);
      REQUIRE(view.chunkBytes == first.chunkBytes);
      REQUIRE(view.reduceChunkBytes == first.reduceChunkBytes);
      std::vector<uint32_t> tasksOfLane(view.laneCount, 0);
      std::set<uint32_t> arrivedBases;
      for (uint32_t q = 0; q < view.queueCount; ++q) {
        const Queue& queue = view.queues[q];
        const Queue& other = first.queues[q];
        REQUIRE(std::tie(queue.node, queue.rail, queue.lane, queue.firstSlice, queue.sliceCount, queue.chunks,
                         queue.reduceChunks) == std::tie(other.node, other.rail, other.lane, other.firstSlice,
                                                         other.sliceCount, other.chunks, other.reduceChunks));
        REQUIRE(queue.agentLocal == topology.agentLocal(view.node, queue.rail));
        REQUIRE(arrivedBases.insert(queue.arrivedBase).second);
        REQUIRE(queue.arrivedBase < kPathKinds * topology.nodes() * topology.rails());
        tasksOfLane[queue.lane] += queue.downCount + 1;
      }
      for (const uint32_t tasks : tasksOfLane) REQUIRE(tasks <= view.maxTasks);
    }
  });
}

TEST_CASE("both ends of a hop agree, and no two hops share a counter", "[plan]") {
  forMany([](const Topology& topology, const PlanSpec& spec) {
    const FlowLayout layout = makeFlowLayout(topology, 4, spec.chunkBytes);
    const auto plans = buildAll(spec, topology, layout);
    uint32_t ups = 0;
    uint32_t downs = 0;
    for (const auto& plan : plans) {
      const PlanView& view = plan->view();
      std::set<uint32_t> nearIds;
      std::set<uint32_t> farIds;
      std::set<int> peers;
      for (uint32_t q = 0; q < view.queueCount; ++q) {
        const Queue& queue = view.queues[q];
        REQUIRE((queue.hasUp != 0) == (queue.node != view.node));
        if (queue.agentLocal != view.local) {
          REQUIRE(queue.downCount == 0);
          if (queue.hasUp) {  // what this rank polls is what its agent is sent
            const PlanView& agent = plans[view.localRanks[queue.agentLocal]]->view();
            REQUIRE(queue.arrivedId == queueOf(agent, queue.node, queue.rail)->up.farId);
          }
          continue;
        }
        if (queue.hasUp) {
          ++ups;
          REQUIRE(queue.arrivedId == queue.up.farId);
          REQUIRE(queue.up.farId < layout.ids());
          REQUIRE(farIds.insert(queue.up.farId).second);
          peers.insert(static_cast<int>(queue.up.peer));
        }
        for (uint32_t e = 0; e < queue.downCount; ++e) {
          ++downs;
          const Edge& edge = view.edges[queue.firstDown + e];
          REQUIRE(edge.nearId < layout.ids());
          REQUIRE(nearIds.insert(edge.nearId).second);
          peers.insert(static_cast<int>(edge.peer));
          const Queue* far = queueOf(plans[edge.peer]->view(), queue.node, queue.rail);
          REQUIRE(far != nullptr);
          REQUIRE(far->hasUp == 1);
          REQUIRE(far->up.peer == view.rank);
          REQUIRE(far->up.nearId == edge.nearId);
          REQUIRE(far->up.farId == edge.farId);
        }
      }
      REQUIRE(std::vector<int>(peers.begin(), peers.end()) == plan->peers());
    }
    REQUIRE(ups == downs);
    // Each queue reaches each other node once.
    REQUIRE(downs == plans[0]->view().queueCount * (topology.nodes() - 1));
  });
}

TEST_CASE("star and chain use different counters", "[plan]") {
  const Topology topology = topologyOf({3, 1, 2});
  const FlowLayout layout = makeFlowLayout(topology, 2, 4096);
  const auto idsOf = [&](vcollPath_t path) {
    std::set<uint32_t> ids;
    for (const auto& plan : buildAll(mixedSpec(topology.ranks(), path), topology, layout)) {
      const PlanView& view = plan->view();
      for (uint32_t q = 0; q < view.queueCount; ++q) {
        const Queue& queue = view.queues[q];
        if (queue.hasUp) ids.insert({queue.up.nearId, queue.up.farId});
        for (uint32_t e = 0; e < queue.downCount; ++e) ids.insert(view.edges[queue.firstDown + e].nearId);
      }
    }
    return ids;
  };
  for (const uint32_t id : idsOf(vcollPathStar)) REQUIRE(id < layout.idsPerPath);
  for (const uint32_t id : idsOf(vcollPathChain)) REQUIRE((id >= layout.idsPerPath && id < layout.ids()));
}

TEST_CASE("a large segment is cut over the rails, small ones rotate", "[plan]") {
  const Topology topology = topologyOf({4, 4});
  PlanSpec spec;
  spec.chunkBytes = 8192;
  spec.segments = {segment(1, 0, 65536), segment(1, 65536, 100), segment(2, 65636, 100), segment(5, 65736, 40000)};
  const auto plan = buildOne(spec, topology);
  const PlanView& view = plan->view();
  REQUIRE(view.queueCount == 6);
  for (uint32_t rail = 0; rail < 4; ++rail) {
    const Queue* queue = queueOf(view, 0, rail);
    REQUIRE(queue != nullptr);
    REQUIRE(view.slices[queue->firstSlice].offset == rail * 16384u);
    REQUIRE(view.slices[queue->firstSlice].bytes == 16384);
    REQUIRE(queue->sliceCount == (rail < 2 ? 2u : 1u));
  }
  REQUIRE(view.slices[queueOf(view, 0, 0)->firstSlice + 1].owner == 1);
  REQUIRE(view.slices[queueOf(view, 0, 1)->firstSlice + 1].owner == 2);
  // 65736 + 20000 is on the next multiple of 16.
  REQUIRE(view.slices[queueOf(view, 1, 0)->firstSlice].bytes == 85744 - 65736);
  REQUIRE(view.slices[queueOf(view, 1, 1)->firstSlice].offset == 85744);
}

TEST_CASE("between nodes slices are longer, and long queues move in longer chunks", "[plan]") {
  for (const bool across : {false, true}) {
    const Topology topology = across ? topologyOf({4, 4}) : topologyOf({4});
    PlanSpec spec;
    spec.segments = {segment(0, 0, 200000)};
    REQUIRE(buildOne(spec, topology)->view().queueCount == (across ? 1 : 4));
    spec.segments[0].bytes = 4 * 131072;
    const auto whole = buildOne(spec, topology);
    REQUIRE(whole->view().queueCount == 4);
    REQUIRE(whole->view().chunkBytes == 65536);
    spec.segments[0].bytes = 4 * 500000;
    REQUIRE(buildOne(spec, topology)->view().chunkBytes == (across ? 124992 : 65536));
    spec.segments[0].bytes = uint64_t{4} << 30;
    REQUIRE(buildOne(spec, topology)->view().chunkBytes == (across ? 262144 : 65536));
  }
}

TEST_CASE("on owner rails the owner is the agent of its own node", "[plan]") {
  const Topology topology = topologyOf({3, 2});
  const auto plan = buildOne(mixedSpec(5, vcollPathChain, RailPolicy::kOwnerRail), topology);
  const PlanView& view = plan->view();
  for (uint32_t q = 0; q < view.queueCount; ++q) {
    const Queue& queue = view.queues[q];
    for (uint32_t s = 0; s < queue.sliceCount; ++s) {
      REQUIRE(topology.agent(queue.node, queue.rail) == view.slices[queue.firstSlice + s].owner);
    }
  }
}

TEST_CASE("64 ranks with 2^40 bytes each", "[plan]") {
  const Topology topology = topologyOf(std::vector<uint64_t>(8, 8));
  constexpr uint64_t kBytes = uint64_t{1} << 40;
  PlanSpec spec;
  spec.lanes = 4;
  for (uint32_t rank = 0; rank < 64; ++rank) spec.segments.push_back(segment(rank, rank * kBytes, kBytes));
  for (const uint32_t rank : {0u, 63u}) {
    const auto plan = buildOne(spec, topology, rank);
    REQUIRE(plan->totalBytes() == 64 * kBytes);
    REQUIRE(plan->extent() == 64 * kBytes);
    REQUIRE(plan->chunkCount() == 64 * kBytes / 262144);
    REQUIRE(plan->even());
    uint64_t own = 0;
    for (uint32_t q = 0; q < plan->view().queueCount; ++q) {
      own += plan->view().queues[q].ownBytes;
      REQUIRE(plan->view().queues[q].chunks == 8 * kBytes / 8 / 262144);
    }
    REQUIRE(own == kBytes);
  }
}

TEST_CASE("bad segments are named with index and value", "[plan]") {
  REQUIRE(errorOf({segment(0, 0, 4), segment(4, 4, 4)}) ==
          "segments[1].owner = 4 is not a rank of this communicator (0..3)");
  REQUIRE(errorOf({{-1, 0, 0, 4}}) == "segments[0].owner = -1 is not a rank of this communicator (0..3)");
  REQUIRE(errorOf({{0, 7, 0, 4}}) == "segments[0].reserved = 7 must be 0");
  REQUIRE(errorOf({segment(0, 0, 4), segment(0, 4, 4), segment(1, UINT64_MAX - 3, 8)}) ==
          "segments[2]: offset 18446744073709551612 + bytes 8 overflows");
  REQUIRE(errorOf({segment(0, 0, UINT64_MAX)}) == "segments[0]: offset 0 + bytes 18446744073709551615 overflows");
  REQUIRE(errorOf({segment(0, 0, 8), segment(1, 6, 8)}, vcollFloat32) ==
          "segments[1]: offset 6 and bytes 8 must be multiples of 4 (float)");
  REQUIRE(errorOf({segment(0, 0, 7)}, vcollBfloat16) ==
          "segments[0]: offset 0 and bytes 7 must be multiples of 2 (bfloat16)");
  REQUIRE(errorOf({segment(1, 100, 10), segment(2, 95, 6)}) ==
          "segments[1] (rank 2, offset 95, bytes 6) overlaps segments[0] (rank 1, offset 100)");
  REQUIRE(errorOf({segment(1, 8, 8), segment(2, 8, 8)}).find("overlaps") != std::string::npos);
}

TEST_CASE("empty segments overlap nothing", "[plan]") {
  PlanSpec spec;
  spec.segments = {segment(0, 0, 100), segment(1, 50, 0), segment(2, 100, 0), segment(3, 100, 1)};
  REQUIRE(buildOne(spec, topologyOf({2, 2}))->extent() == 101);
  spec.segments = {segment(0, 1000, 0)};
  const auto empty = buildOne(spec, topologyOf({2, 2}));
  REQUIRE(empty->view().queueCount == 0);
  REQUIRE(empty->totalBytes() == 0);
  REQUIRE(empty->extent() == 0);
  spec.segments.clear();
  REQUIRE(buildOne(spec, topologyOf({2, 2}))->view().queueCount == 0);
}

TEST_CASE("bad settings are named with their value", "[plan]") {
  const Topology topology = topologyOf({2, 2});
  PlanSpec spec;
  SECTION("lanes") {
    spec.lanes = 0;
    REQUIRE(errorOf(spec, topology) == "lanes = 0 is not in 1..16");
    spec.lanes = 17;
    REQUIRE(errorOf(spec, topology) == "lanes = 17 is not in 1..16");
  }
  SECTION("chunk") {
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{1008}, uint64_t{4100}, (uint64_t{1} << 30) + 16}) {
      spec.chunkBytes = bytes;
      REQUIRE(errorOf(spec, topology) == fmt::format("chunkBytes = {} is not a multiple of 16 in 1024..2^30", bytes));
    }
  }
  SECTION("type") {
    spec.type = vcollNumTypes;
    REQUIRE(errorOf(spec, topology) == "type = 12 is not a vcollDataType_t");
  }
  SECTION("path") {
    spec.path = vcollNumPaths;
    REQUIRE(errorOf(spec, topology) == "path = 3 is not a vcollPath_t");
  }
}

TEST_CASE("the digest depends on every field that ranks must agree on", "[plan]") {
  const Topology topology = topologyOf({2, 2});
  PlanSpec base;
  base.type = vcollBfloat16;
  base.segments = {segment(0, 0, 100), segment(1, 100, 100)};
  std::vector<PlanSpec> variants(12, base);
  variants[1].segments[1].owner = 2;
  variants[2].segments[1].offset = 102;
  variants[3].segments[1].bytes = 98;
  variants[4].segments.pop_back();
  std::swap(variants[5].segments[0], variants[5].segments[1]);
  variants[6].type = vcollFloat16;
  variants[7].lanes = 2;
  variants[8].chunkBytes = 32768;
  variants[9].path = vcollPathChain;
  variants[10].rails = RailPolicy::kOwnerRail;
  variants[11].partialsFp32 = true;
  std::set<uint64_t> digests;
  for (const PlanSpec& spec : variants) digests.insert(buildOne(spec, topology)->digest());
  REQUIRE(digests.size() == variants.size());
  REQUIRE(buildOne(base, topology, 3)->digest() == buildOne(base, topology, 0)->digest());
}

TEST_CASE("even means that every rank owns the same number of bytes", "[plan]") {
  const Topology topology = topologyOf({2, 1});
  PlanSpec spec;
  spec.segments = {segment(2, 0, 30), segment(0, 30, 20), segment(1, 50, 30), segment(0, 80, 10)};
  REQUIRE(buildOne(spec, topology)->even());
  spec.segments.back().bytes = 9;
  REQUIRE_FALSE(buildOne(spec, topology)->even());
  spec.segments = {segment(0, 0, 30)};
  REQUIRE_FALSE(buildOne(spec, topology)->even());
}

TEST_CASE("ring memory is bounded and rings do not overlap", "[plan]") {
  for (const auto& sizes : kClusters) {
    const Topology topology = topologyOf(sizes);
    for (const uint32_t slots : {1u, 4u}) {
      const FlowLayout layout = makeFlowLayout(topology, slots, 65536);
      if (topology.nodes() == 1) {
        REQUIRE(layout.ringBytes() == 0);
        continue;
      }
      REQUIRE(2 * layout.ringBytes() <= kRingBudget);
      uint64_t end = 0;
      for (uint32_t id = 0; id < layout.ids(); ++id) {
        REQUIRE(layout.ringOffset(id) == end);
        REQUIRE(layout.slotBytesOfId(id) >= 1024);
        REQUIRE(layout.slotBytesOfId(id) <= 65536);
        end += slots * layout.slotBytesOfId(id);
      }
      REQUIRE(end == layout.ringBytes());
    }
  }
}

TEST_CASE("partial sums of a reduction fit their slots", "[plan]") {
  const Topology topology = topologyOf({3, 1, 2, 5});
  PlanSpec spec;
  spec.type = vcollBfloat16;
  spec.segments = {segment(0, 0, 1 << 20)};
  for (const vcollPath_t path : {vcollPathStar, vcollPathChain}) {
    for (const bool wide : {false, true}) {
      spec.path = path;
      spec.partialsFp32 = wide;
      const FlowLayout layout = makeFlowLayout(topology, 4, spec.chunkBytes);
      std::unique_ptr<Plan> plan;
      REQUIRE(Plan::build(spec, topology, layout, 0, &plan).ok());
      REQUIRE(plan->view().reduceChunkBytes * (wide ? 2 : 1) <= layout.slotBytes(path));
      REQUIRE(plan->view().reduceChunkBytes % 16 == 0);
    }
  }
}

TEST_CASE("the path follows from size and node count", "[plan]") {
  PlanSpec spec;
  spec.segments = {segment(0, 0, 4096)};
  REQUIRE(buildOne(spec, topologyOf({1, 1}))->path() == vcollPathChain);  // the same hop either way
  REQUIRE(buildOne(spec, topologyOf({1, 1, 1, 1}))->path() == vcollPathStar);
  spec.segments = {segment(0, 0, 64 << 20)};
  REQUIRE(buildOne(spec, topologyOf({1, 1, 1, 1}))->path() == vcollPathChain);
  spec.path = vcollPathStar;
  REQUIRE(buildOne(spec, topologyOf({1, 1, 1, 1}))->path() == vcollPathStar);
  REQUIRE(buildOne(spec, topologyOf({1, 1, 1, 1}))->predictedUs() > 0);

  const Profile profile = {10, 1, 1000, 1e9};
  PathLoad load{};
  load.nodes = 4;
  load.totalBytes = load.maxQueueBytes = load.maxRailBytes = 100000;
  load.chunkBytes = 10000;
  REQUIRE(predictUs(vcollPathStar, load, profile) == Approx(10 + 3 * (100 + 1)));
  REQUIRE(predictUs(vcollPathChain, load, profile) == Approx(3 * (10 + 10 + 1) + 100));
  load.nodes = 1;
  REQUIRE(predictUs(vcollPathChain, load, profile) == Approx(100000 / 1e9));
}

TEST_CASE("10,000 segments", "[plan]") {
  const Topology topology = topologyOf(std::vector<uint64_t>(8, 8));
  PlanSpec spec;
  for (uint32_t i = 0; i < 10000; ++i) {
    spec.segments.push_back(segment(static_cast<uint32_t>(mix64(i)) % 64, uint64_t{i} * 100000, mix64(i + 9) % 100000));
  }
  std::reverse(spec.segments.begin(), spec.segments.end());
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const auto start = std::chrono::steady_clock::now();
    const auto plan = buildOne(spec, topology);
    const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
    best = std::min(best, spent.count());
    REQUIRE(plan->chunkCount() >= 10000);
  }
  fmt::print("plan of 10,000 segments: {:.2f} ms\n", best);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  REQUIRE(best < 20);
#endif
}

}  // namespace vcoll
