// SPDX-License-Identifier: Apache-2.0
#include "topology/topology.h"

#include <algorithm>
#include <unordered_map>

namespace vcoll {

Topology::Topology(const std::vector<uint64_t>& nodeKeys) {
  std::unordered_map<uint64_t, uint32_t> nodeOfKey;
  for (uint32_t rank = 0; rank < nodeKeys.size(); ++rank) {
    const auto [entry, isNew] = nodeOfKey.try_emplace(nodeKeys[rank], nodes());
    if (isNew) members_.emplace_back();
    const uint32_t node = entry->second;
    nodeOf_.push_back(node);
    localOf_.push_back(static_cast<uint32_t>(members_[node].size()));
    members_[node].push_back(rank);
  }
  for (const auto& node : members_) rails_ = std::max(rails_, static_cast<uint32_t>(node.size()));
  for (const auto& node : members_) {
    const auto size = static_cast<uint32_t>(node.size());
    maxRailSlots_ = std::max(maxRailSlots_, (rails_ + size - 1) / size);
  }
}

}  // namespace vcoll
