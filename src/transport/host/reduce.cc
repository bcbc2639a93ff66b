// SPDX-License-Identifier: Apache-2.0
#include "transport/host/reduce.h"

#include <cstring>
#include <initializer_list>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace vcoll {

// Each is defined by one compilation of reduce_simd.cc.
namespace baseline {
extern const ReduceFunctions kFunctions;
}
#ifdef VCOLL_SIMD_X86
namespace avx2 {
extern const ReduceFunctions kFunctions;
}
namespace avx512 {
extern const ReduceFunctions kFunctions;
}
#endif

namespace {

#ifdef VCOLL_SIMD_X86
// The tests must cover the flags that src/CMakeLists.txt compiles with.
bool hasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
bool hasAvx512() {
  return hasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

const ReduceFunctions& best() {
  static const ReduceFunctions* const chosen = [] {
    for (const char* name : {"avx512", "avx2"}) {
      if (const ReduceFunctions* variant = reduceVariant(name)) return variant;
    }
    return &baseline::kFunctions;
  }();
  return *chosen;
}

#if defined(__x86_64__)
// Non-temporal stores, which need no read of the line they replace. Wider vectors were not faster.
void copyStreaming(char* to, const char* from, uint64_t bytes) {
  constexpr uint64_t kLine = 64;
  const uint64_t head = -reinterpret_cast<uintptr_t>(to) % kLine;
  if (bytes < head + kLine) {
    memcpy(to, from, bytes);
    return;
  }
  memcpy(to, from, head);
  uint64_t done = head;
  for (; bytes - done >= kLine; done += kLine) {
    __m128i line[4];
    memcpy(line, from + done, kLine);
    for (int i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(to + done) + i, line[i]);
  }
  memcpy(to + done, from + done, bytes - done);
  _mm_sfence();  // a release store does not order non-temporal stores
}
#endif

}  // namespace

const ReduceFunctions* reduceVariant(const char* name) {
  if (strcmp(name, "baseline") == 0) return &baseline::kFunctions;
#ifdef VCOLL_SIMD_X86
  if (strcmp(name, "avx2") == 0 && hasAvx2()) return &avx2::kFunctions;
  if (strcmp(name, "avx512") == 0 && hasAvx512()) return &avx512::kFunctions;
#endif
  return nullptr;
}

void reduceChunk(const ReduceJob& job) { best().reduce(job); }

void copyBytes(void* dst, const void* src, uint64_t bytes, bool streaming) {
  if (bytes == 0) return;
#if defined(__x86_64__)
  if (streaming) {
    copyStreaming(static_cast<char*>(dst), static_cast<const char*>(src), bytes);
    return;
  }
#else
  (void)streaming;
#endif
  memcpy(dst, src, bytes);
}

}  // namespace vcoll
