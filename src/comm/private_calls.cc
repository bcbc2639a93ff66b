// SPDX-License-Identifier: Apache-2.0
// Collectives on private buffers: rounds of small plans over the staging memory (comm/private_shape.h). A rank copies
// in what others read, runs the round, and its port copies straight into the private destination. Nobody waits for the
// end of a round: before a half of the staging memory is used again, all local ranks must have left the round that used
// it last.
#include <algorithm>

#include "base/params.h"
#include "base/types.h"
#include "comm/comm.h"
#include "transport/host/reduce.h"

namespace vcoll {

namespace {
// Shapes kept; the least recently used goes first. Calls are the same on all ranks, so all keep the same ones.
constexpr size_t kMaxShapes = 128;

// Total from which one copy at the kernel's speed beats two at the caches', where every rank has a core of its own.
// With fewer cores staging won or drew at all sizes (docs/performance.md), and for ReduceScatterV always.
constexpr uint64_t kDirectBytes = 48u << 10;

RecordFields recordOf(const PrivateShape& shape, vcollRedOp_t op) {
  RecordFields record(shape.kind());
  record.words[RecordFields::kType] = static_cast<uint64_t>(shape.type());
  record.words[RecordFields::kOp] = static_cast<uint64_t>(op);
  record.words[RecordFields::kBytes] = shape.totalBytes();
  record.words[RecordFields::kDigest] = shape.digest();
  return record;
}

uintptr_t addressOf(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }
}  // namespace

Status Comm::shapeFor(CallKind kind, vcollDataType_t type, vcollRedOp_t op, const std::vector<size_t>& counts,
                      PrivateShape** shape) {
  const auto found = std::find_if(shapes_.begin(), shapes_.end(), [&](const auto& entry) {
    return entry->kind() == kind && entry->type() == type && entry->counts() == counts;
  });
  if (found != shapes_.end()) {
    *shape = found->get();
    (*shape)->lastUse = ++shapeClock_;
    return {};
  }
  std::unique_ptr<PrivateShape> made;
  uint64_t total = 0;
  VCOLL_TRY(totalBytesOf(counts.data(), static_cast<uint32_t>(counts.size()), type, &total));
  VCOLL_TRY(PrivateShape::build(kind, type, counts, topology(), fabric_->flow(), static_cast<uint32_t>(rank()),
                                isDirect(kind, total) ? 0 : fabric_->staging().bytes / 2, fabric_->roomy(), &made));
  fabric_->beginControl(recordOf(*made, op));
  std::vector<uint64_t> table = {static_cast<uint64_t>(type)};
  table.insert(table.end(), counts.begin(), counts.end());
  VCOLL_TRY(agree(kind, made->digest(), table,
                  [](size_t i) { return i == 0 ? std::string("type") : formatText("recvcounts[{}]", i - 1); }));
  for (uint64_t round = 0; round < made->rounds(); ++round) VCOLL_TRY(fabric_->connect(made->planOfRound(round)));

  if (shapes_.size() == kMaxShapes) {
    shapes_.erase(std::min_element(shapes_.begin(), shapes_.end(),
                                   [](const auto& a, const auto& b) { return a->lastUse < b->lastUse; }));
  }
  made->lastUse = ++shapeClock_;
  *shape = made.get();
  shapes_.push_back(std::move(made));
  return {};
}

bool Comm::isDirect(CallKind kind, uint64_t totalBytes) const {
  if (kind != CallKind::kAllGatherV || totalBytes == 0 || !fabric_->readsPeers()) return false;
  if (params().directBytes >= 0) return totalBytes >= static_cast<uint64_t>(params().directBytes);
  return fabric_->roomy() && totalBytes >= kDirectBytes;
}

Status Comm::useHalf(uint64_t* offset) {
  const uint64_t half = halfTurn_++ % 2;
  *offset = half * (fabric_->staging().bytes / 2);
  return lastUseOfHalf_[half] == 0 ? Status() : fabric_->waitUntilLeft(lastUseOfHalf_[half]);
}

Status Comm::runPrivateAllGatherV(const unsigned char* send, unsigned char* recv, const std::vector<size_t>& counts,
                                  const std::vector<uint64_t>& displacementBytes, vcollDataType_t type) {
  fabric_->beginCall();
  PrivateShape* shape = nullptr;
  VCOLL_TRY(shapeFor(CallKind::kAllGatherV, type, vcollSum, counts, &shape));
  const auto me = static_cast<uint32_t>(rank());
  const auto placeOf = [&](uint32_t r) { return displacementBytes.empty() ? shape->begin(r) : displacementBytes[r]; };
  if (isDirect(CallKind::kAllGatherV, shape->totalBytes())) {
    return runDirectAllGatherV(*shape, send, recv, displacementBytes);
  }
  const HostWindow& staging = fabric_->staging();
  for (uint64_t round = 0; round < shape->rounds(); ++round) {
    uint64_t half = 0;
    VCOLL_TRY(useHalf(&half));
    const uint64_t ownBytes = shape->pieceBytes(me, round);
    if (ownBytes > 0 && size() > 1) {
      copyBytes(staging.bases[topology().localOf(me)] + half + shape->stagedAt(me), send + shape->pieceBegin(me, round),
                ownBytes, false);
    }
    for (size_t local = 0; local < sources_.size(); ++local) sources_[local] = addressOf(staging.bases[local]) + half;
    for (uint32_t r = 0; r < counts.size(); ++r) {
      ownByOwner_[r] = addressOf(recv) + placeOf(r) + shape->pieceBegin(r, round) - shape->stagedAt(r);
    }
    HostCall call;
    call.kind = CallKind::kAllGatherV;
    call.plan = &shape->planOfRound(round);
    call.record = recordOf(*shape, vcollSum);
    call.sources = sources_.data();
    call.ownByOwner = ownByOwner_.data();
    call.window = staging.id;
    call.windowOffset = half;
    call.deferLeave = true;
    VCOLL_TRY(fabric_->run(call, &lastUseOfHalf_[(halfTurn_ - 1) % 2]));
  }
  if (shape->bytes(me) > 0 && send != recv + placeOf(me)) copyBytes(recv + placeOf(me), send, shape->bytes(me), false);
  return {};
}

Status Comm::runDirectAllGatherV(const PrivateShape& shape, const unsigned char* send, unsigned char* recv,
                                 const std::vector<uint64_t>& displacementBytes) {
  const auto me = static_cast<uint32_t>(rank());
  const auto placeOf = [&](uint32_t r) { return displacementBytes.empty() ? shape.begin(r) : displacementBytes[r]; };
  for (uint32_t r = 0; r < ownByOwner_.size(); ++r) {
    ownByOwner_[r] = addressOf(recv) + placeOf(r) - shape.begin(r);
    ownSources_[r] = shape.begin(r);  // a send buffer holds its rank's part alone
  }
  HostCall call;
  call.kind = CallKind::kAllGatherV;
  call.plan = &shape.planOfRound(0);
  call.record = recordOf(shape, vcollSum);
  call.sources = sources_.data();
  call.ownByOwner = ownByOwner_.data();
  call.ownSources = ownSources_.data();
  call.sendAddress = send != nullptr ? send : recv;  // a rank without data is not read
  uint64_t sequence = 0;
  if (shape.bytes(me) > 0 && send != recv + placeOf(me)) copyBytes(recv + placeOf(me), send, shape.bytes(me), false);
  return fabric_->run(call, &sequence);
}

Status Comm::runPrivateReduceScatterV(const unsigned char* send, unsigned char* recv, const std::vector<size_t>& counts,
                                      vcollDataType_t type, vcollRedOp_t op) {
  fabric_->beginCall();
  PrivateShape* shape = nullptr;
  VCOLL_TRY(shapeFor(CallKind::kReduceScatterV, type, op, counts, &shape));
  const auto me = static_cast<uint32_t>(rank());
  const uint32_t node = topology().nodeOf(me);
  const uint32_t local = topology().localOf(me);
  const HostWindow& staging = fabric_->staging();
  for (uint64_t round = 0; round < shape->rounds(); ++round) {
    uint64_t half = 0;
    VCOLL_TRY(useHalf(&half));
    for (uint32_t r = 0; r < counts.size(); ++r) {
      const uint64_t from = shape->begin(r) + shape->pieceBegin(r, round);
      const uint64_t bytes = shape->pieceBytes(r, round);
      ownSources_[r] = addressOf(send) + from - shape->stagedAt(r);
      ownByOwner_[r] = addressOf(recv) + shape->pieceBegin(r, round) - shape->stagedAt(r);
      // The agent of r's rail reads its own part where it is.
      if (bytes > 0 && topology().agentLocal(node, topology().localOf(r)) != local) {
        copyBytes(staging.bases[local] + half + shape->stagedAt(r), send + from, bytes, false);
      }
    }
    for (size_t i = 0; i < sources_.size(); ++i) sources_[i] = addressOf(staging.bases[i]) + half;
    HostCall call;
    call.kind = CallKind::kReduceScatterV;
    call.plan = &shape->planOfRound(round);
    call.op = op;
    call.record = recordOf(*shape, op);
    call.sources = sources_.data();
    call.ownByOwner = ownByOwner_.data();
    call.ownSources = ownSources_.data();
    call.deferLeave = true;
    VCOLL_TRY(fabric_->run(call, &lastUseOfHalf_[(halfTurn_ - 1) % 2]));
  }
  return {};
}

}  // namespace vcoll
