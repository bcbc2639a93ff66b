// SPDX-License-Identifier: Apache-2.0
// The compute copies that gathers read: an owner's, and with a copy per node also its leaders', which a PublishStream
// brings from the owner. Each rank's column (the ranks of the same place on all nodes) has its own stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/cluster.h"
#include "runtime/model.h"
#include "runtime/slots.h"

namespace vmuon {

class LeaderCopies {
 public:
  // [collective] resident: copies are where their layers are for good, in that space; null: they have memory of their
  // own.
  LeaderCopies(Cluster& cluster, const Model& model, SlotSpace* resident);

  // Null unless this rank is the piece's owner or leader.
  std::byte* at(int piece) const { return places_[static_cast<size_t>(piece)]; }
  uint64_t bytes() const { return bytes_; }  // of memory of its own

  // A new version of all pieces that learn. Between begin and end an owner writes its pieces and pushes each of them
  // once.
  void begin();
  void push(int piece);
  void end();
  // Until the newest version of the layer's pieces is here.
  void wait(int layer);
  // [collective] Until the newest version is everywhere and nothing moves any more.
  void drain();
  uint64_t pushedBytes() const { return pushedBytes_; }

 private:
  Cluster& cluster_;
  const Model& model_;
  std::vector<std::byte*> places_;
  std::vector<std::vector<int>> awaited_;  // by layer: pieces with a place here that travel
  uint64_t bytes_ = 0;
  std::unique_ptr<vcoll::Memory> memory_;
  std::unique_ptr<vcoll::Window> window_;  // of the column
  std::unique_ptr<vcoll::PublishStream> stream_;
  uint64_t version_ = 0;
  uint64_t pushedBytes_ = 0;
};

}  // namespace vmuon
