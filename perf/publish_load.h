// SPDX-License-Identifier: Apache-2.0
// The items of one model on a rail of so many nodes, and the timeline of their updates.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "perf/publish_options.h"

namespace vcoll::perf {

struct PublishItem {
  int owner;
  uint32_t group;
  uint64_t offset;
  uint64_t bytes;
  // On the timeline on which every owner updates without a break, in microseconds.
  double starts = 0;
  double ready = 0;
};

struct PublishLoad {
  const PublishModel* model;
  std::vector<PublishItem> items;  // in layer order; an item's id is its index
  std::vector<size_t> byTime;      // in the order in which they get ready, equal on all ranks
  uint32_t groups = 0;
  uint64_t bytes = 0;
  uint64_t received = 0;   // by the rank that receives most
  uint64_t mostOwned = 0;  // by one rank
  double computeUs = 0;    // of the busiest owner; 0: all is ready at once
  std::vector<size_t> ownedBy(int rank) const;
  double busFactor() const { return static_cast<double>(received) / static_cast<double>(bytes); }
  // Updates take times in proportion to bytes; the busiest owner's end after computeUs.
  void setTimeline(double us);
};

// Items of one group and owner lie side by side, so that nobody has to pack them. Sizes are multiples of 16.
PublishLoad makePublishLoad(const PublishModel& model, double scale, int nodes);

// The simulated updates of one iteration on one rank.
class Updates {
 public:
  Updates(const PublishLoad& load, Compute compute, int rank);
  // Ends the update of the items before `index` of owned(), and of that one.
  void finish(size_t index);
  // Ends those that have begun, on the timeline, before `us`.
  void finishStartedBefore(double us);
  void finishAll();
  const std::vector<size_t>& owned() const { return owned_; }
  // When the last one ended.
  std::chrono::steady_clock::time_point end() const { return end_; }

 private:
  void work(const PublishItem& item);

  const PublishLoad& load_;
  const Compute compute_;
  const std::vector<size_t> owned_;
  const std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point end_;
  size_t next_ = 0;
  double owed_ = 0;  // us of updates too short to wait for one by one
};

}  // namespace vcoll::perf
