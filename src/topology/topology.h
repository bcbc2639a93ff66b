// SPDX-License-Identifier: Apache-2.0
// Who is on which node, and which rank serves which rail. A pure function of the node of each rank, so equal on all
// ranks.
#pragma once

#include <cstdint>
#include <vector>

namespace vcoll {

class Topology {
 public:
  // nodeKeys: per rank any number that is equal exactly for ranks of one node. Nodes are numbered by their lowest rank.
  explicit Topology(const std::vector<uint64_t>& nodeKeys);

  uint32_t ranks() const { return static_cast<uint32_t>(nodeOf_.size()); }
  uint32_t nodes() const { return static_cast<uint32_t>(members_.size()); }
  // As many rails as the largest node has ranks.
  uint32_t rails() const { return rails_; }
  uint32_t nodeOf(uint32_t rank) const { return nodeOf_[rank]; }
  uint32_t localOf(uint32_t rank) const { return localOf_[rank]; }
  // Ranks of a node in rank order.
  const std::vector<uint32_t>& members(uint32_t node) const { return members_[node]; }

  uint32_t agentLocal(uint32_t node, uint32_t rail) const {
    return rail % static_cast<uint32_t>(members_[node].size());
  }
  uint32_t agent(uint32_t node, uint32_t rail) const { return members_[node][agentLocal(node, rail)]; }
  // An agent of a small node serves several rails: which of them is this one?
  uint32_t railSlot(uint32_t node, uint32_t rail) const { return rail / static_cast<uint32_t>(members_[node].size()); }
  uint32_t maxRailSlots() const { return maxRailSlots_; }

 private:
  std::vector<uint32_t> nodeOf_;
  std::vector<uint32_t> localOf_;
  std::vector<std::vector<uint32_t>> members_;
  uint32_t rails_ = 0;
  uint32_t maxRailSlots_ = 1;
};

}  // namespace vcoll
