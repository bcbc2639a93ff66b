// SPDX-License-Identifier: Apache-2.0
// What vcoll itself costs, on one rank: a call on a plan that moves nothing, making a plan of many segments, and page
// faults of repeated calls.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "vcoll/vcoll.h"

namespace {

void check(vcollResult_t result) {
  if (result == vcollSuccess) return;
  std::fprintf(stderr, "%s\n", vcollGetLastError(nullptr));
  std::exit(1);
}

double nowUs() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

long faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

}  // namespace

int main() {
  vcollUniqueId id;
  vcollComm_t comm = nullptr;
  check(vcollGetUniqueId(&id));
  check(vcollCommInitRank(&comm, 1, id, 0));
  constexpr size_t kSegments = 10000;
  constexpr size_t kBytes = kSegments * 4096;
  void* memory = nullptr;
  vcollWindow_t window = nullptr;
  check(vcollMemAlloc(&memory, kBytes));
  check(vcollWindowRegister(comm, memory, kBytes, &window));

  const vcollSegment_t empty = {0, 0, 0, 0};
  vcollPlan_t plan = nullptr;
  check(vcollPlanCreate(comm, &empty, 1, vcollFloat32, nullptr, &plan));
  constexpr int kCalls = 200000;
  check(vcollPlanAllGatherV(plan, window, 0, nullptr));
  const long faultsBefore = faults();
  const double start = nowUs();
  for (int i = 0; i < kCalls; ++i) check(vcollPlanAllGatherV(plan, window, 0, nullptr));
  std::printf("call on a plan, 1 rank, 0 bytes: %.3f us\n", (nowUs() - start) / kCalls);
  std::printf("page faults in %d calls: %ld\n", kCalls, faults() - faultsBefore);
  check(vcollPlanDestroy(plan));

  std::vector<vcollSegment_t> segments;
  for (size_t i = 0; i < kSegments; ++i) segments.push_back({0, 0, i * 4096, 4096});
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) {
    const double before = nowUs();
    check(vcollPlanCreate(comm, segments.data(), segments.size(), vcollFloat32, nullptr, &plan));
    times.push_back(nowUs() - before);
    check(vcollPlanDestroy(plan));
  }
  std::nth_element(times.begin(), times.begin() + 4, times.end());
  std::printf("making a plan of %zu segments: %.2f ms\n", kSegments, times[4] / 1000);
  check(vcollCommDestroy(comm));
  check(vcollMemFree(memory));
  return 0;
}
