// SPDX-License-Identifier: Apache-2.0
#include "math/timing.h"

#include <time.h>

#include <algorithm>
#include <vector>

#include "math/newton_schulz.h"

namespace vmuon {
namespace {

constexpr size_t kRuns = 5;
constexpr double kLongSeconds = 0.2;  // a run this long needs no repetition

// Uniform in [-1, 1), by a 64-bit linear congruential generator.
void fill(std::vector<float>& values) {
  uint64_t state = 1;
  for (float& value : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31f;
  }
}

}  // namespace

double threadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double measureNewtonSchulz(int64_t rows, int64_t cols, const CoefficientSet& set) {
  if (rows <= 0 || cols <= 0) return 0;
  NewtonSchulz newtonSchulz(set);
  std::vector<float> values(static_cast<size_t>(rows * cols));
  fill(values);
  std::vector<double> seconds;
  // The first run allocates; it counts only if it is a long one. Later ones work on results of earlier ones, which
  // takes as long.
  for (size_t run = 0; run <= kRuns; ++run) {
    const double start = threadSeconds();
    newtonSchulz.orthogonalize(values.data(), rows, cols);
    const double taken = threadSeconds() - start;
    if (run == 0 && taken < kLongSeconds) continue;
    seconds.push_back(taken);
    if (taken >= kLongSeconds) break;
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace vmuon
