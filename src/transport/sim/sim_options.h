// SPDX-License-Identifier: Apache-2.0
// What a simulated cluster is made of, and the protocol faults that can be planted in it.
#pragma once

#include <array>
#include <cstdint>

namespace vcoll::sim {

// Faults of the fabric that the checks must find: tests of the tests.
enum class Mutant : uint32_t {
  kNone,
  kCreditEarly,       // a slot's credit travels before the slot was read
  kSignalBeforeData,  // an arrival is counted before its bytes are visible
  kSharedCounter,     // one arrival counter for all sources of a rank
  kIgnoreReady,       // puts do not wait until the far end is inside the call
  kIgnoreCredit,      // partial sums do not wait for a free slot
  kIgnoreEntered,     // everyone counts as inside the call
  kIgnoreLeft,        // everyone counts as having left
  kEarlyFlush,        // puts count as flushed while their sources are still read
  kDropSignal,        // one signal is lost
  kWrongSlot,         // a partial sum lands in the neighbour slot
  kUnorderedStream,   // signals of one counter overtake each other when they come from different lanes
};
constexpr std::array<const char*, 12> kMutantNames = {
    "none",          "creditEarly", "signalBeforeData", "sharedCounter", "ignoreReady", "ignoreCredit",
    "ignoreEntered", "ignoreLeft",  "earlyFlush",       "dropSignal",    "wrongSlot",   "unorderedStream"};

// Which puts and signals between two ranks keep their order.
enum class Order : uint32_t {
  kPeer,    // all of them, as on one connection
  kStream,  // only those that count on the same counter: the least the state machines need
};

struct SimOptions {
  uint64_t seed = 0;
  bool timeOrdered = true;  // else the next event is any of those that wait
  bool pulls = true;
  Order order = Order::kPeer;
  uint32_t yieldOneIn = 8;  // a lane pauses at one of so many places inside the port
  uint32_t maxDelay = 100;  // of one event, in virtual microseconds
  uint32_t maxPuts = 4;     // per lane and peer
  uint32_t slowRanksOneIn = 4;
  uint32_t stallOneIn = 0;  // a pause of one in so many becomes a long stall; 0: never
  uint64_t maxEvents = 20'000'000;
  Mutant mutant = Mutant::kNone;
};

}  // namespace vcoll::sim
