// SPDX-License-Identifier: Apache-2.0
// A network in virtual time that is always the same: each node sends through one port, in order, and a put occupies
// it for its bytes; latency follows. Only arrivals are kept, no bytes. Whoever reads it must go through time in order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace vcoll::sim {

using Picoseconds = uint64_t;
constexpr Picoseconds kNever = UINT64_MAX;
constexpr double kPicosecondsPerUs = 1e6;

struct LinkProfile {
  double gbPerS = 50;              // 1e9 bytes per second, each way
  double hopUs = 4;                // from the last byte sent to its arrival
  uint64_t queuedBytes = 1 << 19;  // that a port holds before it has no more room
};

class TimedNetwork {
 public:
  struct Arrival {
    Picoseconds time;
    uint32_t counter;
    uint32_t id;
  };

  TimedNetwork(uint32_t nodes, const LinkProfile& profile)
      : psPerByte_(1e3 / profile.gbPerS),
        latency_(static_cast<Picoseconds>(profile.hopUs * kPicosecondsPerUs)),
        queued_(duration(profile.queuedBytes)),
        freeAt_(nodes, 0),
        arrivals_(nodes) {}

  // When src's port has, or had, room for a put.
  Picoseconds roomAt(uint32_t src) const { return freeAt_[src] > queued_ ? freeAt_[src] - queued_ : 0; }
  // Both: what is counted at dst, and the time of that.
  Picoseconds put(uint32_t src, uint32_t dst, uint64_t bytes, Picoseconds now, uint32_t counter, uint32_t id) {
    freeAt_[src] = std::max(freeAt_[src], now) + duration(bytes);
    return arrive(dst, {freeAt_[src] + latency_, counter, id});
  }
  Picoseconds signal(uint32_t dst, Picoseconds now, uint32_t counter, uint32_t id) {
    return arrive(dst, {now + latency_, counter, id});
  }

  Picoseconds nextArrival(uint32_t dst) const { return arrivals_[dst].empty() ? kNever : arrivals_[dst].front().time; }
  Arrival take(uint32_t dst) {
    std::vector<Arrival>& waiting = arrivals_[dst];
    std::pop_heap(waiting.begin(), waiting.end(), later);
    const Arrival first = waiting.back();
    waiting.pop_back();
    return first;
  }

 private:
  static bool later(const Arrival& a, const Arrival& b) { return a.time > b.time; }
  Picoseconds duration(uint64_t bytes) const {
    return static_cast<Picoseconds>(static_cast<double>(bytes) * psPerByte_);
  }
  Picoseconds arrive(uint32_t dst, const Arrival& arrival) {
    arrivals_[dst].push_back(arrival);
    std::push_heap(arrivals_[dst].begin(), arrivals_[dst].end(), later);
    return arrival.time;
  }

  double psPerByte_;
  Picoseconds latency_;
  Picoseconds queued_;
  std::vector<Picoseconds> freeAt_;             // by node: its port
  std::vector<std::vector<Arrival>> arrivals_;  // by node: a heap
};

}  // namespace vcoll::sim
