// SPDX-License-Identifier: Apache-2.0
// A plan: a frozen segment table and everything derived from it, as one rank sees it. Pure: no communication here.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "kernels/pipeline.h"
#include "topology/topology.h"
#include "vcoll/vcoll.h"

namespace vcoll {

constexpr uint32_t kMaxLanes = 16;
constexpr uint32_t kPathKinds = 2;  // star and chain have counters and rings of their own

// How counters and slot rings are laid out: equal on all ranks of a communicator.
struct FlowLayout {
  uint32_t idsPerPath = 0;  // counters of one kind on one rank for one path
  uint32_t slots = 0;       // per ring
  uint64_t chainSlotBytes = 0;
  uint64_t starSlotBytes = 0;

  uint32_t ids() const { return idsPerPath * kPathKinds; }
  uint64_t slotBytes(vcollPath_t path) const { return path == vcollPathStar ? starSlotBytes : chainSlotBytes; }
  // Offset of slot 0 of the ring of a near or far id, in the rank's ring memory (in rings; out rings follow at
  // ringBytes()).
  uint64_t ringOffset(uint32_t id) const;
  uint64_t slotBytesOfId(uint32_t id) const { return id < idsPerPath ? starSlotBytes : chainSlotBytes; }
  uint64_t ringBytes() const { return uint64_t{slots} * idsPerPath * (chainSlotBytes + starSlotBytes); }
};
// Ring memory of a rank stays below kRingBudget as long as slots of at least 1 KiB allow it.
constexpr uint64_t kRingBudget = 3u << 20;
FlowLayout makeFlowLayout(const Topology& topology, uint32_t slots, uint64_t chunkBytes);

enum class RailPolicy {
  kStripe,     // a segment is cut over the rails; a small one rides one rail, rotated
  kOwnerRail,  // the owner itself is the agent of its segments on its node
};

struct PlanSpec {
  std::vector<vcollSegment_t> segments;
  vcollDataType_t type = vcollUint8;
  vcollPath_t path = vcollPathAuto;
  uint32_t lanes = 1;
  uint64_t chunkBytes = 65536;
  bool partialsFp32 = false;
  RailPolicy rails = RailPolicy::kStripe;
};

class Plan {
 public:
  // Errors: vcollInvalidArgument naming segment index and value (owner out of range, offset + bytes overflows, overlap,
  // not a multiple of the element size, reserved not 0, lanes or chunk out of range).
  static Status build(const PlanSpec& spec, const Topology& topology, const FlowLayout& layout, uint32_t rank,
                      std::unique_ptr<Plan>* plan);

  const kernels::PlanView& view() const { return view_; }
  const PlanSpec& spec() const { return spec_; }
  vcollPath_t path() const { return path_; }
  uint64_t digest() const { return digest_; }
  uint64_t totalBytes() const { return totalBytes_; }
  uint64_t extent() const { return extent_; }  // one past the last byte of any segment
  uint64_t chunkCount() const { return chunkCount_; }
  bool even() const { return even_; }
  double predictedUs() const { return predictedUs_; }
  // Ranks of other nodes this rank exchanges data with.
  const std::vector<int>& peers() const { return peers_; }

 private:
  Plan() = default;
  Status check(const Topology& topology);
  void makeSlices(const Topology& topology);
  void choose(const Topology& topology);
  void makeQueues(const Topology& topology, const FlowLayout& layout, uint32_t rank);

  PlanSpec spec_;
  vcollPath_t path_ = vcollPathChain;
  uint64_t digest_ = 0;
  uint64_t totalBytes_ = 0;
  uint64_t extent_ = 0;
  uint64_t chunkBytes_ = 0;  // of AllGatherV
  uint64_t chunkCount_ = 0;
  bool even_ = false;
  double predictedUs_ = 0;
  std::vector<std::vector<kernels::Slice>> slicesOfQueue_;  // by node * rails + rail, until makeQueues
  std::vector<kernels::Slice> slices_;
  std::vector<kernels::Queue> queues_;
  std::vector<kernels::Edge> edges_;
  std::vector<uint32_t> localRanks_;
  std::vector<int> peers_;
  kernels::PlanView view_{};
};

}  // namespace vcoll
