// SPDX-License-Identifier: Apache-2.0
// A random cluster and PublishStream from one seed; and the programs of its ranks, which write, push, wait, take leases
// and check every byte of every version when it comes and when it is given up.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/sim/publish_cluster.h"

namespace vcoll::sim {

struct PublishScenario {
  PublishOptions options;
  std::vector<uint64_t> nodeKeys;
  PublishSpec spec;
  uint64_t steps = 3;
  std::vector<uint64_t> numbers;  // of the steps
  uint32_t oddRank = kNoRank;     // has other numbers from oddStep on
  uint64_t oddStep = 0;
  uint32_t muteOwner = kNoRank;  // pushes nothing from muteStep on
  uint64_t muteStep = 0;
  uint32_t waitOneIn = 4;   // pushes that wait for an item of a lower rank first; 0: none
  uint32_t leaseOneIn = 3;  // steps whose programs take leases

  std::string describe() const;
};

PublishScenario makePublishScenario(uint64_t seed);

struct PublishOutcome {
  std::string failure;  // empty: all well
  bool deadlocked = false;
  bool faultStruck = false;
  bool died = false;
  bool broken = false;
  uint64_t trace = 0;
  uint64_t events = 0;
  uint64_t leasesOverBegin = 0;
  uint64_t versions = 0;  // that became whole at readers
  uint64_t partial = 0;   // copies that a death left half overwritten
};

PublishOutcome runPublish(const PublishScenario& scenario);

}  // namespace vcoll::sim
