// SPDX-License-Identifier: Apache-2.0
// PublishStream on random simulated clusters. SIM_SEEDS=n sets how many seeds, SIM_SEED=n runs one seed only.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <ctime>

#include "publish_scenario.h"

namespace vcoll::sim {

namespace {

constexpr uint64_t kDefaultSeeds = 3000;

uint64_t fromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace

TEST_CASE("random publish streams deliver whole versions and end", "[sim][publish]") {
  const uint64_t only = fromEnvironment("SIM_SEED", UINT64_MAX);
  const uint64_t first = only == UINT64_MAX ? 0 : only;
  const uint64_t end = only == UINT64_MAX ? fromEnvironment("SIM_SEEDS", kDefaultSeeds) : only + 1;
  const std::clock_t start = std::clock();
  PublishOutcome sum;
  uint64_t deaths = 0;
  uint64_t broken = 0;
  for (uint64_t seed = first; seed < end; ++seed) {
    const PublishScenario scenario = makePublishScenario(seed);
    const PublishOutcome outcome = runPublish(scenario);
    sum.events += outcome.events;
    sum.versions += outcome.versions;
    sum.leasesOverBegin += outcome.leasesOverBegin;
    sum.partial += outcome.partial;
    deaths += outcome.died ? 1 : 0;
    broken += outcome.broken ? 1 : 0;
    if (outcome.failure.empty()) continue;
    FAIL("seed " << seed << ": " << scenario.describe() << "\n"
                 << outcome.failure << "\nrerun: SIM_SEED=" << seed
                 << " build/bin/sim_tests \"random publish streams deliver whole versions and end\"");
  }
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  fmt::print(
      "sim: {} seeds, {} events, {} versions, {} leases over a begin, {} deaths ({} copies half overwritten), {} with "
      "differing steps, {:.1f} CPU-s ({:.0f} seeds per CPU-s)\n",
      end - first, sum.events, sum.versions, sum.leasesOverBegin, deaths, sum.partial, broken, seconds,
      static_cast<double>(end - first) / seconds);
  if (end - first < 100) return;
  // The schedules reach what they are meant to test.
  REQUIRE(sum.leasesOverBegin > 0);
  REQUIRE(sum.partial > 0);
  REQUIRE(deaths > 0);
  REQUIRE(broken > 0);
}

TEST_CASE("an owner that pushes nothing holds up no other owner", "[sim][publish]") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    PublishScenario scenario = makePublishScenario(seed);
    if (scenario.spec.items.empty()) continue;
    scenario.options.deadRank = kNoRank;
    scenario.oddRank = kNoRank;
    scenario.waitOneIn = 0;
    scenario.muteOwner = static_cast<uint32_t>(scenario.spec.items[0].owner);
    scenario.muteStep = seed % scenario.steps;
    scenario.leaseOneIn = 0;
    const PublishOutcome outcome = runPublish(scenario);
    INFO("seed " << seed << ": " << scenario.describe() << "\n" << outcome.failure);
    REQUIRE(outcome.failure.empty());
  }
}

TEST_CASE("a seed repeats its publish run exactly", "[sim][publish]") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const PublishOutcome once = runPublish(makePublishScenario(seed));
    const PublishOutcome again = runPublish(makePublishScenario(seed));
    REQUIRE(once.events == again.events);
    REQUIRE(once.trace == again.trace);
  }
}

}  // namespace vcoll::sim
