// SPDX-License-Identifier: Apache-2.0
// The collectives on random simulated clusters. SIM_SEEDS=n sets how many seeds, SIM_SEED=n runs one seed only.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <ctime>

#include "scenario.h"

namespace vcoll::sim {

namespace {

constexpr uint64_t kDefaultSeeds = 5000;

uint64_t fromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace

TEST_CASE("random clusters move the right bytes and end", "[sim]") {
  const uint64_t only = fromEnvironment("SIM_SEED", UINT64_MAX);
  const uint64_t first = only == UINT64_MAX ? 0 : only;
  const uint64_t end = only == UINT64_MAX ? fromEnvironment("SIM_SEEDS", kDefaultSeeds) : only + 1;
  const std::clock_t start = std::clock();
  uint64_t events = 0;
  for (uint64_t seed = first; seed < end; ++seed) {
    const Scenario scenario = makeScenario(seed);
    const Outcome outcome = runScenario(scenario);
    events += outcome.events;
    if (outcome.failure.empty()) continue;
    FAIL("seed " << seed << ": " << scenario.describe() << "\n"
                 << outcome.failure << "\nrerun: SIM_SEED=" << seed
                 << " build/bin/sim_tests \"random clusters move the right bytes and end\"");
  }
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  fmt::print("sim: {} seeds, {} events, {:.1f} CPU-s ({:.0f} seeds per CPU-s)\n", end - first, events, seconds,
             static_cast<double>(end - first) / seconds);
}

TEST_CASE("a seed repeats its run exactly", "[sim]") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Outcome once = runScenario(makeScenario(seed));
    const Outcome again = runScenario(makeScenario(seed));
    REQUIRE(once.events == again.events);
    REQUIRE(once.trace == again.trace);
  }
}

}  // namespace vcoll::sim
