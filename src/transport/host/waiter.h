// SPDX-License-Identifier: Apache-2.0
// How a thread of the host fabric waits: it polls a while, yields a while, then sleeps on its rank's doorbell. Eight
// ranks on two cores must not burn two cores, and a busy neighbour must not cost whole time slices.
#pragma once

#include <cstdint>

#include "base/deadline.h"
#include "transport/host/control.h"
#include "transport/host/wire.h"

namespace vcoll {

struct WaitPolicy {
  uint32_t spins = 0;
  uint32_t yields = 0;
};
// By VCOLL_SPIN and VCOLL_YIELD, else by whether every rank of the machine has a core of its own.
WaitPolicy makeWaitPolicy(bool roomy);

class Waiter {
 public:
  // Serves the wire itself while it is awake, where there is one that allows it.
  Waiter(ControlHeader& own, const WaitPolicy& policy, Deadline deadline, const vcollWire_v1* wire = nullptr,
         vcollWireComm* wireComm = nullptr)
      : own_(own),
        policy_(policy),
        deadline_(deadline),
        wire_(wireComm != nullptr && wire->poll != nullptr ? wire : nullptr),
        wireComm_(wireComm) {}
  ~Waiter() {
    moved();
    attend(false);
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // Something moved: start over with polling.
  void moved() {
    idle_ = 0;
    if (armed_) disarm();
  }
  // Nothing moved: waits a little. The caller must look again at all it waits for after every call.
  void pause();
  // True now and then while nothing moves, and always before a sleep: time for slow checks.
  bool slow() const { return armed_ || (idle_ & 63) == 63; }
  bool timedOut() const { return timedOut_; }

 private:
  void disarm();
  void attend(bool on);

  ControlHeader& own_;
  WaitPolicy policy_;
  Deadline deadline_;
  const vcollWire_v1* wire_;
  vcollWireComm* wireComm_;
  uint32_t idle_ = 0;
  uint32_t seen_ = 0;
  bool armed_ = false;
  bool attending_ = false;
  bool timedOut_ = false;
};

}  // namespace vcoll
