// SPDX-License-Identifier: Apache-2.0
// Communicators: ids, layout, split, finalize, abort, ranks that are late or in another communicator.
#include <algorithm>
#include <thread>

#include "harness.h"
#include "private_calls.h"
#include "suites.h"

namespace suite {

namespace {

vcollResult_t gatherInts(vcollComm_t comm, int size) {
  const std::vector<size_t> counts(static_cast<size_t>(size), 1);
  std::vector<int> all(counts.size());
  return vcollAllGatherV(&worldRank, 1, all.data(), counts.data(), nullptr, vcollInt32, comm, nullptr);
}

void layout() {
  const WorldComm comm;
  int size = 0;
  int rank = -1;
  MUST(vcollCommCount(comm.get(), &size));
  MUST(vcollCommUserRank(comm.get(), &rank));
  EXPECT(size == worldSize && rank == worldRank, "rank {} of {}", rank, size);
  std::vector<int> seen(static_cast<size_t>(worldSize), 0);
  int largest = 0;
  for (int r = 0; r < worldSize; ++r) {
    int node = -1;
    int local = -1;
    MUST(vcollCommRankNode(comm.get(), r, &node, &local));
    EXPECT(node == nodeOfRank(r), "rank {} is on node {}, not {}", r, node, nodeOfRank(r));
    int& next = seen[static_cast<size_t>(nodeOfRank(r))];
    EXPECT(local == next, "rank {} is local rank {}, not {}", r, local, next);
    largest = std::max(largest, ++next);
  }
  int rails = 0;
  MUST(vcollCommRailCount(comm.get(), &rails));
  EXPECT(rails >= 1 && rails <= largest, "{} rails", rails);
}

// An id that served once, and ranks that do not agree on the world.
void ids() {
  const vcollUniqueId id = sharedId();
  vcollComm_t first = nullptr;
  MUST(vcollCommInitRank(&first, worldSize, id, worldRank));
  vcollConfig_t config = VCOLL_CONFIG_INITIALIZER;
  config.timeoutMs = 3000;
  vcollComm_t second = nullptr;
  double start = now();
  if (worldSize == 1) {
    MUST(vcollCommDestroy(first));
    return;
  }
  vcollResult_t result = vcollCommInitRankConfig(&second, worldSize, id, worldRank, &config);
  EXPECT(result == vcollInvalidUsage || result == vcollInvalidArgument, "a used id gave {}: {}",
         vcollGetErrorString(result), vcollGetLastError(nullptr));
  EXPECT(now() - start < 4 && second == nullptr, "took {} s", now() - start);
  if (worldRank == 0) std::printf("  %s\n", vcollGetLastError(nullptr));
  expectUsable(first);

  // The last rank thinks the world is larger.
  const vcollUniqueId other = sharedId();
  start = now();
  const int size = worldRank == worldSize - 1 ? worldSize + 1 : worldSize;
  result = vcollCommInitRankConfig(&second, size, other, worldRank, &config);
  EXPECT(result == vcollMismatch, "{}: {}", vcollGetErrorString(result), vcollGetLastError(nullptr));
  EXPECT(now() - start < 4 && second == nullptr, "took {} s", now() - start);
  if (worldRank == 0) std::printf("  %s\n", vcollGetLastError(nullptr));

  // Two ranks with one number.
  const vcollUniqueId third = sharedId();
  start = now();
  result = vcollCommInitRankConfig(&second, worldSize, third, worldRank == 1 ? 0 : worldRank, &config);
  EXPECT(result != vcollSuccess && result != vcollTimeout, "{}: {}", vcollGetErrorString(result),
         vcollGetLastError(nullptr));
  EXPECT(now() - start < 4 && second == nullptr, "took {} s", now() - start);
  if (worldRank == 0) std::printf("  %s\n", vcollGetLastError(nullptr));
  expectUsable(first);
  MUST(vcollCommDestroy(first));
}

void split() {
  const WorldComm comm;
  // Colors by parity, keys reversed.
  vcollComm_t part = nullptr;
  MUST(vcollCommSplit(comm.get(), worldRank % 2, -worldRank, &part, nullptr));
  int size = 0;
  int rank = 0;
  MUST(vcollCommCount(part, &size));
  MUST(vcollCommUserRank(part, &rank));
  std::vector<int> members;
  for (int r = 0; r < worldSize; ++r) {
    if (r % 2 == worldRank % 2) members.insert(members.begin(), r);
  }
  EXPECT(size == static_cast<int>(members.size()), "{} ranks", size);
  EXPECT(members[static_cast<size_t>(rank)] == worldRank, "rank {}", rank);
  const std::vector<size_t> counts(members.size(), 1);
  std::vector<int> all(members.size(), -1);
  MUST(vcollAllGatherV(&worldRank, 1, all.data(), counts.data(), nullptr, vcollInt32, part, nullptr));
  EXPECT(all == members, "first member {}", all[0]);
  PrivateCalls(part).both(std::vector<size_t>(members.size(), 777), options.seed);

  // Equal keys keep the order; a split of a split; the parents go first.
  vcollComm_t again = nullptr;
  MUST(vcollCommSplit(part, 5, 1, &again, nullptr));
  int newRank = 0;
  MUST(vcollCommUserRank(again, &newRank));
  EXPECT(newRank == rank, "rank {} became {}", rank, newRank);
  MUST(vcollCommDestroy(part));
  PrivateCalls(again).both(std::vector<size_t>(members.size(), 55), options.seed);
  MUST(vcollCommDestroy(again));

  // A negative color takes part and gets nothing.
  vcollComm_t rest = nullptr;
  MUST(vcollCommSplit(comm.get(), worldRank == 0 ? -1 : 3, 0, &rest, nullptr));
  EXPECT((rest == nullptr) == (worldRank == 0), "rank {}", worldRank);
  if (rest != nullptr) {
    MUST(vcollCommCount(rest, &size));
    EXPECT(size == worldSize - 1, "{} ranks", size);
    expectUsable(rest);
    MUST(vcollCommDestroy(rest));
  }
  vcollComm_t none = nullptr;
  MUST(vcollCommSplit(comm.get(), -7, 0, &none, nullptr));
  EXPECT(none == nullptr, "a handle for nobody");
  // One rank each.
  vcollComm_t alone = nullptr;
  MUST(vcollCommSplit(comm.get(), worldRank, 0, &alone, nullptr));
  expectUsable(alone);
  MUST(vcollCommDestroy(alone));
  expectUsable(comm.get());
}

void finalize() {
  const WorldComm comm;
  vcollStream_t stream = nullptr;
  MUST(vcollHostStreamCreate(&stream));
  const std::vector<size_t> counts(static_cast<size_t>(worldSize), 1);
  std::vector<int> all(counts.size(), -1);
  MUST(vcollAllGatherV(&worldRank, 1, all.data(), counts.data(), nullptr, vcollInt32, comm.get(), stream));
  MUST(vcollCommFinalize(comm.get()));
  for (int r = 0; r < worldSize; ++r) EXPECT(all[static_cast<size_t>(r)] == r, "work was left undone");
  const vcollResult_t result = gatherInts(comm.get(), worldSize);
  EXPECT(result == vcollInvalidUsage, "{}", vcollGetErrorString(result));
  EXPECT(std::string(vcollGetLastError(nullptr)).find("finalized") != std::string::npos, "{}",
         vcollGetLastError(nullptr));
  MUST(vcollHostStreamDestroy(stream));
}

// All but the last rank are blocked in a call that the last never makes; another thread of rank 0 aborts.
void abortBlockedCall() {
  const WorldComm comm;
  if (worldRank == worldSize - 1 && worldSize > 1) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = now();
    EXPECT(gatherInts(comm.get(), worldSize) == vcollAborted, "{}", vcollGetLastError(comm.get()));
    EXPECT(now() - start < 1, "took {} s", now() - start);
    return;
  }
  double aborted = 0;
  std::thread other;
  if (worldRank == 0) {
    other = std::thread([&] {
      sleepMs(400);
      aborted = now();
      EXPECT(vcollCommAbort(comm.get()) == vcollSuccess, "abort failed");
      EXPECT(vcollCommAbort(comm.get()) == vcollSuccess, "the second abort failed");
      EXPECT(now() - aborted < 0.5, "abort took {} s", now() - aborted);
    });
  }
  const double start = now();
  const vcollResult_t result = worldSize == 1 ? vcollAborted : gatherInts(comm.get(), worldSize);
  const double end = now();
  if (other.joinable()) other.join();
  EXPECT(result == vcollAborted, "{}: {}", vcollGetErrorString(result), vcollGetLastError(comm.get()));
  // All ranks started within the time of a barrier.
  EXPECT(end - start < 1.6, "returned after {} s", end - start);
  if (worldRank == 0 && worldSize > 1) EXPECT(end - aborted < 1, "returned {} s after the abort", end - aborted);
  EXPECT(std::string(vcollGetLastError(comm.get())).find("rank 0") != std::string::npos || worldSize == 1, "{}",
         vcollGetLastError(comm.get()));
  EXPECT(vcollCommFinalize(comm.get()) == vcollAborted, "finalize of an aborted communicator");
  if (worldSize > 1) MPI_Barrier(MPI_COMM_WORLD);
}

// Rank 0 calls on A then B, the others on B then A: time-outs that name the call and the communicator.
void crossedComms() {
  if (worldSize == 1) return;
  CommOptions commOptions;
  commOptions.timeoutMs = 800;
  commOptions.name = "alpha";
  const WorldComm first(commOptions);
  commOptions.name = "beta";
  const WorldComm second(commOptions);
  const vcollComm_t mine = worldRank == 0 ? first.get() : second.get();
  const double start = now();
  const vcollResult_t result = gatherInts(mine, worldSize);
  EXPECT(result == vcollTimeout, "{}: {}", vcollGetErrorString(result), vcollGetLastError(mine));
  EXPECT(now() - start < 2.8, "took {} s", now() - start);
  const std::string text = vcollGetLastError(mine);
  EXPECT(text.find("AllGatherV") != std::string::npos && text.find("rank") != std::string::npos, "{}", text);
  EXPECT(text.find(worldRank == 0 ? "alpha" : "beta") != std::string::npos, "{}", text);
  if (worldRank <= 1) std::printf("  rank %d: %s\n", worldRank, text.c_str());
  MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace

void lifeSuite() {
  runCase("life.layout", layout);
  runCase("life.ids", ids);
  runCase("life.split", split);
  runCase("life.finalize", finalize);
  runCase("life.abort", abortBlockedCall);
  runCase("life.crossed_comms", crossedComms);
}

}  // namespace suite
