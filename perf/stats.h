// SPDX-License-Identifier: Apache-2.0
// Statistics over iteration times.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace vcoll::perf {

// The p-th quantile (0..1), linear between neighbours; 0 for no samples.
inline double quantile(std::vector<double> samples, double p) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const double at = p * static_cast<double>(samples.size() - 1);
  const size_t low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, samples.size() - 1);
  return samples[low] + (samples[high] - samples[low]) * (at - static_cast<double>(low));
}

inline double median(std::vector<double> samples) { return quantile(std::move(samples), 0.5); }

struct Spread {
  double min = 0, max = 0, mean = 0, p50 = 0, p95 = 0, p99 = 0, deviation = 0;
  double variationPercent() const { return mean > 0 ? 100 * deviation / mean : 0; }
};

inline Spread spreadOf(const std::vector<double>& samples) {
  Spread s;
  if (samples.empty()) return s;
  s.min = *std::min_element(samples.begin(), samples.end());
  s.max = *std::max_element(samples.begin(), samples.end());
  const double n = static_cast<double>(samples.size());
  for (double x : samples) s.mean += x / n;
  for (double x : samples) s.deviation += (x - s.mean) * (x - s.mean) / n;
  s.deviation = std::sqrt(s.deviation);
  s.p50 = quantile(samples, 0.5);
  s.p95 = quantile(samples, 0.95);
  s.p99 = quantile(samples, 0.99);
  return s;
}

// One time per iteration from the times of all ranks, laid out rank by rank. average: 0 rank 0, 1 mean, 2 min, 3 max.
inline std::vector<double> overRanks(const std::vector<double>& times, size_t ranks, int average) {
  const size_t n = ranks == 0 ? 0 : times.size() / ranks;
  std::vector<double> result(n);
  for (size_t i = 0; i < n; ++i) {
    double value = times[i];
    for (size_t r = 1; r < ranks; ++r) {
      const double other = times[r * n + i];
      if (average == 1) value += other;
      if (average == 2) value = std::min(value, other);
      if (average == 3) value = std::max(value, other);
    }
    result[i] = average == 1 ? value / static_cast<double>(ranks) : value;
  }
  return result;
}

}  // namespace vcoll::perf
