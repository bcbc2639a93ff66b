// SPDX-License-Identifier: Apache-2.0
// Test data that every rank can compute for every other rank: a hash of (seed, source rank, position). AllGatherV moves
// hashed bytes. Reductions use small integers whose result is exact in every type, whatever the order of the sums; only
// the average of floats may differ, by two units in the last place.
#pragma once

#include <cstddef>
#include <cstdint>

#include "perf/types.h"

namespace vcoll::perf {

// Bytes [offset, offset + bytes) of what rank source owns.
void fillBytes(uint64_t seed, int source, uint64_t offset, size_t bytes, void* out);
// Elements of [offset, offset + count * elementSize) that differ from fillBytes.
uint64_t wrongBytes(uint64_t seed, int source, uint64_t offset, uint64_t count, size_t elementSize, const void* got);

struct Reduction {
  const PerfType* type;
  vcollRedOp_t op;
  int ranks;
  uint64_t seed;
};

// The contribution of rank source at an element index.
int64_t inputValue(const Reduction& reduction, int source, uint64_t index);
void fillInputs(const Reduction& reduction, int source, uint64_t index, uint64_t count, void* out);
// Elements that differ from what rank source put there (a send buffer that was written).
uint64_t wrongInputs(const Reduction& reduction, int source, uint64_t index, uint64_t count, const void* got);
// Elements that differ from the reduction over all ranks.
uint64_t wrongResults(const Reduction& reduction, uint64_t index, uint64_t count, const void* got);

// What a byte that nothing may write holds.
inline constexpr unsigned char kGuardByte = 0xA5;
// Bytes of [data, data + bytes) that are not kGuardByte.
uint64_t touchedGuards(const void* data, size_t bytes);

}  // namespace vcoll::perf
