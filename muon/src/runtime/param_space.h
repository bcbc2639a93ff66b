// SPDX-License-Identifier: Apache-2.0
// The parameters of the layers in use, gathered from the leaders' copies. A thread of its own waits for publishes and
// gathers, so that the next layer arrives while the trainer computes on this one.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/copies.h"

namespace vmuon {

class ParamSpace {
 public:
  struct Waits {
    double publish = 0;  // seconds
    double gather = 0;
    uint64_t bytes = 0;  // received by gathers
  };

  // [collective] resident: a layer stays from its first use to newVersion; else from begin to end. perOwner: one gather
  // per owner instead of one per layer.
  ParamSpace(Cluster& cluster, const Model& model, bool resident, bool perOwner);
  ~ParamSpace();

  void begin(int layer);
  void end(int layer);
  // [collective] All fetches have ended and the layers' copies are out of date.
  void newVersion();
  bool inUse() const;
  // Null unless the layer may be read.
  const std::byte* data(int layer) const;

  // Where the layer is for good; null: nowhere.
  std::byte* resident(int layer) { return isResident_ ? slots_.base() + slots_.offsetOf(layer) : nullptr; }
  LeaderCopies& copies() { return copies_; }
  // The layers in the order of the last forward, as far as known; -1 ends it.
  const SlotSpace& slots() const { return slots_; }
  Waits takeWaits();

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { kAbsent, kFetching, kPresent };
  struct Layer {
    State state = State::kAbsent;
    Place place;
    int users = 0;
    bool done = false;  // the fetch; under mutex_, as what follows
    std::exception_ptr error;
    Clock::time_point published;  // when its pieces had all arrived here
    std::vector<vcoll::Plan> plans;
    uint64_t received = 0;
  };

  void start(int layer);
  void finish(int layer);
  void fetch(int layer);  // on the thread
  void work();
  void drop(int layer);

  Cluster& cluster_;
  const Model& model_;
  bool isResident_;
  SlotSpace slots_;
  LeaderCopies copies_;
  std::vector<Layer> layers_;
  Waits waits_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<int> queue_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace vmuon
