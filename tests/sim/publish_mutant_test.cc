// SPDX-License-Identifier: Apache-2.0
// Tests of the tests: every fault planted in the port of PublishStream must be found within few seeds.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "publish_scenario.h"

namespace vcoll::sim {

namespace {

constexpr uint64_t kMaxSeeds = 300;

// A helper's chunk that overtakes its header does harm only when the header's sender dies.
void dieWithHelpers(PublishScenario& scenario, uint64_t seed) {
  scenario.options.helpersOneIn = 1;
  scenario.options.deadRank = static_cast<uint32_t>(seed % scenario.nodeKeys.size());
  scenario.options.deathAt = 100 + seed * 37 % 2000;
  scenario.options.timeOrdered = false;
  scenario.options.maxPuts = 8;
  scenario.oddRank = kNoRank;
}

// The first seed that finds the fault; kMaxSeeds when none does.
uint64_t seedThatFinds(PublishMutant mutant, PublishOutcome* outcome) {
  for (uint64_t seed = 0; seed < kMaxSeeds; ++seed) {
    PublishScenario scenario = makePublishScenario(seed);
    scenario.options.mutant = mutant;
    if (mutant == PublishMutant::kIgnoreHelped) dieWithHelpers(scenario, seed);
    *outcome = runPublish(scenario);
    if (!outcome->failure.empty()) return seed;
  }
  return kMaxSeeds;
}

}  // namespace

TEST_CASE("planted publish faults are found", "[sim][publish][mutant]") {
  for (uint32_t m = 1; m < kPublishMutantNames.size(); ++m) {
    PublishOutcome outcome;
    const uint64_t seed = seedThatFinds(static_cast<PublishMutant>(m), &outcome);
    INFO(kPublishMutantNames[m]);
    REQUIRE(seed < kMaxSeeds);
    const std::string firstLine = outcome.failure.substr(0, outcome.failure.find('\n'));
    fmt::print("sim: publish {} found by seed {}: {}\n", kPublishMutantNames[m], seed, firstLine);
  }
}

TEST_CASE("a lost publish signal is reported as a deadlock with what each queue waits for", "[sim][publish][mutant]") {
  uint32_t struck = 0;
  for (uint64_t seed = 0; seed < kMaxSeeds && struck < 20; ++seed) {
    PublishScenario scenario = makePublishScenario(seed);
    scenario.options.deadRank = kNoRank;
    scenario.oddRank = kNoRank;
    scenario.options.mutant = PublishMutant::kDropSignal;
    const PublishOutcome outcome = runPublish(scenario);
    if (!outcome.faultStruck || !outcome.deadlocked) continue;
    ++struck;
    INFO("seed " << seed << ": " << outcome.failure);
    REQUIRE_THAT(outcome.failure, Catch::Contains(": waits for ") && Catch::Contains(" rank ") &&
                                      Catch::Contains("item ") && Catch::Contains("finished by queue"));
  }
  REQUIRE(struck == 20);
}

}  // namespace vcoll::sim
