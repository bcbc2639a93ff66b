// SPDX-License-Identifier: Apache-2.0
// One case for each fault that was found and fixed after the first tests; ranks are threads of this process.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "vcoll/vcoll.h"

namespace {

struct Outcome {
  vcollResult_t result = vcollSuccess;
  std::string text;
};

// Runs body on each of `ranks` ranks, one node each if `apart`; collects what it returned.
std::vector<Outcome> onRanks(int ranks, bool apart, int timeoutMs, bool check,
                             const std::function<vcollResult_t(vcollComm_t, int)>& body) {
  vcollUniqueId id;
  REQUIRE(vcollGetUniqueId(&id) == vcollSuccess);
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Outcome& mine = outcomes[static_cast<size_t>(rank)];
      const std::string host = apart ? std::to_string(rank) : "one";
      vcollConfig_t config = VCOLL_CONFIG_INITIALIZER;
      config.timeoutMs = timeoutMs;
      config.check = check ? 1 : 0;
      config.hostId = host.c_str();
      vcollComm_t comm = nullptr;
      mine.result = vcollCommInitRankConfig(&comm, ranks, id, rank, &config);
      if (mine.result == vcollSuccess) mine.result = body(comm, rank);
      mine.text = vcollGetLastError(comm);
      vcollCommDestroy(comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

constexpr size_t kBytes = 65536;

// Two windows and a plan with one segment a rank; rank 0 uses the first window at offset 0.
vcollResult_t gatherWith(vcollComm_t comm, bool otherWindow, size_t offset) {
  void* memory[2] = {};
  vcollWindow_t windows[2] = {};
  for (int i = 0; i < 2; ++i) {
    if (vcollMemAlloc(&memory[i], kBytes) != vcollSuccess) return vcollInternalError;
    const vcollResult_t result = vcollWindowRegister(comm, memory[i], kBytes, &windows[i]);
    if (result != vcollSuccess) return result;
  }
  const vcollSegment_t segments[] = {{0, 0, 0, 4000}, {1, 0, 4000, 4000}};
  vcollPlan_t plan = nullptr;
  const vcollResult_t made = vcollPlanCreate(comm, segments, 2, vcollInt32, nullptr, &plan);
  if (made != vcollSuccess) return made;
  return vcollPlanAllGatherV(plan, windows[otherWindow ? 1 : 0], offset, nullptr);
}

}  // namespace

TEST_CASE("regress: ranks that use other offsets or windows disagree", "[regress]") {
  const bool apart = GENERATE(false, true);
  SECTION("offset") {
    for (const Outcome& outcome : onRanks(2, apart, 10000, apart, [](vcollComm_t comm, int rank) {
           return gatherWith(comm, false, rank == 0 ? 8192 : 0);
         })) {
      CHECK(outcome.result == vcollMismatch);
      CHECK_THAT(outcome.text, Catch::Contains("offset: rank 0 has 8192, rank 1 has 0"));
    }
  }
  SECTION("window") {
    for (const Outcome& outcome :
         onRanks(2, apart, 10000, apart, [](vcollComm_t comm, int rank) { return gatherWith(comm, rank == 1, 0); })) {
      CHECK(outcome.result == vcollMismatch);
      CHECK_THAT(outcome.text, Catch::Contains("window: rank 0 has"));
    }
  }
}

TEST_CASE("regress: a time-out names the rank that never came, on every rank", "[regress]") {
  // Rank 3 skips the call; on other nodes its absence shows only through ranks that wait for it.
  std::vector<Outcome> outcomes = onRanks(4, true, 1000, false, [](vcollComm_t comm, int rank) {
    std::vector<size_t> counts(4, 1000);
    std::vector<float> send(1000);
    std::vector<float> recv(4000);
    vcollResult_t result =
        vcollAllGatherV(send.data(), 1000, recv.data(), counts.data(), nullptr, vcollFloat32, comm, nullptr);
    if (result != vcollSuccess) return result;
    if (rank == 3) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2500));
      return vcollSuccess;
    }
    return vcollAllGatherV(send.data(), 1000, recv.data(), counts.data(), nullptr, vcollFloat32, comm, nullptr);
  });
  for (int rank = 0; rank < 3; ++rank) {
    const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
    CHECK(outcome.result == vcollTimeout);
    CHECK_THAT(outcome.text, Catch::Contains("rank 3"));
  }
}

TEST_CASE("regress: a window ends with its allocation, not with the page", "[regress]") {
  const std::vector<Outcome> outcomes = onRanks(1, false, 1000, false, [](vcollComm_t comm, int) {
    void* memory = nullptr;
    vcollWindow_t window = nullptr;
    if (vcollMemAlloc(&memory, 10000) != vcollSuccess) return vcollInternalError;
    const vcollResult_t result = vcollWindowRegister(comm, memory, 10001, &window);
    vcollMemFree(memory);
    return result;
  });
  CHECK(outcomes[0].result == vcollInvalidArgument);
  CHECK_THAT(outcomes[0].text, Catch::Contains("10001"));
}

TEST_CASE("regress: an empty segment has no alignment", "[regress]") {
  const std::vector<Outcome> outcomes = onRanks(1, false, 1000, false, [](vcollComm_t comm, int) {
    const vcollSegment_t segments[] = {{0, 0, 0, 8}, {0, 0, 49131, 0}};
    vcollPlan_t plan = nullptr;
    return vcollPlanCreate(comm, segments, 2, vcollFloat32, nullptr, &plan);
  });
  CHECK(outcomes[0].result == vcollSuccess);
}

TEST_CASE("regress: launchers that contradict each other are an error", "[regress]") {
  setenv("WORLD_SIZE", "1", 1);
  setenv("RANK", "0", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  vcollComm_t comm = nullptr;
  CHECK(vcollCommInitFromEnv(&comm) == vcollInvalidUsage);
  CHECK_THAT(std::string(vcollGetLastError(nullptr)), Catch::Contains("OMPI_COMM_WORLD_SIZE = 2"));
  for (const char* name : {"WORLD_SIZE", "RANK", "OMPI_COMM_WORLD_SIZE"}) unsetenv(name);
}
