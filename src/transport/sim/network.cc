// SPDX-License-Identifier: Apache-2.0
#include "transport/sim/network.h"

#include <cstring>

#include "transport/sim/sim_cluster.h"

namespace vcoll::sim {

namespace {
enum Tag : uint32_t { kRead, kReadRest, kDeliver, kDeliverRest };
}

struct Network::Transfer final : Actor {
  void fire(uint32_t tag) override { network->fire(*this, tag); }
  Network* network = nullptr;
  Stream* stream = nullptr;
  Post post{};
  std::vector<std::byte> payload;
  uint64_t readCut = 0;  // where the reading and the landing break in two
  uint64_t deliverCut = 0;
  bool wasRead = false;
};

Network::Network(SimCluster& cluster) : cluster_(cluster) {}

Network::~Network() = default;

Network::Transfer* Network::take(const Post& post) {
  if (free_.empty()) {
    transfers_.push_back(std::make_unique<Transfer>());
    free_.push_back(transfers_.back().get());
  }
  Transfer* transfer = free_.back();
  free_.pop_back();
  Rng& rng = cluster_.scheduler_.rng();
  transfer->network = this;
  transfer->post = post;
  transfer->payload.resize(post.bytes);
  transfer->readCut = rng.oneIn(2) ? post.bytes : rng.below(post.bytes + 1);
  transfer->deliverCut = rng.oneIn(2) ? post.bytes : rng.below(post.bytes + 1);
  transfer->wasRead = post.kind == Post::kSignal;
  return transfer;
}

Network::Stream* Network::streamOf(const Post& post) {
  uint64_t key = uint64_t{post.src} << 48 | uint64_t{post.dst} << 32;
  if (cluster_.options_.order == Order::kStream || cluster_.options_.mutant == Mutant::kUnorderedStream) {
    key |= uint64_t{post.id} << 8 | static_cast<uint64_t>(post.counter) << 4;
  }
  if (cluster_.options_.mutant == Mutant::kUnorderedStream) key |= post.lane;
  std::unique_ptr<Stream>& stream = streams_[key];
  if (stream == nullptr) stream = std::make_unique<Stream>();
  return stream.get();
}

uint64_t Network::delay() {
  Rng& rng = cluster_.scheduler_.rng();
  const uint64_t usual = rng.below(cluster_.options_.maxDelay);
  return rng.oneIn(32) ? usual * 20 : usual;
}

void Network::post(const Post& post) {
  Transfer* transfer = take(post);
  if (post.kind != Post::kSignal) {
    SimCluster::Lane& lane = *cluster_.ranks_[post.src]->lanes[post.lane];
    ++lane.unread;
    ++lane.putsTo[post.dst];
    cluster_.scheduler_.after(delay(), transfer, kRead);
  }
  transfer->stream = streamOf(post);
  transfer->stream->queue.push_back(transfer);
  advance(*transfer->stream);
}

void Network::fire(Transfer& transfer, uint32_t tag) {
  const uint64_t bytes = transfer.post.bytes;
  switch (tag) {
    case kRead:
      read(transfer, 0, transfer.readCut);
      if (transfer.readCut < bytes) {
        cluster_.scheduler_.after(delay(), &transfer, kReadRest);
      } else {
        wasRead(transfer);
      }
      break;
    case kReadRest:
      read(transfer, transfer.readCut, bytes);
      wasRead(transfer);
      break;
    case kDeliver:
      if (cluster_.options_.mutant == Mutant::kSignalBeforeData) count(transfer);
      if (cluster_.options_.mutant != Mutant::kSignalBeforeData) deliver(transfer, 0, transfer.deliverCut);
      if (transfer.deliverCut < bytes || cluster_.options_.mutant == Mutant::kSignalBeforeData) {
        cluster_.scheduler_.after(delay(), &transfer, kDeliverRest);
      } else {
        complete(transfer);
      }
      break;
    case kDeliverRest:
      if (cluster_.options_.mutant == Mutant::kSignalBeforeData) deliver(transfer, 0, transfer.deliverCut);
      deliver(transfer, transfer.deliverCut, bytes);
      complete(transfer);
      break;
    default:
      break;
  }
}

void Network::read(Transfer& transfer, uint64_t begin, uint64_t end) {
  const Post& post = transfer.post;
  const std::byte* from = nullptr;
  if (post.kind == Post::kPut) {
    if (!cluster_.mayTouch(post.from, post.call)) {
      cluster_.fail(fmt::format("put of rank {} reads rank {}'s window outside call {} (offset {}, bytes {})", post.src,
                                post.from, post.call, post.offset, post.bytes));
      return;
    }
    from = cluster_.window(post.from, post.window) + post.offset;
  } else {
    const Ring& ring = cluster_.ring(cluster_.ranks_[post.src]->outRings, post.outId);
    from = ring.bytes.data() + post.slot * ring.slotBytes;
  }
  std::memcpy(transfer.payload.data() + begin, from + begin, end - begin);
}

void Network::wasRead(Transfer& transfer) {
  const Post& post = transfer.post;
  transfer.wasRead = true;
  --cluster_.ranks_[post.src]->lanes[post.lane]->unread;
  if (post.kind == Post::kPartial) {
    cluster_.ring(cluster_.ranks_[post.src]->outRings, post.outId).states[post.slot] = Ring::kFree;
  }
  cluster_.wake(post.src, post.lane);
  advance(*transfer.stream);
}

// The first transfer of a stream that has been read starts to land.
void Network::advance(Stream& stream) {
  if (stream.busy || stream.queue.empty() || !stream.queue.front()->wasRead) return;
  stream.busy = true;
  cluster_.scheduler_.after(delay(), stream.queue.front(), kDeliver);
}

void Network::deliver(Transfer& transfer, uint64_t begin, uint64_t end) {
  const Post& post = transfer.post;
  if (begin == end) return;
  std::byte* to = nullptr;
  if (post.kind == Post::kPut) {
    if (!cluster_.mayTouch(post.dst, post.call)) {
      cluster_.fail(fmt::format("put of rank {} writes rank {}'s window outside call {} (offset {}, bytes {})",
                                post.src, post.dst, post.call, post.offset, post.bytes));
      return;
    }
    to = cluster_.window(post.dst, post.window) + post.offset;
  } else {
    Ring& ring = cluster_.ring(cluster_.ranks_[post.dst]->inRings, post.id);
    uint32_t slot = post.slot;
    if (cluster_.options_.mutant == Mutant::kWrongSlot) slot = (slot + 1) % cluster_.layout_.slots;
    if (ring.states[slot] != (begin == 0 ? Ring::kFree : Ring::kFilling)) {
      cluster_.fail(fmt::format("partial sum of rank {} overwrites slot {} of ring {} of rank {} before it was read",
                                post.src, slot, post.id, post.dst));
      return;
    }
    ring.states[slot] = end == post.bytes ? Ring::kFull : Ring::kFilling;
    to = ring.bytes.data() + slot * ring.slotBytes;
  }
  std::memcpy(to + begin, transfer.payload.data() + begin, end - begin);
}

void Network::count(Transfer& transfer) {
  const Post& post = transfer.post;
  SimCluster::Rank& dst = *cluster_.ranks_[post.dst];
  Rng& rng = cluster_.scheduler_.rng();
  if (cluster_.options_.mutant == Mutant::kDropSignal && !dropped_ && post.counter != kernels::Counter::kCredit &&
      rng.oneIn(8)) {
    dropped_ = true;
    return;
  }
  const bool shared = cluster_.options_.mutant == Mutant::kSharedCounter && post.counter == kernels::Counter::kArrived;
  ++dst.counters[static_cast<uint32_t>(post.counter)][shared ? 0 : post.id];
  if (post.counter == kernels::Counter::kArrived) {
    cluster_.wakeNode(post.dst, post.lane);  // all ranks of the node look at it, in the same lane
  } else {
    // Any lane: a credit of an earlier call may come while another lane serves the hop.
    for (uint32_t lane = 0; lane < dst.lanes.size(); ++lane) cluster_.wake(post.dst, lane);
  }
}

void Network::complete(Transfer& transfer) {
  const Post& post = transfer.post;
  if (cluster_.options_.mutant != Mutant::kSignalBeforeData) count(transfer);
  if (post.kind != Post::kSignal) {
    --cluster_.ranks_[post.src]->lanes[post.lane]->putsTo[post.dst];
    cluster_.wake(post.src, post.lane);
  }
  Stream& stream = *transfer.stream;
  stream.queue.pop_front();
  stream.busy = false;
  free_.push_back(&transfer);
  advance(stream);
}

}  // namespace vcoll::sim
