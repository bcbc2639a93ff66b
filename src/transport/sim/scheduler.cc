// SPDX-License-Identifier: Apache-2.0
#include "transport/sim/scheduler.h"

#include <algorithm>

namespace vcoll::sim {

bool Scheduler::later(const Event& a, const Event& b) { return a.time != b.time ? a.time > b.time : a.order > b.order; }

void Scheduler::after(uint64_t delay, Actor* actor, uint32_t tag) {
  events_.push_back({now_ + delay, rng_.next(), actor, tag});
  if (timeOrdered_) std::push_heap(events_.begin(), events_.end(), later);
}

bool Scheduler::runOne() {
  if (events_.empty()) return false;
  if (timeOrdered_) {
    std::pop_heap(events_.begin(), events_.end(), later);
  } else {
    std::swap(events_[rng_.below(events_.size())], events_.back());
  }
  const Event event = events_.back();
  events_.pop_back();
  now_ = std::max(now_, event.time);
  trace_.add(now_ ^ event.tag);
  ++count_;
  event.actor->fire(event.tag);
  return true;
}

}  // namespace vcoll::sim
