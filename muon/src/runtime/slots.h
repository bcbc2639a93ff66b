// SPDX-License-Identifier: Apache-2.0
// Where a layer's bytes are while it is in use. Either every layer has its own place in a window for good (resident),
// or the layers share a pool, whose offsets are planned from the order in which one micro-batch took and returned its
// layers (paper, appendix C.1). Until that order is known, and whenever a step departs from it, a layer lives in
// private memory and its data moves through a staging place of the window.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/cluster.h"

namespace vmuon {

struct Place {
  std::byte* data = nullptr;
  size_t offset = 0;    // in the window; only if direct
  bool direct = false;  // in the window: collectives reach it without a copy
};

class SlotSpace {
 public:
  // Layers are in transit beside their neighbour in the order: fetched while the one before is in use, or still leaving
  // while the one after is.
  enum class Transit { kBeforeUse, kAfterUse };

  // [collective] The window is one of comm.
  SlotSpace(Cluster& cluster, const vcoll::Comm& comm, std::vector<size_t> layerBytes, bool resident, Transit transit);

  Place acquire(int layer);
  // Somebody now works on the acquired layer: this is the order that is recorded.
  void use(int layer);
  void release(int layer);
  // The layer that came after the last one acquired, when the order was recorded; -1: not known.
  int next() const;
  // [collective] No layer is held. Plans the pool if an order has been recorded since the last time.
  void settle();

  // Of a pool: where data passes through that cannot be reached directly.
  Place staging() const { return {window_->memory.as<std::byte>(), 0, true}; }
  const vcoll::Window& window() const { return window_->window; }
  std::byte* base() const { return window_->memory.as<std::byte>(); }
  size_t offsetOf(int layer) const { return resident_[static_cast<size_t>(layer)]; }  // resident spaces only
  size_t bytes() const { return window_->memory.bytes(); }
  int fallbacks() const { return fallbacks_; }

 private:
  struct Region {
    Region(const vcoll::Comm& comm, size_t bytes) : memory(bytes), window(comm, memory) {}
    vcoll::Memory memory;
    vcoll::Window window;
  };
  struct Event {
    int layer;
    bool acquire;
  };
  struct Turn {  // one acquire of the recorded order
    int layer;
    size_t offset;
  };
  bool overlapsHeld(size_t offset, size_t bytes) const;

  Cluster& cluster_;
  const vcoll::Comm& comm_;
  std::vector<size_t> layerBytes_;
  bool isResident_;
  Transit transit_;
  std::vector<size_t> resident_;
  std::unique_ptr<Region> window_;
  std::vector<std::optional<Place>> held_;
  std::vector<std::unique_ptr<std::byte[]>> private_;  // by layer, while held without a place in the window
  size_t heldCount_ = 0;
  std::vector<bool> used_;
  size_t usedCount_ = 0;

  std::vector<Event> recorded_;
  bool recordingDone_ = false;
  std::vector<Turn> order_;  // empty until settled once
  size_t cursor_ = 0;        // next turn of order_
  int fallbacks_ = 0;
};

}  // namespace vmuon
