// SPDX-License-Identifier: Apache-2.0
#include "topology/publish_plan.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>

namespace vcoll {

namespace {

// Items of 100 bytes for each owner in the list, one after the other.
PublishSpec specOf(const std::vector<int>& owners, vcollPath_t path = vcollPathChain) {
  PublishSpec spec;
  spec.path = path;
  for (size_t i = 0; i < owners.size(); ++i) spec.items.push_back({100 + i, owners[i], 0, 100 * i, 100});
  spec.windowBytes = 100 * owners.size();
  spec.chunkBytes = 1024;
  return spec;
}

PublishPlan planOf(const PublishSpec& spec, const Topology& topology, uint32_t rank) {
  PublishPlan plan;
  const Status status = PublishPlan::build(spec, topology, rank, &plan);
  REQUIRE(status.text() == "");
  return plan;
}

}  // namespace

TEST_CASE("publish plan: every leader has each item once, fed by one agent of the same rail", "[publish]") {
  const std::vector<std::vector<uint64_t>> clusters = {
      {0}, {0, 0, 0}, {0, 1}, {0, 0, 1, 1}, {0, 1, 0, 1, 0, 1}, {0, 0, 0, 1, 2, 2}, {0, 1, 1, 1, 1, 2, 2}};
  for (const auto& keys : clusters) {
    const Topology topology(keys);
    std::vector<int> owners;
    for (uint32_t i = 0; i < 3 * topology.ranks(); ++i) owners.push_back(static_cast<int>(i * 5 % topology.ranks()));
    for (const vcollPath_t path : {vcollPathChain, vcollPathStar}) {
      std::map<std::pair<uint32_t, uint64_t>, uint32_t> copies;                   // by node and item
      std::map<std::pair<uint32_t, uint32_t>, std::set<uint32_t>> sent, awaited;  // by rank, peer: near ids of queues
      for (uint32_t rank = 0; rank < topology.ranks(); ++rank) {
        const PublishPlan plan = planOf(specOf(owners, path), topology, rank);
        REQUIRE(plan.digest() == planOf(specOf(owners, path), topology, 0).digest());
        for (const PublishPlan::Rail& rail : plan.rails()) {
          for (uint32_t q = 0; q < rail.view.queueCount; ++q) {
            const kernels::PublishQueue& queue = rail.view.queues[q];
            const uint32_t key = rail.rail * 1000 + q;
            for (uint32_t i = 0; i < queue.itemCount; ++i) {
              const vcollPublishItem_t& item = plan.items()[rail.firstItem + queue.firstItem + i];
              REQUIRE(topology.localOf(static_cast<uint32_t>(item.owner)) == rail.rail);
              REQUIRE(topology.nodeOf(static_cast<uint32_t>(item.owner)) == queue.node);
              REQUIRE((queue.hasUp == 0) == (item.owner == static_cast<int>(rank)));
              ++copies[{topology.nodeOf(rank), item.id}];
            }
            if (queue.hasUp) awaited[{queue.up.peer, rank}].insert(key * 100 + queue.up.nearId);
            for (uint32_t e = 0; e < queue.downCount; ++e) {
              const kernels::Edge& edge = rail.view.edges[queue.firstDown + e];
              REQUIRE(edge.farId == q);
              sent[{rank, edge.peer}].insert(key * 100 + edge.nearId);
            }
          }
        }
      }
      REQUIRE(copies.size() == size_t{topology.nodes()} * owners.size());
      for (const auto& [where, count] : copies) REQUIRE(count == 1);
      REQUIRE(sent == awaited);  // both ends of every hop know each other and its counters
    }
  }
}

TEST_CASE("publish plan: faults of the manifest name the items", "[publish]") {
  const Topology topology({0, 1});
  PublishPlan plan;
  PublishSpec twice = specOf({0, 1});
  twice.items[1].id = twice.items[0].id;
  REQUIRE(PublishPlan::build(twice, topology, 0, &plan).text() ==
          "items: id 100 occurs twice (rank 0, offset 0; rank 1, offset 100)");
  PublishSpec overlap = specOf({1, 0});
  overlap.items[0].bytes = 101;
  REQUIRE(PublishPlan::build(overlap, topology, 0, &plan).text() ==
          "items: id 100 (rank 1, offset 0, bytes 101) overlaps id 101 (rank 0, offset 100)");
  PublishSpec empty = specOf({1, 0});
  empty.items[0] = {100, 1, 0, 150, 0};  // nothing overlaps with no bytes
  REQUIRE(PublishPlan::build(empty, topology, 0, &plan).ok());
  PublishSpec stride = specOf({1, 0});
  stride.copies = 2;
  stride.copyStride = 150;
  REQUIRE(PublishPlan::build(stride, topology, 0, &plan).code() == vcollInvalidArgument);
  stride.copyStride = 200;
  REQUIRE(PublishPlan::build(stride, topology, 0, &plan).ok());
}

TEST_CASE("publish plan: items are found by id", "[publish]") {
  const Topology topology({0, 1});
  const PublishPlan plan = planOf(specOf({1, 0, 1}), topology, 0);
  for (const uint64_t id : {100u, 101u, 102u}) {
    const int64_t found = plan.find(id);
    REQUIRE(found >= 0);
    REQUIRE(plan.items()[static_cast<size_t>(found)].id == id);
  }
  REQUIRE(plan.find(99) == -1);
  REQUIRE(plan.find(103) == -1);
}

TEST_CASE("publish plan: chunks cover an item, and one without bytes has one", "[publish]") {
  PublishSpec spec = specOf({0, 0, 0});
  spec.items[0].bytes = 0;
  spec.items[1] = {101, 0, 0, 200, 1024};
  spec.items[2] = {102, 0, 0, 2000, 1025};
  const PublishPlan plan = planOf(spec, Topology({0, 1}), 0);
  const kernels::PublishView& view = plan.rails()[0].view;
  REQUIRE(view.items[0].chunks == 1);
  REQUIRE(view.items[1].chunks == 1);
  REQUIRE(view.items[2].chunks == 2);
}

}  // namespace vcoll
