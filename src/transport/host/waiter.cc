// SPDX-License-Identifier: Apache-2.0
#include "transport/host/waiter.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <ctime>

#include "base/params.h"

namespace vcoll {

namespace {

// A yield that takes this long went to somebody who computes, not to a rank that waits too. Then yielding costs whole
// time slices, while a sleeper that is woken gets the core at once: for a while this process only sleeps.
constexpr auto kLongYield = std::chrono::microseconds(1500);
constexpr auto kSleepOnly = std::chrono::milliseconds(500);
std::atomic<int64_t> sleepOnlyUntil{0};  // steady clock, in its own ticks

bool sleepsOnly() {
  const int64_t until = sleepOnlyUntil.load(std::memory_order_relaxed);
  return until != 0 && Deadline::Clock::now().time_since_epoch().count() < until;
}

void yieldOnce() {
  const auto before = Deadline::Clock::now();
  sched_yield();
  const auto after = Deadline::Clock::now();
  if (after - before > kLongYield) {
    sleepOnlyUntil.store((after + kSleepOnly).time_since_epoch().count(), std::memory_order_relaxed);
  }
}

// Longest single sleep: a bound on how late it is noticed that a rank has left. Other wake-ups do not depend on it.
constexpr int64_t kMaxSleepMs = 250;

// A look at the sockets costs about this many turns of polling memory.
constexpr uint32_t kSpinsPerPoll = 10;

void cpuRelax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace

void ringDoorbell(ControlHeader& header) {
  if (header.sleeping.load(std::memory_order_seq_cst) == 0) return;
  header.doorbell.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &header.doorbell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

WaitPolicy makeWaitPolicy(bool roomy) {
  WaitPolicy policy;
  policy.spins = params().spin >= 0 ? static_cast<uint32_t>(params().spin) : (roomy ? 4000 : 20);
  policy.yields = params().yield >= 0 ? static_cast<uint32_t>(params().yield) : (roomy ? 200 : 100);
  return policy;
}

void Waiter::pause() {
  if (!armed_) {
    if (wire_ != nullptr && (idle_ >= policy_.spins || idle_ % kSpinsPerPoll == 0)) {
      attend(true);
      if (wire_->poll(wireComm_) != 0) return;
    }
    ++idle_;
    if (idle_ <= policy_.spins) {
      cpuRelax();
      return;
    }
    if (idle_ <= policy_.spins + policy_.yields && !sleepsOnly()) {
      yieldOnce();
      return;
    }
    // The last look before sleeping comes after this point.
    seen_ = own_.doorbell.load(std::memory_order_seq_cst);
    own_.sleeping.store(1, std::memory_order_seq_cst);
    armed_ = true;
    attend(false);
    return;
  }
  const int64_t leftMs = deadline_.leftMs();
  if (leftMs == 0) {
    timedOut_ = true;
    return;
  }
  const int64_t ms = std::min(leftMs, kMaxSleepMs);
  const timespec timeout = {static_cast<time_t>(ms / 1000), static_cast<long>(ms % 1000 * 1000000)};
  syscall(SYS_futex, &own_.doorbell, FUTEX_WAIT, seen_, &timeout, nullptr, 0);
  // Stay armed: after a wake-up for something else the next look is again the last before sleeping.
  seen_ = own_.doorbell.load(std::memory_order_seq_cst);
}

void Waiter::disarm() {
  own_.sleeping.store(0, std::memory_order_seq_cst);
  armed_ = false;
}

void Waiter::attend(bool on) {
  if (attending_ == on || wire_ == nullptr) return;
  attending_ = on;
  wire_->attend(wireComm_, on ? 1 : 0);
}

}  // namespace vcoll
