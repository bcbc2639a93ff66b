// SPDX-License-Identifier: Apache-2.0
#include "transport/sim/sim_port.h"

#include <algorithm>
#include <cstring>

#include "base/types.h"
#include "transport/sim/elements.h"

namespace vcoll::sim {

using kernels::Counter;

namespace {
constexpr uint64_t kPieceElements = 256;  // of a copy or a reduction, between two chances to pause
}

SimPort::SimPort(SimCluster& cluster, SimCluster::Lane& lane)
    : cluster_(cluster),
      lane_(lane),
      rank_(*cluster.ranks_[lane.rank]),
      call_(cluster.call(rank_.call)),
      callIndex_(rank_.call),
      view_(cluster.plan(call_.plan, lane.rank).view()),
      spec_(cluster.plan(call_.plan, lane.rank).spec()),
      partialFactor_(spec_.partialsFp32 && typeInfo(spec_.type)->size == 2 ? 2 : 1) {}

void SimPort::enter() {
  cluster_.pausePoint(lane_);
  ++lane_.entered;
  cluster_.wakeNode(rank_.rank, lane_.index);
}

bool SimPort::entered(uint32_t local) {
  cluster_.pausePoint(lane_);
  if (is(Mutant::kIgnoreEntered)) return true;
  return localRank(local).lanes[lane_.index]->entered >= lane_.entered;
}

void SimPort::leave() {
  cluster_.pausePoint(lane_);
  ++lane_.left;
  cluster_.wakeNode(rank_.rank, lane_.index);
}

bool SimPort::left(uint32_t local) {
  cluster_.pausePoint(lane_);
  if (is(Mutant::kIgnoreLeft)) return true;
  return localRank(local).lanes[lane_.index]->left >= lane_.entered;
}

uint64_t SimPort::counter(Counter counter, uint32_t id) {
  cluster_.pausePoint(lane_);
  if (is(Mutant::kIgnoreReady) && counter == Counter::kReady) return UINT64_MAX;
  if (is(Mutant::kIgnoreCredit) && counter == Counter::kCredit) return rank_.partialsSent[id];
  return rank_.counters[static_cast<uint32_t>(counter)][id];
}

uint64_t SimPort::arrived(uint32_t local, uint32_t id) {
  cluster_.pausePoint(lane_);
  const bool shared = is(Mutant::kSharedCounter);
  return localRank(local).counters[static_cast<uint32_t>(Counter::kArrived)][shared ? 0 : id];
}

void SimPort::signal(uint32_t peer, Counter counter, uint32_t id) {
  cluster_.pausePoint(lane_);
  if (counter == Counter::kCredit && creditsToSkip_ > 0) {
    --creditsToSkip_;
    return;
  }
  Post post{};
  post.kind = Post::kSignal;
  post.counter = counter;
  post.id = id;
  post.src = rank_.rank;
  post.dst = peer;
  post.lane = lane_.index;
  post.call = callIndex_;
  cluster_.network_.post(post);
}

bool SimPort::ready(uint32_t peer) {
  cluster_.pausePoint(lane_);
  return lane_.putsTo[peer] < cluster_.options_.maxPuts;
}

void SimPort::put(uint32_t peer, uint32_t local, uint64_t offset, uint64_t bytes, uint32_t id) {
  cluster_.pausePoint(lane_);
  checkSource("put", local, offset, bytes);
  if (lane_.putsTo[peer] >= cluster_.options_.maxPuts) {
    cluster_.stop(fmt::format("rank {} puts to rank {} without room", rank_.rank, peer));
  }
  if (cluster_.topology_.nodeOf(peer) == view_.node) {
    cluster_.stop(fmt::format("rank {} puts to rank {} of its own node", rank_.rank, peer));
  }
  if (static_cast<uint32_t>(cluster_.segmentOf(call_.plan, offset, bytes)->owner) == peer) {
    cluster_.stop(fmt::format("rank {} puts into the segment that rank {} itself owns", rank_.rank, peer));
  }
  Post post{};
  post.kind = Post::kPut;
  post.counter = Counter::kArrived;
  post.id = id;
  post.src = rank_.rank;
  post.dst = peer;
  post.lane = lane_.index;
  post.call = callIndex_;
  post.bytes = bytes;
  post.from = view_.localRanks[local];
  post.window = call_.src;
  post.offset = call_.srcOffset + offset;
  cluster_.network_.post(post);
}

void SimPort::pull(uint32_t owner, uint32_t local, uint64_t offset, uint64_t bytes) {
  cluster_.pausePoint(lane_);
  if (!pulls()) cluster_.stop("a rank pulls where agents deliver");
  checkSource("pull", local, offset, bytes);
  checkOwner("pull", owner, offset, bytes);
  copyTo("pull", rank_.rank, view_.localRanks[local], offset, bytes);
  rank_.gathered += bytes;
}

void SimPort::landed(uint32_t owner, uint64_t offset, uint64_t bytes) {
  cluster_.pausePoint(lane_);
  checkSegment("landed", offset, bytes);
  checkOwner("landed", owner, offset, bytes);
  rank_.gathered += bytes;
}

void SimPort::deliver(uint32_t local, uint64_t offset, uint64_t bytes) {
  cluster_.pausePoint(lane_);
  if (pulls()) cluster_.stop("an agent delivers where ranks pull");
  checkSource("deliver", local, offset, bytes);
  for (uint32_t to = 0; to < view_.localCount; ++to) {
    if (to != local) copyTo("deliver", view_.localRanks[to], view_.localRanks[local], offset, bytes);
  }
}

bool SimPort::flushed() {
  cluster_.pausePoint(lane_);
  return is(Mutant::kEarlyFlush) || lane_.unread == 0;
}

void SimPort::checkSegment(const char* what, uint64_t offset, uint64_t bytes) {
  if (cluster_.segmentOf(call_.plan, offset, bytes) == nullptr) {
    cluster_.stop(
        fmt::format("{} of rank {} goes outside the segments (offset {}, bytes {})", what, rank_.rank, offset, bytes));
  }
}

void SimPort::checkOwner(const char* what, uint32_t owner, uint64_t offset, uint64_t bytes) {
  const auto actual = static_cast<uint32_t>(cluster_.segmentOf(call_.plan, offset, bytes)->owner);
  if (actual != owner) {
    cluster_.stop(
        fmt::format("{} of rank {} names rank {} as the owner of rank {}'s bytes", what, rank_.rank, owner, actual));
  }
}

void SimPort::checkInside(const char* what, uint32_t rank) {
  if (!cluster_.mayTouch(rank, callIndex_)) {
    cluster_.stop(
        fmt::format("{} of rank {} touches rank {}'s window outside call {}", what, rank_.rank, rank, callIndex_));
  }
}

void SimPort::checkSource(const char* what, uint32_t local, uint64_t offset, uint64_t bytes) {
  checkSegment(what, offset, bytes);
  const auto owner = static_cast<uint32_t>(cluster_.segmentOf(call_.plan, offset, bytes)->owner);
  const bool ownNode = cluster_.topology_.nodeOf(owner) == view_.node;
  if (ownNode ? view_.localRanks[local] == owner : local < view_.localCount) return;
  cluster_.stop(fmt::format("{} of rank {} reads from local rank {}, but rank {} owns the bytes", what, rank_.rank,
                            local, owner));
}

void SimPort::copyTo(const char* what, uint32_t to, uint32_t from, uint64_t offset, uint64_t bytes) {
  if (static_cast<uint32_t>(cluster_.segmentOf(call_.plan, offset, bytes)->owner) == to) {
    cluster_.stop(fmt::format("{} of rank {} writes into the segment that rank {} itself owns", what, rank_.rank, to));
  }
  const uint64_t begin = call_.srcOffset + offset;
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t piece = std::min<uint64_t>(bytes - done, 4 * kPieceElements);
    checkInside(what, from);
    checkInside(what, to);
    std::memcpy(cluster_.window(to, call_.src) + begin + done, cluster_.window(from, call_.src) + begin + done, piece);
    done += piece;
    cluster_.pausePoint(lane_);
  }
}

void SimPort::reduce(const kernels::ReduceStep& step) {
  cluster_.pausePoint(lane_);
  checkSegment("reduce", step.chunk.offset, step.chunk.bytes);
  if (is(Mutant::kCreditEarly)) {
    for (uint32_t e = 0; e < step.partialCount; ++e)
      signal(step.partials[e].peer, Counter::kCredit, step.partials[e].farId);
    creditsToSkip_ = step.partialCount;
    if (step.partialCount > 0) cluster_.pause(lane_);
  }
  switch (spec_.type) {
    case vcollUint8:
      return reduceAs<Integer<uint8_t>, Integer<uint8_t>>(step);
    case vcollInt32:
    case vcollUint32:
      return reduceAs<Integer<uint32_t>, Integer<uint32_t>>(step);
    case vcollInt64:
    case vcollUint64:
      return reduceAs<Integer<uint64_t>, Integer<uint64_t>>(step);
    case vcollFloat32:
      return reduceAs<Float32, Float32>(step);
    case vcollBfloat16:
      return spec_.partialsFp32 ? reduceAs<Bfloat16, Float32>(step) : reduceAs<Bfloat16, Bfloat16>(step);
    default:
      cluster_.stop(fmt::format("the simulator does not sum type {}", static_cast<int>(spec_.type)));
  }
}

template <typename Source, typename Partial>
void SimPort::reduceAs(const kernels::ReduceStep& step) {
  using Sum = typename Source::Sum;
  const bool last = !step.queue->hasUp;
  const uint64_t elements = step.chunk.bytes / Source::kBytes;
  Ring* out = nullptr;
  if (!last) {
    out = &cluster_.ring(rank_.outRings, step.outId);
    if (out->states[step.outSlot] != Ring::kFree) {
      cluster_.stop(fmt::format("rank {} writes out slot {} of ring {} before it was read", rank_.rank, step.outSlot,
                                step.outId));
    }
    out->states[step.outSlot] = Ring::kFilling;
  }
  for (uint64_t done = 0; done < elements;) {
    const uint64_t count = std::min(elements - done, kPieceElements);
    Sum sums[kPieceElements] = {};
    const uint64_t begin = call_.srcOffset + step.chunk.offset + done * Source::kBytes;
    for (uint32_t local = 0; local < view_.localCount; ++local) {
      checkInside("reduce", view_.localRanks[local]);
      const std::byte* from = cluster_.window(view_.localRanks[local], call_.src) + begin;
      for (uint64_t i = 0; i < count; ++i) sums[i] += Source::load(from + i * Source::kBytes);
    }
    for (uint32_t e = 0; e < step.partialCount; ++e) {
      const uint32_t id = step.partials[e].nearId;
      const Ring& ring = cluster_.ring(rank_.inRings, id);
      const uint64_t slot = (step.partialBase[id] + step.index) % view_.slots;
      if (ring.states[slot] != Ring::kFull) {
        cluster_.stop(
            fmt::format("rank {} reads slot {} of ring {} before its bytes are visible", rank_.rank, slot, id));
      }
      const std::byte* from = ring.bytes.data() + slot * ring.slotBytes + done * Partial::kBytes;
      for (uint64_t i = 0; i < count; ++i) sums[i] += Partial::load(from + i * Partial::kBytes);
    }
    if (last) {
      const uint32_t owner = view_.localRanks[step.ownerLocal];
      checkInside("reduce", owner);
      if (static_cast<uint32_t>(cluster_.segmentOf(call_.plan, step.chunk.offset, step.chunk.bytes)->owner) != owner) {
        cluster_.stop(fmt::format("rank {} stores a sum at rank {}, which does not own it", rank_.rank, owner));
      }
      std::byte* to = cluster_.window(owner, call_.dst) + call_.dstOffset + step.chunk.offset + done * Source::kBytes;
      for (uint64_t i = 0; i < count; ++i) Source::store(to + i * Source::kBytes, sums[i]);
    } else {
      std::byte* to = out->bytes.data() + step.outSlot * out->slotBytes + done * Partial::kBytes;
      for (uint64_t i = 0; i < count; ++i) Partial::store(to + i * Partial::kBytes, sums[i]);
    }
    done += count;
    cluster_.pausePoint(lane_);
  }
  for (uint32_t e = 0; e < step.partialCount; ++e) {
    const uint32_t id = step.partials[e].nearId;
    cluster_.ring(rank_.inRings, id).states[(step.partialBase[id] + step.index) % view_.slots] = Ring::kFree;
  }
  if (!last) out->states[step.outSlot] = Ring::kFull;
}

void SimPort::putPartial(uint32_t peer, uint32_t outId, uint32_t slot, uint64_t bytes, uint32_t ringId) {
  cluster_.pausePoint(lane_);
  if (bytes == 0 || partialBytes(bytes) > cluster_.layout_.slotBytesOfId(outId)) {
    cluster_.stop(fmt::format("rank {} puts a partial sum of {} bytes", rank_.rank, bytes));
  }
  if (lane_.putsTo[peer] >= cluster_.options_.maxPuts) {
    cluster_.stop(fmt::format("rank {} puts to rank {} without room", rank_.rank, peer));
  }
  if (cluster_.ring(rank_.outRings, outId).states[slot] != Ring::kFull) {
    cluster_.stop(fmt::format("rank {} puts from out slot {} of ring {}, which holds no sum", rank_.rank, slot, outId));
  }
  ++rank_.partialsSent[outId];
  Post post{};
  post.kind = Post::kPartial;
  post.counter = Counter::kPartial;
  post.id = ringId;
  post.src = rank_.rank;
  post.dst = peer;
  post.lane = lane_.index;
  post.call = callIndex_;
  post.bytes = partialBytes(bytes);
  post.outId = outId;
  post.slot = slot;
  cluster_.network_.post(post);
}

}  // namespace vcoll::sim
