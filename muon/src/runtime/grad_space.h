// SPDX-License-Identifier: Apache-2.0
// Gradients: a layer's sums of this rank while its backward runs, then on their way to the owners, who add them up in
// fp32 until the step.
#pragma once

#include <functional>
#include <vector>

#include "runtime/model.h"
#include "runtime/slots.h"

namespace vmuon {

class GradSpace {
 public:
  // What an owner does with a reduced gradient: `bytes` of the gradient type at `data`.
  using Sink = std::function<void(int piece, const std::byte* data)>;

  // [collective]
  GradSpace(Cluster& cluster, const Model& model, vcollDataType_t type, bool perOwner, Sink sink);

  void begin(int layer);  // zeroes
  void end(int layer);    // sends
  // All gradients sent have reached their owners.
  void finish();
  // [collective] After finish, once per step.
  void settle() { slots_.settle(); }
  // Null unless the layer's gradients may be written.
  std::byte* data(int layer) const;

  const SlotSpace& slots() const { return slots_; }
  double takeWait() { return std::exchange(wait_, 0.0); }
  uint64_t takeBytes() { return std::exchange(bytes_, 0); }

 private:
  void reduce(int layer, const Place& place, vcollStream_t stream);
  void deliver(int layer, const std::byte* base);

  Cluster& cluster_;
  const Model& model_;
  SlotSpace slots_;
  std::vector<std::vector<vcoll::Plan>> plans_;  // by layer
  std::vector<Place> open_;                      // by layer; data is null unless begun
  Sink sink_;
  vcoll::Stream stream_;
  int inFlight_ = -1;
  Place flying_;
  double wait_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace vmuon
