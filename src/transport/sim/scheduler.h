// SPDX-License-Identifier: Apache-2.0
// Virtual time: a set of events that one loop takes one by one. Everything random comes from one seeded generator, so a
// seed repeats a run exactly.
#pragma once

#include <cstdint>
#include <vector>

#include "base/hash.h"

namespace vcoll::sim {

class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(mix64(seed)) {}
  uint64_t next() { return mix64(state_++); }
  // 0 .. n-1; n < 2^32
  uint64_t below(uint64_t n) { return ((next() >> 32) * n) >> 32; }
  uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
  bool oneIn(uint64_t n) { return below(n) == 0; }

 private:
  uint64_t state_;
};

// Whatever events happen to.
class Actor {
 public:
  virtual void fire(uint32_t tag) = 0;

 protected:
  ~Actor() = default;
};

class Scheduler {
 public:
  // timeOrdered: events happen in the order of their times; otherwise the next one is any of those that wait.
  Scheduler(uint64_t seed, bool timeOrdered) : rng_(seed), timeOrdered_(timeOrdered) {}

  void after(uint64_t delay, Actor* actor, uint32_t tag);
  // Runs one event; false when none waits.
  bool runOne();

  Rng& rng() { return rng_; }
  uint64_t now() const { return now_; }
  uint64_t eventCount() const { return count_; }
  // A digest of the times of all events so far: equal runs have equal traces.
  uint64_t trace() const { return trace_.value(); }

 private:
  struct Event {
    uint64_t time;
    uint64_t order;  // of equal times
    Actor* actor;
    uint32_t tag;
  };
  static bool later(const Event& a, const Event& b);

  Rng rng_;
  const bool timeOrdered_;
  uint64_t now_ = 0;
  uint64_t count_ = 0;
  Digest trace_;
  std::vector<Event> events_;  // a heap when timeOrdered_
};

}  // namespace vcoll::sim
