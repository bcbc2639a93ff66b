// SPDX-License-Identifier: Apache-2.0
#include "runtime/slots.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/pool.h"

namespace vmuon {
namespace {

constexpr size_t kAlign = 64;

size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

SlotSpace::SlotSpace(Cluster& cluster, const vcoll::Comm& comm, std::vector<size_t> layerBytes, bool resident,
                     Transit transit)
    : cluster_(cluster),
      comm_(comm),
      layerBytes_(std::move(layerBytes)),
      isResident_(resident),
      transit_(transit),
      held_(layerBytes_.size()),
      private_(layerBytes_.size()),
      used_(layerBytes_.size(), false) {
  size_t bytes = 0;
  for (size_t& layer : layerBytes_) {
    layer = aligned(layer);
    resident_.push_back(bytes);
    if (isResident_)
      bytes += layer;
    else
      bytes = std::max(bytes, layer);
  }
  window_ = std::make_unique<Region>(comm_, std::max(bytes, kAlign));
}

bool SlotSpace::overlapsHeld(size_t offset, size_t bytes) const {
  for (size_t other = 0; other < held_.size(); ++other) {
    if (held_[other] && held_[other]->direct && offset < held_[other]->offset + layerBytes_[other] &&
        held_[other]->offset < offset + bytes) {
      return true;
    }
  }
  return false;
}

Place SlotSpace::acquire(int layer) {
  const auto index = static_cast<size_t>(layer);
  if (heldCount_ == 0 && !order_.empty() && order_.front().layer == layer) cursor_ = 0;
  ++heldCount_;
  const bool expected = cursor_ < order_.size() && order_[cursor_].layer == layer;
  std::optional<size_t> offset;
  if (isResident_) offset = resident_[index];
  if (expected) {
    if (!isResident_ && !overlapsHeld(order_[cursor_].offset, layerBytes_[index])) offset = order_[cursor_].offset;
    ++cursor_;
  }
  if (offset) {
    held_[index] = Place{base() + *offset, *offset, true};
  } else {
    if (!order_.empty()) ++fallbacks_;
    private_[index].reset(new std::byte[layerBytes_[index]]);
    held_[index] = Place{private_[index].get(), 0, false};
  }
  return *held_[index];
}

void SlotSpace::use(int layer) {
  // The next micro-batch begins where the first one did; one is enough.
  if (!recorded_.empty() && usedCount_ == 0 && recorded_.front().layer == layer) recordingDone_ = true;
  if (!recordingDone_) recorded_.push_back({layer, true});
  used_[static_cast<size_t>(layer)] = true;
  ++usedCount_;
}

void SlotSpace::release(int layer) {
  const auto index = static_cast<size_t>(layer);
  if (used_[index]) {
    if (!recordingDone_) recorded_.push_back({layer, false});
    used_[index] = false;
    --usedCount_;
  }
  --heldCount_;
  held_[index].reset();
  private_[index].reset();
}

int SlotSpace::next() const { return cursor_ < order_.size() ? order_[cursor_].layer : -1; }

void SlotSpace::settle() {
  std::vector<Event> events = std::move(recorded_);
  recorded_.clear();
  recordingDone_ = false;
  cursor_ = 0;
  std::vector<Turn> order;
  std::vector<PoolInterval> intervals;
  std::vector<size_t> open(held_.size(), 0);
  size_t now = 0;
  for (const Event& event : events) {
    const auto index = static_cast<size_t>(event.layer);
    if (event.acquire) {
      open[index] = intervals.size();
      order.push_back({event.layer, isResident_ ? resident_[index] : 0});
      intervals.push_back({now, now, layerBytes_[index]});
    } else {
      intervals[open[index]].end = now;
    }
    ++now;
  }
  const bool same =
      order.size() == order_.size() && std::equal(order.begin(), order.end(), order_.begin(),
                                                  [](const Turn& a, const Turn& b) { return a.layer == b.layer; });
  if (order.empty() || same) return;
  order_ = std::move(order);
  if (isResident_) return;
  if (transit_ == Transit::kBeforeUse) {
    for (size_t i = intervals.size() - 1; i > 0; --i) intervals[i].begin = intervals[i - 1].begin;
  } else {
    for (size_t i = 0; i + 1 < intervals.size(); ++i) intervals[i].end = intervals[i + 1].end;
  }
  const PoolLayout layout = packPool(intervals);
  cluster_.agree(layout.digest, "the order in which layers were used");
  for (size_t i = 0; i < order_.size(); ++i) order_[i].offset = layout.offsets[i];
  // The staging place stays, at the front.
  const size_t staging = *std::max_element(layerBytes_.begin(), layerBytes_.end());
  for (Turn& turn : order_) turn.offset += staging;
  window_.reset();
  window_ = std::make_unique<Region>(comm_, std::max(staging + layout.bytes, kAlign));
}

}  // namespace vmuon
