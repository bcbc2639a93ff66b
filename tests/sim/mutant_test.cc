// SPDX-License-Identifier: Apache-2.0
// Tests of the tests: every planted fault must be found within few seeds.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "scenario.h"

namespace vcoll::sim {

namespace {

constexpr uint64_t kMaxSeeds = 300;

// The first seed that finds the fault; kMaxSeeds when none does.
uint64_t seedThatFinds(Mutant mutant, Outcome* outcome) {
  for (uint64_t seed = 0; seed < kMaxSeeds; ++seed) {
    Scenario scenario = makeScenario(seed);
    scenario.options.mutant = mutant;
    *outcome = runScenario(scenario);
    if (!outcome->failure.empty()) return seed;
  }
  return kMaxSeeds;
}

}  // namespace

TEST_CASE("planted faults are found", "[sim][mutant]") {
  for (uint32_t m = 1; m < kMutantNames.size(); ++m) {
    Outcome outcome;
    const uint64_t seed = seedThatFinds(static_cast<Mutant>(m), &outcome);
    INFO(kMutantNames[m]);
    REQUIRE(seed < kMaxSeeds);
    const std::string firstLine = outcome.failure.substr(0, outcome.failure.find('\n'));
    fmt::print("sim: {} found by seed {}: {}\n", kMutantNames[m], seed, firstLine);
  }
}

TEST_CASE("a lost signal is reported as a deadlock with what each lane waits for", "[sim][mutant]") {
  uint32_t struck = 0;
  for (uint64_t seed = 0; seed < kMaxSeeds && struck < 20; ++seed) {
    Scenario scenario = makeScenario(seed);
    scenario.options.mutant = Mutant::kDropSignal;
    const Outcome outcome = runScenario(scenario);
    if (!outcome.faultStruck) continue;
    ++struck;
    INFO("seed " << seed << ": " << outcome.failure);
    REQUIRE(outcome.deadlocked);
    REQUIRE_THAT(outcome.failure,
                 Catch::Contains(": waits for ") && Catch::Contains(" rank ") && Catch::Contains("chunk "));
  }
  REQUIRE(struck == 20);
}

}  // namespace vcoll::sim
