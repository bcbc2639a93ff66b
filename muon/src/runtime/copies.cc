// SPDX-License-Identifier: Apache-2.0
#include "runtime/copies.h"

namespace vmuon {

LeaderCopies::LeaderCopies(Cluster& cluster, const Model& model, SlotSpace* resident)
    : cluster_(cluster),
      model_(model),
      places_(static_cast<size_t>(model.pieces()), nullptr),
      awaited_(static_cast<size_t>(model.layers())) {
  struct Here {
    int piece;
    int owner;
    size_t offset;
    size_t bytes;
  };
  std::vector<Here> all;
  for (int l = 0; l < model.layers(); ++l) {
    for (const PieceSlot& slot : model.layer(l).pieces) {
      if (cluster.leader(slot.owner) != cluster.gatherRank()) continue;
      const size_t offset = resident ? resident->offsetOf(l) + slot.paramOffset : bytes_;
      all.push_back({slot.piece, slot.owner, offset, slot.paramBytes});
      if (!resident) bytes_ += (slot.paramBytes + 63) / 64 * 64;
      if (!model.frozen(model.piece(slot.piece))) awaited_[static_cast<size_t>(l)].push_back(slot.piece);
    }
  }
  std::byte* base = resident ? resident->base() : nullptr;
  if (!resident) {
    memory_ = std::make_unique<vcoll::Memory>(std::max<size_t>(bytes_, 64));
    base = memory_->as<std::byte>();
  }
  for (const Here& here : all) places_[static_cast<size_t>(here.piece)] = base + here.offset;
  if (!cluster.replicated()) return;
  window_ = std::make_unique<vcoll::Window>(cluster.column(), base, resident ? resident->bytes() : memory_->bytes());
  std::vector<vcollPublishItem_t> items;
  for (const Here& here : all) {
    if (model.frozen(model.piece(here.piece))) continue;
    items.push_back({static_cast<uint64_t>(here.piece), cluster.nodeOf()[static_cast<size_t>(here.owner)], 0,
                     here.offset, here.bytes});
  }
  stream_ = std::make_unique<vcoll::PublishStream>(cluster.column(), *window_, items);
}

void LeaderCopies::begin() {
  ++version_;
  if (stream_) stream_->begin(version_);
}

void LeaderCopies::push(int piece) {
  if (!stream_) return;
  stream_->push(static_cast<uint64_t>(piece));
  const Piece& what = model_.piece(piece);
  pushedBytes_ += what.elements * dtypeBytes(model_.paramOf(what).spec.dtype);
}

void LeaderCopies::end() {
  if (stream_) stream_->end(version_);
}

void LeaderCopies::wait(int layer) {
  if (!stream_ || version_ == 0) return;
  for (const int piece : awaited_[static_cast<size_t>(layer)]) stream_->wait(static_cast<uint64_t>(piece), version_);
}

void LeaderCopies::drain() {
  if (!stream_) return;
  if (version_ > 0) stream_->waitAll(version_);
  cluster_.barrier();
}

}  // namespace vmuon
