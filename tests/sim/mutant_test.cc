// SPDX-License-Identifier: Apache-2.0
// Tests of the tests: every planted fault must be found within few seeds.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "scenario.h"

namespace vcoll::sim {

namespace {

constexpr uint64_t kMaxSeeds = 300;

// Two plans that differ in their lanes only, used by turns: a hop changes its lane from call to call.
void alternateLanes(Scenario& scenario) {
  scenario.plans.resize(1);
  scenario.plans.push_back(scenario.plans[0]);
  scenario.plans[0].lanes = 1;
  scenario.plans[1].lanes = 2;
  for (uint32_t c = 0; c < scenario.calls.size(); ++c) {
    scenario.calls[c] = scenario.calls[0];
    scenario.calls[c].op = Call::kReduceScatterV;
    scenario.calls[c].plan = c % 2;
    scenario.calls[c].srcOffset = 0;
    scenario.calls[c].dstOffset = 0;
  }
  scenario.fitWindows();
}

// The first seed that finds the fault; kMaxSeeds when none does.
uint64_t seedThatFinds(Mutant mutant, Outcome* outcome) {
  for (uint64_t seed = 0; seed < kMaxSeeds; ++seed) {
    Scenario scenario = makeScenario(seed);
    scenario.options.mutant = mutant;
    if (mutant == Mutant::kUnorderedStream) alternateLanes(scenario);
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

TEST_CASE("a hop may change its lane from call to call where streams keep their order", "[sim]") {
  for (uint64_t seed = 0; seed < kMaxSeeds; ++seed) {
    Scenario scenario = makeScenario(seed);
    scenario.options.order = Order::kStream;
    alternateLanes(scenario);
    const Outcome outcome = runScenario(scenario);
    INFO("seed " << seed << ": " << outcome.failure);
    REQUIRE(outcome.failure.empty());
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
