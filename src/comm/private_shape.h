// SPDX-License-Identifier: Apache-2.0
// How a call on private buffers of one shape (kind, type, counts) runs through staging memory: in rounds, each a small
// plan. Every rank's part is cut in proportion, so that all parts end together.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "topology/plan.h"
#include "transport/host/host_fabric.h"

namespace vcoll {

class PrivateShape {
 public:
  // Pure. halfBytes: staging memory of one round. shortRounds: cut smaller, so that copying in overlaps with copying
  // out.
  static Status build(CallKind kind, vcollDataType_t type, const std::vector<size_t>& counts, const Topology& topology,
                      const FlowLayout& flow, uint32_t rank, uint64_t halfBytes, bool shortRounds,
                      std::unique_ptr<PrivateShape>* shape);

  CallKind kind() const { return kind_; }
  vcollDataType_t type() const { return type_; }
  const std::vector<size_t>& counts() const { return counts_; }
  uint64_t totalBytes() const { return totalBytes_; }
  uint64_t digest() const { return digest_; }
  uint64_t rounds() const { return rounds_; }
  const Plan& planOfRound(uint64_t round) const;

  // Rank r's bytes in one array: where they start (packed in rank order), which of them round `round` carries, and
  // where those are staged.
  uint64_t begin(uint32_t rank) const { return begins_[rank]; }
  uint64_t bytes(uint32_t rank) const { return begins_[rank + 1] - begins_[rank]; }
  uint64_t pieceBegin(uint32_t rank, uint64_t round) const;
  uint64_t pieceBytes(uint32_t rank, uint64_t round) const {
    return pieceBegin(rank, round + 1) - pieceBegin(rank, round);
  }
  uint64_t stagedAt(uint32_t rank) const { return stagedAt_[rank]; }

  uint64_t lastUse = 0;  // for the cache

 private:
  PrivateShape() = default;

  CallKind kind_ = CallKind::kNone;
  vcollDataType_t type_ = vcollUint8;
  std::vector<size_t> counts_;
  uint64_t totalBytes_ = 0;
  uint64_t digest_ = 0;
  uint64_t rounds_ = 0;
  std::vector<uint64_t> begins_;
  std::vector<uint64_t> perRound_;  // bytes of a rank that a full round carries
  std::vector<uint64_t> stagedAt_;
  // Rounds that carry the same bytes share a plan: planOfLast_[i] serves rounds up to and including lastRound_[i].
  std::vector<uint64_t> lastRound_;
  std::vector<std::unique_ptr<Plan>> plans_;
};

// Sum of counts in bytes; vcollInvalidArgument when it overflows.
Status totalBytesOf(const size_t* counts, uint32_t ranks, vcollDataType_t type, uint64_t* total);

}  // namespace vcoll
