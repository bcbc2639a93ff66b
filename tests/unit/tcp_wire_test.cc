// SPDX-License-Identifier: Apache-2.0
// The tcp wire between ranks of one process: order, sizes, queues, connects, orderly and abrupt ends, descriptors.
#include "transport/host/tcp_wire.h"

#include <dirent.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "support/wire_group.h"

namespace vcoll {
namespace {

using namespace wiretest;

size_t openFds() {
  size_t count = 0;
  DIR* dir = opendir("/proc/self/fd");
  while (readdir(dir) != nullptr) count++;
  closedir(dir);
  return count;
}

}  // namespace

TEST_CASE("tcp wire: puts of any size land in order, each before its signal", "[tcp_wire]") {
  constexpr size_t kBytes = 24u << 20;
  Group group(2, kBytes);
  group.connectAll();
  const std::vector<std::byte> data = hashBytes(1, kBytes);
  std::vector<size_t> sizes;
  Random random(2);
  for (size_t total = 0; total < kBytes;) {
    const size_t classes[] = {1, 40, 4097, 70000, 1u << 20};
    const size_t size = std::min(kBytes - total, 1 + random.below(classes[random.below(5)]));
    sizes.push_back(size);
    total += size;
  }
  bool sent = true;
  std::thread sender([&] {
    size_t offset = 0;
    for (const size_t size : sizes) {
      sent = sent && group.put(0, 1, data.data() + offset, size, offset, 3);
      if (size % 3 == 0) wire().signal(group.comm(0), 1, 4, 5);
      offset += size;
    }
    sent = sent && group.flush(0);
  });
  size_t offset = 0;
  size_t wrong = 0;
  uint64_t signals = 0;
  for (size_t i = 0; i < sizes.size(); i++) {
    if (!group.host(1).waitCounter(3, i + 1)) {
      wrong++;
      break;
    }
    if (memcmp(group.host(1).window.data() + offset, data.data() + offset, sizes[i]) != 0) wrong++;
    if (sizes[i] % 3 == 0) signals += 5;
    offset += sizes[i];
  }
  sender.join();
  CHECK(sent);
  CHECK(wrong == 0);
  CHECK(group.host(1).waitCounter(4, signals));
  CHECK(group.host(1).counter(4) == signals);
  CHECK(group.host(1).counter(3) == sizes.size());
  CHECK(group.host(0).lostCount() + group.host(1).lostCount() == 0);
}

TEST_CASE("tcp wire: four ranks, all directions at once", "[tcp_wire]") {
  constexpr int kRanks = 4;
  constexpr size_t kRegion = 3u << 20;  // of each sender in each window
  Group group(kRanks, kRegion * kRanks);
  group.connectAll();
  std::vector<std::vector<std::byte>> data;
  for (uint64_t rank = 0; rank < kRanks; rank++) data.push_back(hashBytes(10 + rank, kRegion));
  std::array<bool, kRanks> fine{};
  std::array<uint64_t, kRanks> puts{};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; rank++) {
    threads.emplace_back([&, rank] {
      const auto self = static_cast<size_t>(rank);
      Random random(100 + self);
      bool good = true;
      for (size_t offset = 0; offset < kRegion;) {
        const size_t size = std::min(kRegion - offset, 1 + random.below(200000));
        for (int peer = 0; peer < kRanks; peer++) {
          if (peer == rank) continue;
          good = good && group.put(rank, peer, data[self].data() + offset, size, kRegion * self + offset,
                                   static_cast<uint32_t>(rank));
        }
        offset += size;
        puts[self]++;
      }
      fine[self] = good && group.flush(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < kRanks; rank++) {
    CHECK(fine[static_cast<size_t>(rank)]);
    for (size_t peer = 0; peer < kRanks; peer++) {
      if (peer == static_cast<size_t>(rank)) continue;
      CHECK(group.host(rank).waitCounter(static_cast<uint32_t>(peer), puts[peer]));
      CHECK(group.host(rank).counter(static_cast<uint32_t>(peer)) == puts[peer]);
      CHECK(memcmp(group.host(rank).window.data() + kRegion * peer, data[peer].data(), kRegion) == 0);
    }
    CHECK(group.host(rank).lostCount() == 0);
  }
}

TEST_CASE("tcp wire: a put of no bytes is a signal", "[tcp_wire]") {
  Group group(2, 64);
  group.connectAll();
  wire().put(group.comm(1), 0, nullptr, 0, kWindow, 0, 9, 4);
  CHECK(group.host(0).waitCounter(9, 4));
  CHECK(group.host(0).lostCount() == 0);
}

TEST_CASE("tcp wire: connect ends in time and names the peer", "[tcp_wire]") {
  Group group(3, 64);
  int code = 0;
  SECTION("time-out of the accepting side, then again together") {
    const Deadline soon = Deadline::afterMs(3000);
    CHECK_THAT(group.connect(1, {0}, 100, nullptr, &code),
               Catch::Contains("rank 0 at " + group.endpoint(0).text()) && Catch::Contains("time-out"));
    CHECK(code == ETIMEDOUT);
    CHECK(!soon.passed());
    group.connectAll();
  }
  SECTION("time-out of the dialling side: the peer never takes the connection") {
    CHECK_THAT(group.connect(0, {1}, 100, nullptr, &code),
               Catch::Contains("rank 1 at " + group.endpoint(1).text()) && Catch::Contains("time-out"));
    CHECK(code == ETIMEDOUT);
    group.connectAll();
  }
  SECTION("cancelled") {
    volatile int cancelled = 0;
    std::thread canceller([&] {
      std::this_thread::sleep_for(50ms);
      __atomic_store_n(&cancelled, 1, __ATOMIC_RELAXED);
    });
    const Deadline soon = Deadline::afterMs(5000);
    CHECK_THAT(group.connect(1, {0, 2}, 20000, &cancelled, &code), Catch::Contains("cancelled"));
    canceller.join();
    CHECK(code == ECANCELED);
    CHECK(!soon.passed());
  }
  SECTION("in rounds; those connected are skipped") {
    std::string other;
    std::thread second([&] { other = group.connect(1, {0, 0}); });
    CHECK(group.connect(0, {1}) == "");
    second.join();
    CHECK(other == "");
    CHECK(group.connect(0, {1}) == "");
    group.connectAll();
    group.connectAll();
  }
  SECTION("bad peers") {
    CHECK(group.connect(0, {0}, 100, nullptr, &code) != "");
    CHECK(code == EINVAL);
    CHECK(group.connect(0, {3}, 100, nullptr, &code) != "");
    CHECK(code == EINVAL);
    CHECK(group.connect(0, {-1}, 100, nullptr, &code) != "");
    CHECK(code == EINVAL);
  }
  for (int rank = 0; rank < 3; rank++) CHECK(group.host(rank).lostCount() == 0);
}

TEST_CASE("tcp wire: an orderly end delivers what was put", "[tcp_wire]") {
  constexpr size_t kBytes = 16u << 20;
  constexpr size_t kPut = 1u << 20;
  Group group(2, kBytes);
  group.connectAll();
  const std::vector<std::byte> data = hashBytes(8, kBytes);
  std::vector<std::byte> source = data;
  group.host(1).resolveDelay = 2ms;  // so that much is in flight at the end
  for (size_t offset = 0; offset < kBytes; offset += kPut) {
    REQUIRE(group.put(0, 1, source.data() + offset, kPut, offset, 1));
    wire().signal(group.comm(1), 0, 2, 1);
  }
  group.close(0, true);
  std::fill(source.begin(), source.end(), std::byte{0});  // close() leaves no claim on the caller's memory
  REQUIRE(group.host(1).waitCounter(1, kBytes / kPut));
  CHECK(memcmp(group.host(1).window.data(), data.data(), kBytes) == 0);
  // The survivor may go on; nothing is lost, nothing hangs.
  for (int i = 0; i < 20; i++) {
    REQUIRE(group.put(1, 0, data.data(), kPut, 0, 1));
    std::this_thread::sleep_for(1ms);
  }
  REQUIRE(group.flush(1));
  CHECK(group.connect(1, {0}, 100) == "");
  group.close(1, true);
  CHECK(group.host(0).lostCount() + group.host(1).lostCount() == 0);
}

TEST_CASE("tcp wire: closing after an error drops what is queued and is no loss", "[tcp_wire]") {
  constexpr size_t kPut = 1u << 20;
  Group group(3, kPut);
  group.connectAll();
  group.host(0).resolveDelay = 300us;
  const std::vector<std::byte> data = hashBytes(11, kPut);
  for (int i = 0; i < 64; i++) wire().put(group.comm(1), 0, data.data(), kPut, kWindow, 0, 1, 1);
  group.close(1, false);
  std::this_thread::sleep_for(200ms);
  CHECK(group.host(0).lostCount() + group.host(2).lostCount() == 0);
  REQUIRE(group.put(0, 2, data.data(), 1, 0, 1));
  CHECK(group.host(2).waitCounter(1, 1));
  CHECK(group.host(1).lostCount() == 0);
}

TEST_CASE("tcp wire: a stalled peer fills the queue; each wake that is needed comes", "[tcp_wire]") {
  constexpr size_t kPut = 100001;
  constexpr size_t kPuts = 400;
  Group group(2, kPut * 4);
  group.connectAll();
  group.host(1).resolveDelay = 300us;
  const std::vector<std::byte> data = hashBytes(3, kPut);
  size_t fullSeen = 0;
  for (size_t i = 0; i < kPuts; i++) {
    if (wire().ready(group.comm(0), 1) == 0) fullSeen++;
    REQUIRE(group.put(0, 1, data.data(), kPut, (i % 4) * kPut, 1));
    if (i % 50 == 49) REQUIRE(group.flush(0));
  }
  REQUIRE(group.flush(0));
  CHECK(fullSeen > 0);
  CHECK(group.host(1).waitCounter(1, kPuts));
  for (size_t i = 0; i < 4; i++) CHECK(memcmp(group.host(1).window.data() + i * kPut, data.data(), kPut) == 0);
}

TEST_CASE("tcp wire: descriptors are flat over many rounds", "[tcp_wire]") {
  size_t before = 0;
  for (int round = 0; round < 100; round++) {
    Group group(3, 4096);
    group.connectAll();
    const std::vector<std::byte> data = hashBytes(4, 4096);
    REQUIRE(group.put(round % 3, (round + 1) % 3, data.data(), 4096, 0, 1));
    REQUIRE(group.host((round + 1) % 3).waitCounter(1, 1));
    group.close(round % 3, round % 2 == 0);
    if (round == 0) {  // what a process has for good is open now
      group.close(1, true);
      group.close(2, true);
      std::this_thread::sleep_for(200ms);
      before = openFds();
    }
  }
  const Deadline deadline = Deadline::afterMs(3000);
  while (openFds() > before && !deadline.passed()) std::this_thread::sleep_for(5ms);
  CHECK(openFds() == before);
}

// Polls until the counter has the value.
static bool pollFor(Group& group, int rank, uint32_t counter, uint64_t value) {
  const Deadline deadline = Deadline::afterMs(20000);
  while (group.host(rank).counter(counter) < value) {
    if (deadline.passed()) return false;
    wire().poll(group.comm(rank));
  }
  return true;
}

TEST_CASE("tcp wire: who attends serves the sockets alone, and hands them back", "[tcp_wire]") {
  constexpr size_t kBytes = 300000;
  Group group(2, kBytes);
  group.connectAll();
  const std::vector<std::byte> data = hashBytes(7, kBytes);
  wire().attend(group.comm(1), 1);
  wire().poll(group.comm(1));
  std::this_thread::sleep_for(50ms);  // the progress thread is past what it had begun
  REQUIRE(group.put(0, 1, data.data(), kBytes, 0, 1));
  std::this_thread::sleep_for(50ms);
  REQUIRE(group.host(1).counter(1) == 0);
  REQUIRE(pollFor(group, 1, 1, 1));
  REQUIRE(group.host(1).window == data);
  REQUIRE(wire().poll(group.comm(1)) == 0);

  wire().signal(group.comm(0), 1, 2, 1);
  std::this_thread::sleep_for(20ms);
  REQUIRE(group.host(1).counter(2) == 0);
  wire().attend(group.comm(1), 0);  // what came meanwhile is not lost
  REQUIRE(group.host(1).waitCounter(2, 1));
  wire().signal(group.comm(0), 1, 2, 1);
  REQUIRE(group.host(1).waitCounter(2, 2));
}

TEST_CASE("tcp wire: signals of who attends go together, and before a later put", "[tcp_wire]") {
  Group group(2, 64);
  group.connectAll();
  const std::vector<std::byte> data = hashBytes(8, 64);
  wire().attend(group.comm(0), 1);
  for (int i = 0; i < 3; i++) wire().signal(group.comm(0), 1, 4, 1);
  std::this_thread::sleep_for(20ms);
  REQUIRE(group.host(1).counter(4) == 0);
  wire().poll(group.comm(0));
  REQUIRE(group.host(1).waitCounter(4, 3));

  wire().signal(group.comm(0), 1, 4, 1);
  REQUIRE(group.put(0, 1, data.data(), 64, 0, 5));
  REQUIRE(group.host(1).waitCounter(5, 1));
  REQUIRE(group.host(1).counter(4) == 4);

  wire().signal(group.comm(0), 1, 4, 1);
  wire().attend(group.comm(0), 0);
  REQUIRE(group.host(1).waitCounter(4, 5));
  wire().signal(group.comm(0), 1, 4, 1);  // at once again
  REQUIRE(group.host(1).waitCounter(4, 6));
  REQUIRE(group.host(0).lostCount() + group.host(1).lostCount() == 0);
}

TEST_CASE("tcp wire: callers and the progress thread take turns under load", "[tcp_wire]") {
  constexpr size_t kBytes = 8u << 20;
  constexpr size_t kPut = 50000;
  constexpr size_t kPuts = kBytes / kPut;
  Group group(2, kBytes);
  group.connectAll();
  const std::array<std::vector<std::byte>, 2> data = {hashBytes(9, kBytes), hashBytes(10, kBytes)};
  std::array<bool, 2> good{};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; rank++) {
    threads.emplace_back([&, rank] {
      vcollWireComm* comm = group.comm(rank);
      const int peer = 1 - rank;
      Random random(static_cast<uint64_t>(rank) + 20);
      const Deadline deadline = Deadline::afterMs(60000);
      size_t sent = 0;
      bool attends = false;
      while (!deadline.passed()) {
        if (sent < kPuts && wire().ready(comm, peer) != 0) {
          wire().put(comm, peer, data[static_cast<size_t>(rank)].data() + sent * kPut, kPut, kWindow, sent * kPut, 1,
                     1);
          wire().signal(comm, peer, 2, 1);
          sent++;
        }
        if (random.below(8) == 0) {
          attends = !attends;
          wire().attend(comm, attends ? 1 : 0);
        }
        if (attends) wire().poll(comm);
        if (sent == kPuts && wire().flushed(comm) != 0 && group.host(rank).counter(1) == kPuts) break;
        if (!attends) std::this_thread::yield();
      }
      wire().attend(comm, 0);
      good[static_cast<size_t>(rank)] =
          group.host(rank).waitCounter(1, kPuts) && group.host(rank).waitCounter(2, kPuts);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t rank = 0; rank < 2; rank++) {
    CHECK(good[rank]);
    CHECK(memcmp(group.host(static_cast<int>(rank)).window.data(), data[1 - rank].data(), kPuts * kPut) == 0);
    CHECK(group.host(static_cast<int>(rank)).lostCount() == 0);
  }
}

}  // namespace vcoll
