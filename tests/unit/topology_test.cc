// SPDX-License-Identifier: Apache-2.0
#include "topology/topology.h"

#include <catch2/catch.hpp>
#include <set>
#include <utility>

namespace vcoll {

namespace {

using Keys = std::vector<uint64_t>;

// Every rail of a node has an agent there, and no agent serves two rails in one slot.
void checkRails(const Topology& topology) {
  for (uint32_t node = 0; node < topology.nodes(); ++node) {
    std::set<std::pair<uint32_t, uint32_t>> seen;
    for (uint32_t rail = 0; rail < topology.rails(); ++rail) {
      const uint32_t agent = topology.agent(node, rail);
      REQUIRE(topology.nodeOf(agent) == node);
      REQUIRE(topology.members(node)[topology.agentLocal(node, rail)] == agent);
      REQUIRE(topology.railSlot(node, rail) < topology.maxRailSlots());
      REQUIRE(seen.emplace(agent, topology.railSlot(node, rail)).second);
    }
  }
}

}  // namespace

TEST_CASE("ranks of one node, in rank order; nodes by their lowest rank", "[topology]") {
  const Topology topology(Keys{70, 5, 70, 5, 9, 70});
  REQUIRE(topology.ranks() == 6);
  REQUIRE(topology.nodes() == 3);
  REQUIRE(topology.members(0) == std::vector<uint32_t>{0, 2, 5});
  REQUIRE(topology.members(1) == std::vector<uint32_t>{1, 3});
  REQUIRE(topology.members(2) == std::vector<uint32_t>{4});
  REQUIRE(topology.nodeOf(3) == 1);
  REQUIRE(topology.localOf(5) == 2);
  REQUIRE(topology.rails() == 3);
  REQUIRE(topology.maxRailSlots() == 3);
  checkRails(topology);
}

TEST_CASE("one rank, one node", "[topology]") {
  const Topology one(Keys{3});
  REQUIRE(one.nodes() == 1);
  REQUIRE(one.rails() == 1);
  REQUIRE(one.maxRailSlots() == 1);
  const Topology node(Keys{4, 4, 4, 4});
  REQUIRE(node.nodes() == 1);
  REQUIRE(node.rails() == 4);
  checkRails(node);
}

TEST_CASE("nodes of 7 and 8 ranks: the small node's first agent serves two rails", "[topology]") {
  Keys keys(7, 0);
  keys.resize(15, 1);
  const Topology topology(keys);
  REQUIRE(topology.rails() == 8);
  REQUIRE(topology.maxRailSlots() == 2);
  REQUIRE(topology.agent(0, 6) == 6);
  REQUIRE(topology.agent(0, 7) == 0);
  REQUIRE(topology.railSlot(0, 7) == 1);
  REQUIRE(topology.agent(1, 7) == 14);
  checkRails(topology);
}

TEST_CASE("nodes of 1 and 3 ranks: the lone rank serves all rails", "[topology]") {
  const Topology topology(Keys{0, 1, 1, 1});
  REQUIRE(topology.rails() == 3);
  REQUIRE(topology.maxRailSlots() == 3);
  for (uint32_t rail = 0; rail < 3; ++rail) {
    REQUIRE(topology.agent(0, rail) == 0);
    REQUIRE(topology.railSlot(0, rail) == rail);
    REQUIRE(topology.agent(1, rail) == 1 + rail);
  }
  checkRails(topology);
}

TEST_CASE("ranks dealt round-robin over nodes", "[topology]") {
  Keys keys;
  for (uint64_t rank = 0; rank < 16; ++rank) keys.push_back(rank % 4);
  const Topology topology(keys);
  REQUIRE(topology.nodes() == 4);
  REQUIRE(topology.rails() == 4);
  REQUIRE(topology.members(2) == std::vector<uint32_t>{2, 6, 10, 14});
  REQUIRE(topology.localOf(14) == 3);
  REQUIRE(topology.agent(3, 1) == 7);
  checkRails(topology);
}

}  // namespace vcoll
