// SPDX-License-Identifier: Apache-2.0
// What rank 0 holds of the exchange that is under way: no sockets, no threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "bootstrap/frame_link.h"

namespace vcoll {

// "rank 3", "ranks 2, 5"; a long list is cut.
std::string rankList(const std::vector<int>& ranks);

class Gather {
 public:
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 30;  // of all ranks together

  explicit Gather(int size) : entries_(static_cast<size_t>(size)) {}

  uint64_t sequence() const { return sequence_; }
  bool empty() const { return count_ == 0; }
  bool complete() const { return count_ == entries_.size(); }
  bool has(int rank) const { return entries_[static_cast<size_t>(rank)].has_value(); }
  // The name of the call that the lowest rank here is in.
  const std::string& name() const;

  Status add(int rank, uint64_t sequence, std::string name, std::vector<std::byte> blob);
  // vcollMismatch if ranks are in calls of different names: the lowest rank here and the lowest that differs from it.
  Status mismatch() const;
  std::vector<int> missing() const;
  // The frame with everybody's blobs. The next exchange begins.
  SharedBytes take();

 private:
  struct Entry {
    std::string name;
    std::vector<std::byte> blob;
  };
  uint64_t sequence_ = 1;
  size_t count_ = 0;
  uint64_t bytes_ = 0;
  std::vector<std::optional<Entry>> entries_;
};

// Reads the frame of take().
bool unpackAll(const std::vector<std::byte>& frame, int size, std::vector<std::vector<std::byte>>* all);
// The exchange a frame of take() belongs to; 0 if it is malformed.
uint64_t sequenceOf(const std::vector<std::byte>& frame);

}  // namespace vcoll
