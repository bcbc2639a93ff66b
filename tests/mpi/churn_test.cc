// SPDX-License-Identifier: Apache-2.0
// Repeated create and destroy: descriptors, threads, mappings and memory stay where they were. And many calls.
#include <dirent.h>
#include <unistd.h>

#include <fstream>

#include "harness.h"
#include "private_calls.h"
#include "suites.h"

namespace suite {

namespace {

long entriesOf(const char* directory) {
  DIR* dir = opendir(directory);
  if (dir == nullptr) return -1;
  long count = 0;
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

struct Footprint {
  long fds = 0;
  long threads = 0;
  long maps = 0;
  long virtualKib = 0;
  long residentKib = 0;

  static Footprint take() {
    Footprint now;
    now.fds = entriesOf("/proc/self/fd");
    now.threads = entriesOf("/proc/self/task");
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) ++now.maps;
    std::ifstream statm("/proc/self/statm");
    long size = 0;
    long resident = 0;
    statm >> size >> resident;
    const long pageKib = sysconf(_SC_PAGESIZE) / 1024;
    now.virtualKib = size * pageKib;
    now.residentKib = resident * pageKib;
    return now;
  }
  bool within(const Footprint& before) const {
    return fds <= before.fds && threads <= before.threads && maps <= before.maps + 8 &&
           virtualKib <= before.virtualKib + 16384 && residentKib <= before.residentKib + 4096;
  }
  std::string text() const {
    return say("{} fds, {} threads, {} maps, {} KiB virtual, {} KiB resident", fds, threads, maps, virtualKib,
               residentKib);
  }
};

// Connections linger a little after a destroy.
void expectFlat(const Footprint& before) {
  Footprint after = Footprint::take();
  for (int i = 0; i < 50 && !after.within(before); ++i) {
    sleepMs(100);
    after = Footprint::take();
  }
  EXPECT(after.within(before), "before: {}; after: {}", before.text(), after.text());
  if (worldRank == 0) std::printf("  %s\n", after.text().c_str());
}

// Takes the footprint after `warm` rounds and compares at the end.
void repeat(int rounds, int warm, const std::function<void(int)>& round) {
  Footprint before;
  for (int i = 0; i < rounds; ++i) {
    if (i == warm) {
      sleepMs(1000);
      before = Footprint::take();
    }
    round(i);
  }
  expectFlat(before);
}

void communicators() {
  repeat(300, 20, [](int i) {
    const WorldComm comm;
    PrivateCalls calls(comm.get());
    Shape shape;
    shape.type = vcollInt32;
    shape.counts.assign(calls.ranks(), static_cast<size_t>(100 + i));
    calls.allGatherV(shape, static_cast<uint64_t>(i));
    if (i % 10 == 0) MUST(vcollCommFinalize(comm.get()));
  });
}

void splits() {
  const WorldComm comm;
  repeat(150, 20, [&](int i) {
    vcollComm_t part = nullptr;
    MUST(vcollCommSplit(comm.get(), 0, i % 2 == 0 ? worldRank : -worldRank, &part, nullptr));
    expectUsable(part);
    MUST(vcollCommDestroy(part));
  });
}

void failedCommunicators() {
  repeat(60, 20, [](int) {
    const WorldComm comm;
    MUST(vcollCommAbort(comm.get()));
  });
}

void windows() {
  const WorldComm comm;
  void* memory = nullptr;
  MUST(vcollMemAlloc(&memory, 1 << 20));
  repeat(worldSize == 1 ? 20000 : 1500, 100, [&](int i) {
    vcollWindow_t window = nullptr;
    const auto shift = static_cast<size_t>(i % 5000);
    MUST(vcollWindowRegister(comm.get(), static_cast<unsigned char*>(memory) + shift, 100000, &window));
    MUST(vcollWindowDeregister(comm.get(), window));
  });
  MUST(vcollMemFree(memory));
}

void memoryAndStreams() {
  repeat(2000, 50, [](int i) {
    void* memory = nullptr;
    MUST(vcollMemAlloc(&memory, static_cast<size_t>(1 + i * 7)));
    MUST(vcollMemFree(memory));
    vcollStream_t stream = nullptr;
    MUST(vcollHostStreamCreate(&stream));
    MUST(vcollHostStreamDestroy(stream));
  });
}

// More shapes than any cache should keep; plans made and destroyed.
void shapesAndPlans() {
  const WorldComm comm;
  PrivateCalls calls(comm.get());
  repeat(1000, 300, [&](int i) {
    Shape shape;
    shape.type = vcollUint8;
    shape.counts.assign(calls.ranks(), static_cast<size_t>(i));
    calls.allGatherV(shape, 1);
    std::vector<vcollSegment_t> segments;
    for (uint64_t s = 0; s < 40; ++s) segments.push_back({static_cast<int>(s) % worldSize, 0, 64 * s, 48});
    vcollPlan_t plan = nullptr;
    MUST(vcollPlanCreate(comm.get(), segments.data(), segments.size(), vcollInt32, nullptr, &plan));
    MUST(vcollPlanDestroy(plan));
  });
}

}  // namespace

void churnSuite() {
  if (worldSize > 1) {
    runCase("churn.communicators", communicators);
    runCase("churn.splits", splits);
    runCase("churn.failed", failedCommunicators);
  }
  runCase("churn.windows", windows);
  runCase("churn.memory_and_streams", memoryAndStreams);
  runCase("churn.shapes_and_plans", shapesAndPlans);
}

// Time per call does not grow with the number of calls, and there is no cap. Printed, not judged.
void manySuite() {
  runCase("many.calls", [] {
    const WorldComm comm;
    const std::vector<size_t> counts(static_cast<size_t>(worldSize), 256);
    const size_t total = counts.size() * 256;
    std::vector<float> send(total, 1);
    std::vector<float> recv(total, 0);
    vcollStream_t stream = nullptr;
    MUST(vcollHostStreamCreate(&stream));
    for (const bool asynchronous : {false, true}) {
      for (const int calls : {1, 10, 100, 1000, 5000}) {
        const double start = now();
        for (int i = 0; i < calls; ++i) {
          MUST(vcollReduceScatterV(send.data(), recv.data(), counts.data(), vcollFloat32, vcollSum, comm.get(),
                                   asynchronous ? stream : nullptr));
        }
        MUST(vcollHostStreamSynchronize(stream));
        if (worldRank == 0) {
          std::printf("  %4d calls%s: %.2f us each\n", calls, asynchronous ? " on a stream" : "",
                      1e6 * (now() - start) / calls);
        }
        EXPECT(recv[0] == static_cast<float>(worldSize), "{}", recv[0]);
      }
    }
    MUST(vcollHostStreamDestroy(stream));
  });
}

}  // namespace suite
