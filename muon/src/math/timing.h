// SPDX-License-Identifier: Apache-2.0
// How long Newton-Schulz takes here, by trying: the cost that owners are chosen by.
#pragma once

#include <cstdint>

#include "math/coefficients.h"

namespace vmuon {

// Processor time of the calling thread. Ranks that share cores wait for each other; that is no cost of a shape.
double threadSeconds();

// Seconds (of threadSeconds) for one rows x cols matrix: the median of a few runs, of only one where that takes long.
// The values it runs on come from a generator of its own.
double measureNewtonSchulz(int64_t rows, int64_t cols, const CoefficientSet& set);

}  // namespace vmuon
