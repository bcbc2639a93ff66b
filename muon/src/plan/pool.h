// SPDX-License-Identifier: Apache-2.0
// Offline packing: buffers that are used at known times share memory.
#pragma once

#include <cstdint>
#include <vector>

namespace vmuon {

// In use from time begin until just before time end. The order repeats: end <= begin means in use over the turn, or
// always when they are equal.
struct PoolInterval {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t bytes = 0;
};

struct PoolLayout {
  std::vector<uint64_t> offsets;  // by interval; multiples of the alignment
  uint64_t bytes = 0;             // size of the pool
  uint64_t lowerBound = 0;        // most bytes in use at one time: no packing is smaller
  uint64_t digest = 0;            // of intervals and offsets
};

// First fit, largest first, earliest first, and earliest first in places of one size (layers that are nearly alike);
// the smallest pool wins. Depends on the intervals only. align is a power of two.
PoolLayout packPool(const std::vector<PoolInterval>& intervals, uint64_t align = 64);

}  // namespace vmuon
