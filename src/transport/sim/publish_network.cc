// SPDX-License-Identifier: Apache-2.0
#include "transport/sim/publish_network.h"

#include <cstring>

#include "transport/sim/publish_cluster.h"

namespace vcoll::sim {

using kernels::PublishCounter;

namespace {
enum Tag : uint32_t { kRead, kReadRest, kDeliver, kDeliverRest };
}

struct PublishNetwork::Transfer final : Actor {
  void fire(uint32_t tag) override { network->fire(*this, tag); }
  PublishNetwork* network = nullptr;
  Stream* stream = nullptr;
  PublishPost post{};
  std::vector<std::byte> payload;
  uint64_t readCut = 0;  // where the reading and the landing break in two
  uint64_t deliverCut = 0;
  bool wasRead = false;
};

PublishNetwork::PublishNetwork(PublishCluster& cluster) : cluster_(cluster) {}

PublishNetwork::~PublishNetwork() = default;

PublishNetwork::Transfer* PublishNetwork::take(const PublishPost& post) {
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
  transfer->wasRead = post.kind == PublishPost::kSignal;
  return transfer;
}

PublishNetwork::Stream* PublishNetwork::streamOf(const PublishPost& post) {
  const PublishMutant mutant = cluster_.options_.mutant;
  const bool unordered = mutant == PublishMutant::kUnordered;
  const bool apart = mutant == PublishMutant::kHeaderOvertakes && post.kind == PublishPost::kHeader;
  uint64_t key = uint64_t{post.src} << 56 | uint64_t{post.dst} << 48;
  if (cluster_.options_.order == Order::kStream || unordered || apart || post.helper > 0) {
    key |= uint64_t{post.rail} << 40 | uint64_t{post.id} << 32 | (static_cast<uint64_t>(post.counter) + 1) << 28 |
           uint64_t{post.helper} << 24;
  }
  if (unordered) key |= ++posts_ & 0xffffff;
  if (apart) key |= 1;
  std::unique_ptr<Stream>& stream = streams_[key];
  if (stream == nullptr) stream = std::make_unique<Stream>();
  return stream.get();
}

uint64_t PublishNetwork::delay() {
  Rng& rng = cluster_.scheduler_.rng();
  const uint64_t usual = rng.below(cluster_.options_.maxDelay);
  return rng.oneIn(32) ? usual * 20 : usual;
}

void PublishNetwork::post(const PublishPost& post) {
  Transfer* transfer = take(post);
  if (post.kind != PublishPost::kSignal) {
    ++cluster_.lane(post.src, post.rail).putsTo[post.helper][post.dst];
    ++cluster_.unread(post);
    cluster_.scheduler_.after(delay(), transfer, kRead);
  }
  transfer->stream = streamOf(post);
  transfer->stream->queue.push_back(transfer);
  advance(*transfer->stream);
}

// Nothing of a dead rank is read any more; of what was read, some still lands.
bool PublishNetwork::cut(const Transfer& transfer, uint32_t tag) {
  const PublishPost& post = transfer.post;
  if (cluster_.dead(post.dst)) return true;
  return cluster_.dead(post.src) && (tag == kRead || tag == kReadRest || cluster_.scheduler_.rng().oneIn(2));
}

void PublishNetwork::fire(Transfer& transfer, uint32_t tag) {
  if (cut(transfer, tag)) {
    transfer.stream->busy = true;
    return;
  }
  const uint64_t bytes = transfer.post.bytes;
  const bool early = cluster_.options_.mutant == PublishMutant::kSignalBeforeData;
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
      if (early) {
        count(transfer);
      } else {
        deliver(transfer, 0, transfer.deliverCut);
      }
      if (transfer.deliverCut < bytes || early) {
        cluster_.scheduler_.after(delay(), &transfer, kDeliverRest);
      } else {
        complete(transfer);
      }
      break;
    default:
      if (early) deliver(transfer, 0, transfer.deliverCut);
      deliver(transfer, transfer.deliverCut, bytes);
      complete(transfer);
      break;
  }
}

void PublishNetwork::read(Transfer& transfer, uint64_t begin, uint64_t end) {
  const std::byte* from = cluster_.memory(transfer.post.src, transfer.post);
  if (begin < end) std::memcpy(transfer.payload.data() + begin, from + begin, end - begin);
}

void PublishNetwork::wasRead(Transfer& transfer) {
  transfer.wasRead = true;
  --cluster_.unread(transfer.post);
  advance(*transfer.stream);
}

// The first transfer of a stream that has been read starts to land.
void PublishNetwork::advance(Stream& stream) {
  if (stream.busy || stream.queue.empty() || !stream.queue.front()->wasRead) return;
  stream.busy = true;
  cluster_.scheduler_.after(delay(), stream.queue.front(), kDeliver);
}

void PublishNetwork::deliver(Transfer& transfer, uint64_t begin, uint64_t end) {
  if (begin == end) return;
  PublishPost post = transfer.post;
  if (cluster_.options_.mutant == PublishMutant::kWrongCopy && post.kind == PublishPost::kPut) {
    cluster_.toOtherCopy(&post);
  } else {
    cluster_.checkLanding(post);
  }
  std::memcpy(cluster_.memory(post.dst, post) + begin, transfer.payload.data() + begin, end - begin);
}

void PublishNetwork::count(Transfer& transfer) {
  const PublishPost& post = transfer.post;
  PublishCluster::Lane& lane = cluster_.lane(post.dst, post.rail);
  if (cluster_.options_.mutant == PublishMutant::kDropSignal && !dropped_ && cluster_.scheduler_.rng().oneIn(8)) {
    dropped_ = true;
    return;
  }
  const bool arrival = post.counter >= PublishCounter::kArrived;
  const bool shared = cluster_.options_.mutant == PublishMutant::kSharedCounter && arrival;
  const bool twice = cluster_.options_.mutant == PublishMutant::kOpenTwice && post.counter == PublishCounter::kOpen;
  lane.counters[static_cast<uint32_t>(post.counter)][shared ? 0 : post.id] += twice ? 2 : 1;
  cluster_.wake(lane);
}

void PublishNetwork::complete(Transfer& transfer) {
  const PublishPost& post = transfer.post;
  if (cluster_.options_.mutant != PublishMutant::kSignalBeforeData) count(transfer);
  if (post.kind != PublishPost::kSignal) {
    PublishCluster::Lane& lane = cluster_.lane(post.src, post.rail);
    --lane.putsTo[post.helper][post.dst];
    cluster_.wake(lane);
  }
  Stream& stream = *transfer.stream;
  stream.queue.pop_front();
  stream.busy = false;
  free_.push_back(&transfer);
  advance(stream);
}

}  // namespace vcoll::sim
