// SPDX-License-Identifier: Apache-2.0
// The global norm of gradients, before anything is orthogonalised, and what clipping multiplies them with.
#pragma once

#include <cstdint>

namespace vmuon {

// In double, where no sum of fp32 squares overflows or vanishes. Not finite exactly if some value is not. Added up in a
// fixed order: the same values give the same bits.
double sumOfSquares(const float* values, int64_t count);

// maxNorm / (norm + 1e-6), at most 1; 1 if maxNorm is 0 (no clipping). A norm that is not finite gives 1 as well: such
// a step is skipped, and must not turn into one with zero gradients.
double clipCoefficient(double norm, double maxNorm);

}  // namespace vmuon
