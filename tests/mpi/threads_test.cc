// SPDX-License-Identifier: Apache-2.0
// Several ranks in one process, each driven by threads of its own. Every process of the run holds four ranks.
#include <exception>
#include <thread>

#include "harness.h"
#include "private_calls.h"
#include "suites.h"

namespace suite {

namespace {

constexpr int kThreads = 4;

// Runs body(rank of all, threads' world size) on each thread.
void onThreads(const std::function<void(int, int)>& body) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&body, t] {
      try {
        body(worldRank * kThreads + t, worldSize * kThreads);
      } catch (const Abandon&) {
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<size_t> rampCounts(int size) {
  std::vector<size_t> counts;
  for (int r = 0; r < size; ++r) counts.push_back(static_cast<size_t>(r * 1001));
  return counts;
}

void fourRanks() {
  const vcollUniqueId id = sharedId();
  onThreads([&](int rank, int size) {
    vcollComm_t comm = nullptr;
    MUST(vcollCommInitRank(&comm, size, id, rank));
    PrivateCalls calls(comm);
    for (int i = 0; i < 20; ++i) calls.both(rampCounts(size), options.seed + static_cast<uint64_t>(i));
    std::vector<vcollSegment_t> segments;
    for (int r = 0; r < size; ++r) segments.push_back({r, 0, 40000 * static_cast<uint64_t>(r), 40000});
    const size_t bytes = 40000 * static_cast<size_t>(size);
    void* memory = nullptr;
    vcollWindow_t window = nullptr;
    vcollPlan_t plan = nullptr;
    MUST(vcollMemAlloc(&memory, bytes));
    MUST(vcollWindowRegister(comm, memory, bytes, &window));
    MUST(vcollPlanCreate(comm, segments.data(), segments.size(), vcollInt32, nullptr, &plan));
    auto* data = static_cast<unsigned char*>(memory);
    fillBytes(data + 40000 * rank, 40000, options.seed, static_cast<uint64_t>(rank));
    MUST(vcollPlanAllGatherV(plan, window, 0, nullptr));
    std::vector<unsigned char> expected(40000);
    for (int r = 0; r < size; ++r) {
      fillBytes(expected.data(), expected.size(), options.seed, static_cast<uint64_t>(r));
      EXPECT(std::memcmp(expected.data(), data + 40000 * r, 40000) == 0, "segment {} on rank {}", r, rank);
    }
    MUST(vcollCommDestroy(comm));
    MUST(vcollMemFree(memory));
  });
}

// Two communicators per rank, each used by a thread of its own at the same time.
void twoCommsEach() {
  const vcollUniqueId ids[2] = {sharedId(), sharedId()};
  onThreads([&](int rank, int size) {
    std::vector<std::thread> users;
    for (int which = 0; which < 2; ++which) {
      users.emplace_back([&, which] {
        try {
          vcollComm_t comm = nullptr;
          MUST(vcollCommInitRank(&comm, size, ids[which], rank));
          PrivateCalls calls(comm);
          for (int i = 0; i < 15; ++i) calls.both(rampCounts(size), static_cast<uint64_t>(100 * which + i));
          MUST(vcollCommDestroy(comm));
        } catch (const Abandon&) {
        }
      });
    }
    for (std::thread& user : users) user.join();
  });
}

void splits() {
  const vcollUniqueId id = sharedId();
  onThreads([&](int rank, int size) {
    vcollComm_t comm = nullptr;
    MUST(vcollCommInitRank(&comm, size, id, rank));
    for (int round = 0; round < 25; ++round) {
      vcollComm_t part = nullptr;
      MUST(vcollCommSplit(comm, (rank + round) % 2, rank, &part, nullptr));
      expectUsable(part);
      MUST(vcollCommDestroy(part));
    }
    MUST(vcollCommDestroy(comm));
  });
}

}  // namespace

void threadsSuite() {
  runCase("threads.four_ranks", fourRanks);
  runCase("threads.two_comms_each", twoCommsEach);
  runCase("threads.splits", splits);
}

}  // namespace suite
