// SPDX-License-Identifier: Apache-2.0
// A point in time that bounds a wait. Every blocking call takes one.
#pragma once

#include <chrono>
#include <cstdint>

namespace vcoll {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline afterMs(int64_t ms) { return Deadline(Clock::now() + std::chrono::milliseconds(ms)); }

  bool passed() const { return Clock::now() >= at_; }
  // Milliseconds left, rounded up; 0 once passed.
  int64_t leftMs() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()).count();
    return left > 0 ? left : 0;
  }
  Clock::time_point at() const { return at_; }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

}  // namespace vcoll
