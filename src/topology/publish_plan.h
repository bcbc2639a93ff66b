// SPDX-License-Identifier: Apache-2.0
// What a PublishStream's manifest means for one rank: which rails it serves, in which queues its items travel, and over
// which hops. Pure: no communication here.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "kernels/publish.h"
#include "topology/topology.h"
#include "vcoll/vcoll.h"

namespace vcoll {

struct PublishSpec {
  std::vector<vcollPublishItem_t> items;  // of all owners
  uint64_t windowBytes = 0;
  uint32_t copies = 1;
  uint64_t copyStride = 0;
  uint64_t chunkBytes = 65536;
  bool longChunks = false;  // build may enlarge chunkBytes where queues are long
  vcollPath_t path = vcollPathAuto;
};

// vcollInvalidArgument naming items[i] and the value: owner not a rank, reserved not 0, outside the window.
Status checkPublishItem(const vcollPublishItem_t& item, size_t index, uint32_t ranks, const PublishSpec& spec);

class PublishPlan {
 public:
  // One rail that this rank serves.
  struct Rail {
    uint32_t rail;
    uint32_t firstItem;   // of items()
    uint64_t firstPlace;  // of its headers
    kernels::PublishView view;
  };

  // Sorts the items by rail, source node and id. vcollInvalidArgument: an id occurs twice, items overlap.
  static Status build(PublishSpec spec, const Topology& topology, uint32_t rank, PublishPlan* plan);
  PublishPlan() = default;
  PublishPlan(PublishPlan&&) = default;  // views point into vectors, which keep their memory
  PublishPlan& operator=(PublishPlan&&) = default;

  const PublishSpec& spec() const { return spec_; }
  const std::vector<vcollPublishItem_t>& items() const { return spec_.items; }
  vcollPath_t path() const { return path_; }
  const std::vector<Rail>& rails() const { return rails_; }
  const std::vector<int>& peers() const { return peers_; }
  // Index in items(), or -1.
  int64_t find(uint64_t id) const;
  uint64_t digest() const { return digest_; }  // of the manifest
  // Headers of all rails and copies.
  uint64_t places() const { return uint64_t{spec_.copies} * spec_.items.size(); }

 private:
  Status checkManifest() const;
  uint64_t longestQueue(const Topology& topology, uint64_t* longestRail) const;
  vcollPath_t choosePath(const Topology& topology) const;
  void makeRail(const Topology& topology, uint32_t rank, uint32_t rail, uint32_t begin, uint32_t end);

  PublishSpec spec_;
  vcollPath_t path_ = vcollPathChain;
  std::vector<kernels::PublishItem> items_;  // beside spec_.items
  std::vector<std::vector<kernels::PublishQueue>> queues_;
  std::vector<std::vector<kernels::Edge>> edges_;
  std::vector<Rail> rails_;
  std::vector<int> peers_;
  std::vector<uint32_t> byId_;
  uint64_t digest_ = 0;
};

}  // namespace vcoll
