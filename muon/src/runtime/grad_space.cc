// SPDX-License-Identifier: Apache-2.0
#include "runtime/grad_space.h"

#include <chrono>
#include <cstring>

namespace vmuon {
namespace {

std::vector<size_t> gradBytes(const Model& model) {
  std::vector<size_t> bytes;
  for (const LayerLayout& layer : model.layouts.layers) bytes.push_back(layer.gradBytes);
  return bytes;
}

}  // namespace

GradSpace::GradSpace(Cluster& cluster, const Model& model, vcollDataType_t type, bool perOwner, Sink sink)
    : cluster_(cluster),
      model_(model),
      slots_(cluster, cluster.world(), gradBytes(model), false, SlotSpace::Transit::kAfterUse),
      plans_(static_cast<size_t>(model.layers())),
      open_(static_cast<size_t>(model.layers())),
      sink_(std::move(sink)) {
  for (int l = 0; l < model.layers(); ++l) {
    for (const auto& part : splitSegments(model.layer(l).gradSegments, perOwner)) {
      plans_[static_cast<size_t>(l)].emplace_back(cluster.world(), part, type);
    }
  }
}

void GradSpace::begin(int layer) {
  Place& place = open_[static_cast<size_t>(layer)];
  // The layer's last gradient may still be leaving from where this one will be.
  if (inFlight_ == layer) finish();
  place = slots_.acquire(layer);
  slots_.use(layer);
  std::memset(place.data, 0, model_.layer(layer).gradBytes);
}

void GradSpace::end(int layer) {
  finish();
  const Place place = std::exchange(open_[static_cast<size_t>(layer)], Place{});
  for (const vcollSegment_t& segment : model_.layer(layer).gradSegments) {
    if (segment.owner != cluster_.rank()) bytes_ += segment.bytes;
  }
  if (place.direct) {
    reduce(layer, place, stream_.native());
    inFlight_ = layer;
    flying_ = place;
    return;
  }
  const auto begun = std::chrono::steady_clock::now();
  const Place staging = slots_.staging();
  std::memcpy(staging.data, place.data, model_.layer(layer).gradBytes);
  reduce(layer, staging, nullptr);
  wait_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  deliver(layer, staging.data);
  slots_.release(layer);
}

void GradSpace::reduce(int layer, const Place& place, vcollStream_t stream) {
  // In place: only an owner's own pieces are written.
  for (vcoll::Plan& plan : plans_[static_cast<size_t>(layer)]) {
    plan.reduceScatterV(slots_.window(), place.offset, slots_.window(), place.offset, vcollAvg, stream);
  }
}

void GradSpace::deliver(int layer, const std::byte* base) {
  for (const PieceSlot& slot : model_.layer(layer).pieces) {
    if (slot.owner == cluster_.rank() && slot.gradBytes > 0) sink_(slot.piece, base + slot.gradOffset);
  }
}

void GradSpace::finish() {
  if (inFlight_ < 0) return;
  const auto begun = std::chrono::steady_clock::now();
  stream_.synchronize();
  wait_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  const int layer = std::exchange(inFlight_, -1);
  deliver(layer, flying_.data);
  slots_.release(layer);
}

std::byte* GradSpace::data(int layer) const { return open_[static_cast<size_t>(layer)].data; }

}  // namespace vmuon
