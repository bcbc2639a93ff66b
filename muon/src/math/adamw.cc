// SPDX-License-Identifier: Apache-2.0
#include "math/adamw.h"

#include <cmath>

namespace vmuon {

void adamWUpdate(const vmuonGroup_t& group, int64_t step, const float* grad, float gradScale, float* firstMoment,
                 float* secondMoment, float* master, int64_t begin, int64_t end) {
  const auto count = static_cast<double>(step);
  const double correction1 = 1 - std::pow(group.adamBeta1, count);
  const double correction2 = 1 - std::pow(group.adamBeta2, count);
  const auto beta1 = static_cast<float>(group.adamBeta1);
  const auto beta2 = static_cast<float>(group.adamBeta2);
  const auto share1 = static_cast<float>(1 - group.adamBeta1);
  const auto share2 = static_cast<float>(1 - group.adamBeta2);
  const auto keep = static_cast<float>(1 - group.adamLr * group.adamWeightDecay);
  const auto rate = static_cast<float>(group.adamLr / correction1);
  const auto rootFactor = static_cast<float>(1 / std::sqrt(correction2));
  const auto eps = static_cast<float>(group.adamEps);
  for (int64_t i = begin; i < end; ++i) {
    const float g = gradScale * grad[i];
    const float m = beta1 * firstMoment[i] + share1 * g;
    const float v = beta2 * secondMoment[i] + share2 * (g * g);
    firstMoment[i] = m;
    secondMoment[i] = v;
    master[i] = keep * master[i] - rate * m / (std::sqrt(v) * rootFactor + eps);
  }
}

}  // namespace vmuon
