// SPDX-License-Identifier: Apache-2.0
// PublishStream with threads as ranks, so that the sanitizers see both ends: owners write, push on host streams and
// begin the next step while readers hold leases and other threads wait.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "vcoll/vcoll.h"

namespace {

constexpr uint64_t kItemBytes = 200000;
constexpr uint64_t kItemsPerRank = 3;

struct Case {
  std::vector<int> nodes;  // by rank
  int copies;
  int32_t path;
  int steps;
};

// Runs one rank; returns what went wrong first.
std::string runRank(const Case& run, const vcollUniqueId& id, int rank) {
  std::string wrong;
#define NEED(call)                                                                    \
  if (const vcollResult_t needed = (call); needed != vcollSuccess && wrong.empty()) { \
    wrong = std::string(#call ": ") + vcollGetLastError(nullptr);                     \
  }
  const auto ranks = static_cast<int>(run.nodes.size());
  const std::string host = std::to_string(run.nodes[static_cast<size_t>(rank)]);
  vcollConfig_t config = VCOLL_CONFIG_INITIALIZER;
  config.hostId = host.c_str();
  config.timeoutMs = 60000;
  vcollComm_t comm = nullptr;
  NEED(vcollCommInitRankConfig(&comm, ranks, id, rank, &config));
  if (!wrong.empty()) return wrong;

  const uint64_t stride = kItemsPerRank * static_cast<uint64_t>(ranks) * kItemBytes;
  void* memory = nullptr;
  vcollWindow_t window = nullptr;
  vcollStream_t hostStream = nullptr;
  NEED(vcollMemAlloc(&memory, 2 * stride));
  NEED(vcollWindowRegister(comm, memory, 2 * stride, &window));
  NEED(vcollHostStreamCreate(&hostStream));
  std::vector<vcollPublishItem_t> items;
  for (uint64_t i = 0; i < kItemsPerRank * static_cast<uint64_t>(ranks); ++i) {
    items.push_back({i, static_cast<int32_t>(i % static_cast<uint64_t>(ranks)), 0, i * kItemBytes, kItemBytes});
  }
  vcollPublishConfig_t publish = VCOLL_PUBLISH_CONFIG_INITIALIZER;
  publish.copies = run.copies;
  publish.copyStride = run.copies == 2 ? stride : 0;
  publish.path = run.path;
  publish.verify = 1;
  vcollPublishStream_t stream = nullptr;
  NEED(vcollPublishStreamCreate(comm, window, items.data(), items.size(), &publish, &stream));
  int node = 0;
  int local = 0;
  NEED(vcollCommRankNode(comm, rank, &node, &local));
  std::vector<uint64_t> mine;
  for (const vcollPublishItem_t& item : items) {
    int leader = -1;
    NEED(vcollPublishStreamGetLeader(stream, item.id, node, &leader));
    if (leader == rank) mine.push_back(item.id);
  }

  const auto check = [&](uint64_t item, uint64_t step, const void* at) {
    for (uint64_t b = 0; b < kItemBytes; b += 64) {
      uint64_t word = 0;
      std::memcpy(&word, static_cast<const char*>(at) + b, sizeof word);
      if (word != step * 1000 + item && wrong.empty()) {
        wrong = "item " + std::to_string(item) + ", step " + std::to_string(step) + ": " + std::to_string(word);
      }
    }
  };
  std::vector<std::pair<uint64_t, const void*>> leases;  // of the step before
  for (int s = 0; s < run.steps && wrong.empty(); ++s) {
    const auto step = static_cast<uint64_t>(s);
    NEED(vcollPublishStreamBegin(stream, step));
    for (const vcollPublishItem_t& item : items) {
      if (item.owner != rank) continue;
      void* place = nullptr;
      NEED(vcollPublishStreamAddress(stream, item.id, step, &place));
      const uint64_t word = step * 1000 + item.id;
      for (uint64_t b = 0; b < kItemBytes; b += 64) std::memcpy(static_cast<char*>(place) + b, &word, sizeof word);
      NEED(vcollPublishStreamPush(stream, item.id, item.id % 2 == 0 ? hostStream : nullptr));
    }
    for (const auto& [item, at] : leases) {
      check(item, step - 1, at);
      NEED(vcollPublishStreamRelease(stream, item, step - 1));
    }
    leases.clear();
    std::thread waiter([&] { (void)vcollPublishStreamWaitAll(stream, step, nullptr); });
    for (const uint64_t item : mine) {
      const void* at = nullptr;
      NEED(vcollPublishStreamAcquire(stream, item, step, &at));
      if (!wrong.empty()) break;
      check(item, step, at);
      if (items[item].owner != rank && (item + step) % 2 == 0) {
        leases.emplace_back(item, at);
      } else {
        NEED(vcollPublishStreamRelease(stream, item, step));
      }
    }
    waiter.join();
    NEED(vcollHostStreamSynchronize(hostStream));
    NEED(vcollPublishStreamEnd(stream, step));
  }
  for (const auto& lease : leases) {
    NEED(vcollPublishStreamRelease(stream, lease.first, static_cast<uint64_t>(run.steps - 1)));
  }
  NEED(vcollPublishStreamDestroy(stream));
  NEED(vcollHostStreamDestroy(hostStream));
  NEED(vcollCommDestroy(comm));
  NEED(vcollMemFree(memory));
  return wrong;
#undef NEED
}

}  // namespace

TEST_CASE("publish: versions are whole on every leader", "[publish]") {
  const std::vector<Case> cases = {
      {{0, 1}, 1, vcollPathChain, 12},      {{0, 1}, 2, vcollPathChain, 12},
      {{0, 1, 2}, 2, vcollPathStar, 8},     {{0, 1, 2, 3}, 1, vcollPathChain, 6},
      {{0, 0, 1, 1}, 2, vcollPathChain, 6}, {{0, 1, 1, 2, 2}, 1, vcollPathChain, 6},
      {{0, 0, 0}, 1, vcollPathAuto, 6},
  };
  for (const Case& run : cases) {
    vcollUniqueId id;
    REQUIRE(vcollGetUniqueId(&id) == vcollSuccess);
    std::vector<std::string> wrong(run.nodes.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < run.nodes.size(); ++rank) {
      threads.emplace_back([&, rank] { wrong[rank] = runRank(run, id, static_cast<int>(rank)); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& text : wrong) CHECK(text == "");
  }
}
