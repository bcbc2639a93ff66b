// SPDX-License-Identifier: Apache-2.0
#include "comm/private_shape.h"

#include <algorithm>

#include "base/hash.h"
#include "base/params.h"
#include "base/types.h"

namespace vcoll {

namespace {
constexpr uint64_t kPieceAlign = 64;  // staged pieces start on cache lines of their own
// Short rounds: a round's hand-over costs about a microsecond between cores, and what was just staged is still in their
// caches.
constexpr uint64_t kShortRounds = 8;
constexpr uint64_t kMinRoundBytes = 128u << 10;
constexpr uint64_t kMaxRoundBytes = 512u << 10;
}  // namespace

Status totalBytesOf(const size_t* counts, uint32_t ranks, vcollDataType_t type, uint64_t* total) {
  const uint64_t elementBytes = typeInfo(type)->size;
  uint64_t sum = 0;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(uint64_t{counts[rank]}, elementBytes, &bytes) ||
        __builtin_add_overflow(sum, bytes, &sum) || sum > INT64_MAX) {
      return makeError(vcollInvalidArgument, "recvcounts[{}] = {}: the sum of the counts overflows", rank,
                       counts[rank]);
    }
  }
  *total = sum;
  return {};
}

Status PrivateShape::build(CallKind kind, vcollDataType_t type, const std::vector<size_t>& counts,
                           const Topology& topology, const FlowLayout& flow, uint32_t rank, uint64_t halfBytes,
                           bool shortRounds, std::unique_ptr<PrivateShape>* shape) {
  std::unique_ptr<PrivateShape> made(new PrivateShape);
  const auto ranks = static_cast<uint32_t>(counts.size());
  const uint64_t elementBytes = typeInfo(type)->size;
  made->kind_ = kind;
  made->type_ = type;
  made->counts_ = counts;
  VCOLL_TRY(totalBytesOf(counts.data(), ranks, type, &made->totalBytes_));

  Digest digest;
  digest.add(static_cast<uint64_t>(kind));
  digest.add(type);
  made->begins_.push_back(0);
  for (const size_t count : counts) {
    digest.add(count);
    made->begins_.push_back(made->begins_.back() + count * elementBytes);
  }
  made->digest_ = digest.value();

  // Room for aligning every rank's piece is set aside first.
  const uint64_t slack = 2 * kPieceAlign * ranks;
  const bool direct = halfBytes == 0;
  if (!direct && slack >= halfBytes / 2) {
    return makeError(vcollInvalidArgument, "VCOLL_STAGING_BYTES = {} is too small for {} ranks", 2 * halfBytes, ranks);
  }
  uint64_t room = direct ? UINT64_MAX : halfBytes - slack;
  if (shortRounds && !direct)
    room = std::min(room, std::clamp(made->totalBytes_ / kShortRounds, kMinRoundBytes, kMaxRoundBytes));
  uint64_t staged = 0;
  for (uint32_t r = 0; r < ranks; ++r) {
    const uint64_t bytes = made->bytes(r);
    uint64_t piece = bytes;
    if (made->totalBytes_ > room) {
      // The product needs more than 64 bits.
      piece = static_cast<uint64_t>(static_cast<unsigned __int128>(room) * bytes / made->totalBytes_);
      piece = std::max<uint64_t>(piece / kPieceAlign * kPieceAlign, bytes == 0 ? 0 : kPieceAlign);
    }
    made->perRound_.push_back(piece);
    made->stagedAt_.push_back(direct ? made->begins_[r] : staged);
    staged += (piece + kPieceAlign - 1) / kPieceAlign * kPieceAlign;
    if (bytes > 0) made->rounds_ = std::max(made->rounds_, (bytes + piece - 1) / piece);
  }

  // A round's shape changes only where some rank's bytes end.
  std::vector<uint64_t> ends;
  for (uint32_t r = 0; r < ranks; ++r) {
    const uint64_t piece = made->perRound_[r];
    if (piece == 0) continue;
    const uint64_t full = made->bytes(r) / piece;
    if (full > 0) ends.push_back(full - 1);
    if (made->bytes(r) % piece != 0) ends.push_back(full);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  for (const uint64_t last : ends) {
    PlanSpec spec;
    spec.type = type;
    spec.lanes = 1;  // HostFabric::waitUntilLeft asks lane 0
    spec.chunkBytes = static_cast<uint64_t>(params().chunkBytes);
    spec.partialsFp32 = params().partials == "fp32";
    spec.path = params().path == "star" ? vcollPathStar : params().path == "chain" ? vcollPathChain : vcollPathAuto;
    // Sums go straight to the owner's private memory, which only the owner can write; so can copies, within one node.
    const bool ownerRail = kind == CallKind::kReduceScatterV || topology.nodes() == 1;
    spec.rails = ownerRail ? RailPolicy::kOwnerRail : RailPolicy::kStripe;
    for (uint32_t r = 0; r < ranks; ++r) {
      const uint64_t bytes = made->pieceBytes(r, last);
      if (bytes > 0) spec.segments.push_back({static_cast<int32_t>(r), 0, made->stagedAt_[r], bytes});
    }
    std::unique_ptr<Plan> plan;
    VCOLL_TRY(Plan::build(spec, topology, flow, rank, &plan));
    made->plans_.push_back(std::move(plan));
    made->lastRound_.push_back(last);
  }
  *shape = std::move(made);
  return {};
}

uint64_t PrivateShape::pieceBegin(uint32_t rank, uint64_t round) const {
  return std::min(bytes(rank), round * perRound_[rank]);
}

const Plan& PrivateShape::planOfRound(uint64_t round) const {
  const auto found = std::lower_bound(lastRound_.begin(), lastRound_.end(), round);
  return *plans_[static_cast<size_t>(found - lastRound_.begin())];
}

}  // namespace vcoll
