// SPDX-License-Identifier: Apache-2.0
// How a simulated PublishStream is disturbed, and the protocol faults that can be planted in its port and network.
#pragma once

#include <array>
#include <cstdint>

#include "transport/sim/sim_options.h"

namespace vcoll::sim {

// Faults of the fabric that the checks must find: tests of the tests.
enum class PublishMutant : uint32_t {
  kNone,
  kIgnoreOpen,        // headers do not wait until the far end is open
  kIgnoreLease,       // readers' leases are not seen
  kIgnoreFinished,    // Begin does not wait until the copies are received and passed on
  kTakenEarly,        // a step counts as taken one step early
  kOpenTwice,         // a signal of openness counts double
  kSignalBeforeData,  // an arrival is counted before its bytes are visible
  kSharedCounter,     // one arrival counter for all queues of a lane
  kHeaderOvertakes,   // headers do not keep their order with chunks
  kUnordered,         // puts of one queue overtake each other
  kDropSignal,        // one count is lost
  kWrongCopy,         // chunks land in the other copy
  kWholeEarly,        // readers get an item as soon as its header is there
  kKeepOld,           // an item that is being overwritten still counts as the old version
  kStaleHeader,       // a push is counted before its header is written
  kIgnoreHelped,      // helpers and headers do not wait for what the far end has seen
  kHelperMiscounts,   // chunks that helpers carry are counted as the lane's own
};
constexpr std::array<const char*, 17> kPublishMutantNames = {
    "none",         "ignoreOpen",       "ignoreLease",   "ignoreFinished",  "takenEarly",
    "openTwice",    "signalBeforeData", "sharedCounter", "headerOvertakes", "unordered",
    "dropSignal",   "wrongCopy",        "wholeEarly",    "keepOld",         "staleHeader",
    "ignoreHelped", "helperMiscounts"};

constexpr uint32_t kNoRank = UINT32_MAX;

struct PublishOptions {
  uint64_t seed = 0;
  bool timeOrdered = true;  // else the next event is any of those that wait
  // What the state machine needs is kStream: the headers and chunks of one queue on one hop keep their order, landing
  // included: no byte of a put lands before the put before it is counted. Signals and other queues need no order.
  Order order = Order::kPeer;
  uint32_t yieldOneIn = 8;    // a lane pauses at one of so many places inside the port
  uint32_t maxDelay = 100;    // of one event, in virtual microseconds
  uint32_t maxPuts = 4;       // per lane and peer
  uint32_t helpersOneIn = 0;  // items of which helpers carry chunks; 0: none
  uint32_t slowRanksOneIn = 4;
  uint32_t stallOneIn = 0;      // a pause of one in so many becomes a long stall; 0: never
  uint32_t deadRank = kNoRank;  // dies at the event deathAt
  uint64_t deathAt = 0;
  uint64_t maxEvents = 5'000'000;
  PublishMutant mutant = PublishMutant::kNone;
};

}  // namespace vcoll::sim
