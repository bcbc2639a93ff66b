// SPDX-License-Identifier: Apache-2.0
// PublishStream: whole versions on every leader, leases, both copies, stripes, many steps.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "harness.h"
#include "publish_steps.h"
#include "suites.h"

namespace suite {

namespace {

void versions() {
  const WorldComm comm;
  const int rounds = options.light ? 4 : 12;
  for (int round = 0; round < rounds; ++round) {
    const uint64_t seed = options.seed * 1000 + static_cast<uint64_t>(round);
    Random random(seed);
    const int copies = 1 + round % 2;
    const Layout layout = Layout::random(seed, random.below(40), copies, round % 3 == 0 ? 400000 : 5000);
    const int path = round % 4 < 2 ? vcollPathChain : vcollPathStar;
    const int64_t chunk = random.below(2) == 0 ? 0 : 1024 + 16 * static_cast<int64_t>(random.below(200));
    Stream stream(comm.get(), layout, configWith(path, chunk, round % 2), round % 3 != 1);
    steps(stream, random.below(3), options.light ? 3 : 8, seed);
    stream.expectGuards();
  }
}

// Pushes and waits on host streams, two PublishStreams and a collective at the same time.
void together() {
  const WorldComm comm;
  const Layout layout = Layout::random(options.seed + 5, 20, 2, 60000);
  const Layout other = Layout::random(options.seed + 6, 10, 1, 60000);
  Stream a(comm.get(), layout);
  Stream b(comm.get(), other);
  vcollStream_t hostStream = nullptr;
  MUST(vcollHostStreamCreate(&hostStream));
  std::thread thread([&] { steps(b, 0, 6, options.seed); });
  steps(a, 10, 6, options.seed, hostStream);
  thread.join();
  for (int i = 0; i < 3; ++i) expectUsable(comm.get());
  a.expectGuards();
  b.expectGuards();
  MUST(vcollHostStreamDestroy(hostStream));
}

// With two copies the next step begins while a push is still queued on a host stream: it stays a push of its own step.
void queuedPush() {
  if (nodesOfLayout() < 2 || worldSize != nodesOfLayout()) return;
  const WorldComm comm;
  Layout layout;
  layout.copies = 2;
  for (int r = 0; r < worldSize; ++r) layout.add(r, 20000);
  layout.finish();
  Stream stream(comm.get(), layout);
  vcollStream_t hostStream = nullptr;
  MUST(vcollHostStreamCreate(&hostStream));
  const auto own = static_cast<size_t>(worldRank);
  MUST(vcollPublishStreamBegin(stream.get(), 0));
  if (worldRank == 0) {
    MUST(vcollPublishStreamWait(stream.get(), stream.item(1).id, 0, hostStream));  // holds up what is queued behind it
  } else {
    sleepMs(200);
  }
  stream.push(own, 0, worldRank == 0 ? hostStream : nullptr);
  MUST(vcollPublishStreamEnd(stream.get(), 0));
  MUST(vcollPublishStreamBegin(stream.get(), 1));
  stream.push(own, 1);
  for (const uint64_t step : {0u, 1u}) {
    MUST(vcollPublishStreamWaitAll(stream.get(), step, nullptr));
    for (const size_t i : stream.mine()) stream.expectVersion(i, step);
  }
  MUST(vcollPublishStreamEnd(stream.get(), 1));
  MUST(vcollHostStreamDestroy(hostStream));
}

// Data moves while no rank is inside a call.
void alone() {
  const WorldComm comm;
  Layout layout;
  for (int r = 0; r < worldSize; ++r) layout.add(r, 1 << 20);
  layout.finish();
  Stream stream(comm.get(), layout);
  MUST(vcollPublishStreamBegin(stream.get(), 1));
  for (const size_t i : ownItems(layout)) stream.push(i, 1);
  MPI_Barrier(MPI_COMM_WORLD);
  sleepMs(1500);
  for (const size_t i : stream.mine()) {
    int ready = 0;
    MUST(vcollPublishStreamTest(stream.get(), stream.item(i).id, 1, &ready));
    EXPECT(ready == 1, "item {} did not come by itself", stream.item(i).id);
  }
  MUST(vcollPublishStreamEnd(stream.get(), 1));
}

// A lease keeps a version over the next Begin; with one copy the owner's next version waits for it.
void leases() {
  for (const int copies : {1, 2}) {
    const WorldComm comm;
    const Layout layout = Layout::random(options.seed + 40 + static_cast<uint64_t>(copies), 16, copies, 30000);
    Stream stream(comm.get(), layout);
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t step = 1 + 2 * round;
      MUST(vcollPublishStreamBegin(stream.get(), step));
      for (const size_t i : ownItems(layout)) stream.push(i, step);
      MUST(vcollPublishStreamWaitAll(stream.get(), step, nullptr));
      std::vector<std::pair<size_t, const void*>> held;
      for (const size_t i : stream.mine()) {
        if (stream.item(i).owner == worldRank || (i + step) % 3 != 0) continue;
        const void* at = nullptr;
        MUST(vcollPublishStreamAcquire(stream.get(), stream.item(i).id, step, &at));
        held.push_back({i, at});
      }
      MUST(vcollPublishStreamEnd(stream.get(), step));
      const uint64_t next = step + 1;
      MUST(vcollPublishStreamBegin(stream.get(), next));
      for (const size_t i : ownItems(layout)) stream.push(i, next);
      sleepMs(static_cast<int>(hashOf(options.seed, step, static_cast<uint64_t>(worldRank)) % 20));
      for (const auto& [i, at] : held) {
        stream.expectVersion(i, step, at);
        MUST(vcollPublishStreamRelease(stream.get(), stream.item(i).id, step));
      }
      MUST(vcollPublishStreamWaitAll(stream.get(), next, nullptr));
      for (const size_t i : stream.mine()) stream.expectVersion(i, next);
      MUST(vcollPublishStreamEnd(stream.get(), next));
    }
  }
}

// A reader that is slow does not hold up the others until they are as many steps ahead as there are copies.
void slowReader() {
  if (nodesOfLayout() < 3 || worldSize != nodesOfLayout()) return;
  for (const int copies : {1, 2}) {
    const WorldComm comm;
    Layout layout;
    layout.copies = copies;
    layout.add(0, 100000);
    layout.finish();
    Stream stream(comm.get(), layout, configWith(vcollPathStar, 0, 0));
    const int slow = worldSize - 1;
    constexpr int kSteps = 4;
    if (worldRank == slow) {
      sleepMs(1500);
      steps(stream, 0, kSteps, 1);
    } else {
      const double start = now();
      steps(stream, 0, copies, 1);
      const double took = now() - start;
      EXPECT(took < 1.0, "the first {} steps took {:.3f} s", copies, took);
      steps(stream, 3 * static_cast<uint64_t>(copies), kSteps - copies, 1);
    }
  }
}

// Bytes that this process's TCP sockets have sent so far.
double bytesSent() {
  double sum = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) sum += static_cast<double>(info.tcpi_bytes_acked);
  }
  return sum;
}

// VCOLL_PUBLISH_STRIPE=1: ranks that own nothing carry an equal share of a heavy item, as far as three go.
void stripes() {
  int node = 0;
  int local = 0;
  const WorldComm comm;
  MUST(vcollCommRankNode(comm.get(), worldRank, &node, &local));
  int locals[2] = {node == 0 ? 1 : 0, node};
  MPI_Allreduce(MPI_IN_PLACE, &locals[0], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (std::getenv("VCOLL_PUBLISH_STRIPE") == nullptr || nodesOfLayout() < 2) return;
  Layout layout;
  layout.add(0, 8 << 20);
  layout.finish();
  Stream stream(comm.get(), layout, configWith(vcollPathChain, 0, 1));
  constexpr int kSteps = 5;
  const double before = bytesSent();
  for (int s = 0; s < kSteps; ++s) {
    steps(stream, static_cast<uint64_t>(s), 1, 3);
    MPI_Barrier(MPI_COMM_WORLD);
    sleepMs(20);  // credits come home
  }
  const double sent = (bytesSent() - before) / kSteps / (8 << 20);
  const int carriers = std::min(locals[0], 4);
  if (worldRank == 0) std::printf("  %d carriers, rank 0 sent %.3f of the item\n", carriers, sent);
  if (node == 0 && local < carriers) {
    EXPECT(std::fabs(sent * carriers - 1) < 0.1, "rank {} of {} sent {} of the item", local, carriers, sent);
  }
}

// 10,000 versions: nothing grows.
void manyVersions() {
  const WorldComm comm;
  const Layout layout = Layout::random(options.seed + 77, 12, 2, 3000);
  Stream stream(comm.get(), layout);
  const int total = options.light ? 1000 : 10000;
  const auto residentKib = [] {
    FILE* file = std::fopen("/proc/self/statm", "r");
    long size = 0;
    long resident = 0;
    if (file == nullptr || std::fscanf(file, "%ld %ld", &size, &resident) != 2) resident = -1;
    if (file != nullptr) std::fclose(file);
    return resident * 4;
  };
  long before = 0;
  const double start = now();
  for (int s = 0; s < total; ++s) {
    if (s == total / 10) before = residentKib();
    const auto step = static_cast<uint64_t>(s);
    MUST(vcollPublishStreamBegin(stream.get(), step));
    for (const size_t i : ownItems(layout)) stream.push(i, step);
    MUST(vcollPublishStreamWaitAll(stream.get(), step, nullptr));
    if (s % 97 == 0) {
      for (const size_t i : stream.mine()) stream.expectVersion(i, step);
    }
    MUST(vcollPublishStreamEnd(stream.get(), step));
  }
  const double seconds = now() - start;
  const long after = residentKib();
  EXPECT(after <= before + 1024, "{} KiB resident after {} versions, {} KiB before", after, total, before);
  stream.expectGuards();
  if (worldRank == 0) std::printf("  %d versions, %.1f us each\n", total, 1e6 * seconds / total);
}

}  // namespace

void publishSuite() {
  runCase("publish.versions", versions);
  runCase("publish.together", together);
  runCase("publish.queued_push", queuedPush);
  runCase("publish.alone", alone);
  runCase("publish.leases", leases);
  runCase("publish.slow_reader", slowReader);
  runCase("publish.stripes", stripes);
  runCase("publish.many_versions", manyVersions);
}

}  // namespace suite
