// SPDX-License-Identifier: Apache-2.0
#include "math/gradient_norm.h"

#include <algorithm>
#include <cmath>

namespace vmuon {

double sumOfSquares(const float* values, int64_t count) {
  constexpr int64_t kLanes = 16;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (int64_t lane = 0; i < count; ++i, ++lane) lanes[lane] += static_cast<double>(values[i]) * values[i];
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

double clipCoefficient(double norm, double maxNorm) {
  if (maxNorm <= 0 || !std::isfinite(norm)) return 1;
  return std::min(1.0, maxNorm / (norm + 1e-6));
}

}  // namespace vmuon
