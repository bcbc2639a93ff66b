// SPDX-License-Identifier: Apache-2.0
// The arithmetic of ReduceScatterV on CPUs, and the copies beside it.
#pragma once

#include <cstdint>

#include "vcoll/vcoll.h"

namespace vcoll {

// One chunk. Sources, then partials, are combined in order: ((s0 + s1) + ...) + p0 .... 16-bit floats are accumulated
// in float32 and rounded once (to nearest even); all other types accumulate in themselves, integers wrapping. A NaN
// result is the type's canonical quiet NaN. The bits of the result depend on the elements alone: not on the instruction
// set, the alignment or how a range is cut into chunks. Memory needs no alignment. out may be one of the inputs if
// element sizes are equal; any other overlap is undefined.
struct ReduceJob {
  vcollDataType_t type = vcollFloat32;  // a reducible type
  vcollRedOp_t op = vcollSum;
  const void* const* sources = nullptr;   // chunks of the local ranks, of `type`
  uint32_t nsources = 0;                  // >= 1
  const void* const* partials = nullptr;  // results from other nodes
  uint32_t npartials = 0;
  bool partialsFp32 = false;  // partials are float32 though type is a 16-bit float
  bool outFp32 = false;       // the same for out
  void* out = nullptr;
  uint64_t elements = 0;
  uint32_t avgDivisor = 0;  // > 0 with vcollAvg: the result is divided by it before its rounding (the last hop)
};

// The loops of one instruction set.
struct ReduceFunctions {
  const char* name;
  void (*reduce)(const ReduceJob& job);
};

void reduceChunk(const ReduceJob& job);
// Not overlapping. streaming: the copy is part of a stream much larger than the caches, and dst is not read again soon;
// the bytes are stored past the caches. Either way a later release store orders them.
void copyBytes(void* dst, const void* src, uint64_t bytes, bool streaming);

// "baseline", "avx2" or "avx512"; nullptr if this build or this CPU lacks it.
const ReduceFunctions* reduceVariant(const char* name);

}  // namespace vcoll
