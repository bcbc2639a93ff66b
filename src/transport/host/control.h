// SPDX-License-Identifier: Apache-2.0
// The shared control memory of one rank in one communicator. Local ranks map it; every word in it is written by its
// owner's process only, except the doorbell. Words that others poll only grow.
#pragma once

#include <atomic>
#include <cstdint>

#include "topology/plan.h"

namespace vcoll {

// What a rank is doing, for mismatch checks and reports. Word by word atomic; seq is written last and read first.
struct alignas(64) CallRecord {
  static constexpr int kWords = 9;  // RecordFields
  std::atomic<uint64_t> seq;
  std::atomic<uint64_t> signature;  // of all words
  std::atomic<uint64_t> words[kWords];
};

struct alignas(64) LaneGate {
  std::atomic<uint64_t> entered;  // sequence number of the call that this lane is inside, or was
  std::atomic<uint64_t> left;     // of the last call after which this lane touches nobody's memory
};

struct ControlHeader {
  // A sleeper sets `sleeping`, looks once more, then waits on `doorbell`. Who changes a word it may wait for changes
  // that word first, then looks at `sleeping` (both sequentially consistent, so one of the two sees the other).
  alignas(64) std::atomic<uint32_t> doorbell;
  std::atomic<uint32_t> sleeping;
  // Of the private send buffer of the call that the lanes entered last, for peers that read it directly.
  alignas(64) std::atomic<uint64_t> sendAddress;
  alignas(64) std::atomic<uint64_t> lastCall;  // the caller's count
  std::atomic<uint64_t> lastKind;
  LaneGate gates[kMaxLanes];
  static constexpr int kRecords = 4;
  CallRecord records[kRecords];  // of call seq at seq % kRecords
};

// Offsets in the memory: header, counters [kind][id], then staging on a page of its own.
struct ControlLayout {
  uint32_t ids = 0;
  uint64_t stagingOffset = 0;
  uint64_t stagingBytes = 0;
  uint64_t totalBytes = 0;
};

inline ControlLayout makeControlLayout(const FlowLayout& flow, uint64_t stagingBytes) {
  constexpr uint64_t kPage = 4096;
  ControlLayout layout;
  layout.ids = flow.ids();
  const uint64_t counters = uint64_t{kernels::kCounterKinds} * layout.ids * sizeof(std::atomic<uint64_t>);
  layout.stagingOffset = (sizeof(ControlHeader) + counters + kPage - 1) / kPage * kPage;
  layout.stagingBytes = stagingBytes;
  layout.totalBytes = layout.stagingOffset + stagingBytes;
  return layout;
}

// A rank's control memory as mapped in this process.
class ControlView {
 public:
  ControlView() = default;
  ControlView(void* base, const ControlLayout& layout)
      : base_(static_cast<unsigned char*>(base)), ids_(layout.ids), stagingOffset_(layout.stagingOffset) {}

  ControlHeader& header() const { return *reinterpret_cast<ControlHeader*>(base_); }
  std::atomic<uint64_t>& counter(uint32_t index) const {
    return reinterpret_cast<std::atomic<uint64_t>*>(base_ + sizeof(ControlHeader))[index];
  }
  uint32_t counterIndex(kernels::Counter kind, uint32_t id) const { return static_cast<uint32_t>(kind) * ids_ + id; }
  unsigned char* staging() const { return base_ + stagingOffset_; }

 private:
  unsigned char* base_ = nullptr;
  uint32_t ids_ = 0;
  uint64_t stagingOffset_ = 0;
};

// Wakes the rank's waiter if it sleeps. Call after the word it waits for was changed.
void ringDoorbell(ControlHeader& header);

}  // namespace vcoll
