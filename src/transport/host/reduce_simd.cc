// SPDX-License-Identifier: Apache-2.0
// The reduction loops. This file is compiled once per instruction set, with VCOLL_SIMD_NAME naming it. All code here is
// in the unnamed namespace and no header with inline functions is included: the linker keeps one copy of an inline
// function, and it must never be one that was compiled for instructions the CPU lacks.
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "transport/host/reduce.h"

namespace vcoll::VCOLL_SIMD_NAME {
namespace {

#if defined(__AVX512F__)
constexpr uint64_t kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr uint64_t kVectorBytes = 32;
#else
constexpr uint64_t kVectorBytes = 16;
#endif
// Vectors handled together: enough for the loop over the sources to cost little, few enough to stay in registers.
constexpr uint64_t kUnroll = 8;
constexpr uint64_t kPrefetchBytes = 1024;

#define VCOLL_INLINE static inline __attribute__((always_inline))

template <typename T>
using Vector __attribute__((vector_size(kVectorBytes))) = T;

using VecF32 = Vector<float>;
using VecU32 = Vector<uint32_t>;
using VecI32 = Vector<int32_t>;

template <typename To, typename From>
VCOLL_INLINE To bitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

template <typename Vec>
VCOLL_INLINE Vec loadVector(const char* from) {
  Vec v;
  memcpy(&v, from, sizeof(v));
  return v;
}

// Lane indices 0 .. n-1 as a parameter pack.
template <int... kLane>
struct Lanes {};
template <int n, int... kLane>
struct MakeLanes : MakeLanes<n - 1, n - 1, kLane...> {};
template <int... kLane>
struct MakeLanes<0, kLane...> {
  using Type = Lanes<kLane...>;
};
using F32Lanes = MakeLanes<kVectorBytes / 4>::Type;

// Even and odd elements of two vectors in a row, and back.
template <int... kLane>
VCOLL_INLINE void split(VecF32 first, VecF32 second, VecF32* even, VecF32* odd, Lanes<kLane...>) {
  *even = __builtin_shufflevector(first, second, (2 * kLane)...);
  *odd = __builtin_shufflevector(first, second, (2 * kLane + 1)...);
}
template <int... kLane>
VCOLL_INLINE void join(VecF32 even, VecF32 odd, VecF32* first, VecF32* second, Lanes<kLane...>) {
  constexpr int n = sizeof...(kLane);
  *first = __builtin_shufflevector(even, odd, (kLane / 2 + kLane % 2 * n)...);
  *second = __builtin_shufflevector(even, odd, (n / 2 + kLane / 2 + kLane % 2 * n)...);
}

// ---- formats: how elements lie in memory, and the pair of vectors that a run of them is accumulated in ----

template <typename T>
struct Plain {
  using Element = T;
  using Vec = Vector<T>;
  static constexpr uint64_t kElementBytes = sizeof(T);
  static constexpr uint64_t kPairElements = 2 * kVectorBytes / sizeof(T);
  static constexpr bool kIs16BitFloat = false;

  VCOLL_INLINE void load(const char* from, Vec* a, Vec* b) {
    *a = loadVector<Vec>(from);
    *b = loadVector<Vec>(from + kVectorBytes);
  }
  VCOLL_INLINE void store(char* to, Vec a, Vec b) {
    memcpy(to, &a, sizeof(a));
    memcpy(to + kVectorBytes, &b, sizeof(b));
  }
};

// The pair holds the even and the odd elements: no lane has to move to widen 16 bits to 32.
struct SplitPair {
  using Element = float;
  using Vec = VecF32;
  static constexpr uint64_t kElementBytes = 2;
  static constexpr uint64_t kPairElements = kVectorBytes / 2;
  static constexpr bool kIs16BitFloat = true;

  VCOLL_INLINE void loadFp32(const char* from, Vec* a, Vec* b) {
    split(loadVector<Vec>(from), loadVector<Vec>(from + kVectorBytes), a, b, F32Lanes{});
  }
  VCOLL_INLINE void storeFp32(char* to, Vec a, Vec b) {
    Vec first;
    Vec second;
    join(a, b, &first, &second, F32Lanes{});
    Plain<float>::store(to, first, second);
  }
};

// Values to be stored are finite, infinite or the canonical NaN of float32.

struct Bfloat16 : SplitPair {
  VCOLL_INLINE void load(const char* from, Vec* a, Vec* b) {
    const VecU32 both = loadVector<VecU32>(from);
    *a = bitCast<Vec>(both << 16);
    *b = bitCast<Vec>(both & 0xffff0000);
  }
  // To nearest even. The canonical NaN stays one.
  VCOLL_INLINE VecU32 rounded(Vec v) {
    const VecU32 bits = bitCast<VecU32>(v);
    return bits + 0x7fff + ((bits >> 16) & 1);
  }
  VCOLL_INLINE void store(char* to, Vec a, Vec b) {
    const VecU32 both = (rounded(a) >> 16) | (rounded(b) & 0xffff0000);
    memcpy(to, &both, sizeof(both));
  }
};

#if defined(__F16C__)
struct Float16 {
  using Element = float;
  using Vec = VecF32;
  static constexpr uint64_t kElementBytes = 2;
  static constexpr uint64_t kPairElements = kVectorBytes / 2;
  static constexpr bool kIs16BitFloat = true;
  static constexpr int kRounding = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

#if defined(__AVX512F__)
  // The forms with a full mask: GCC 12 warns about the plain ones inside its own header.
  VCOLL_INLINE Vec widen(const char* from) { return _mm512_maskz_cvtph_ps(0xffff, loadVector<__m256i>(from)); }
  VCOLL_INLINE void narrow(char* to, Vec v) {
    const __m256i h = _mm512_maskz_cvtps_ph(0xffff, v, kRounding);
    memcpy(to, &h, sizeof(h));
  }
#else
  VCOLL_INLINE Vec widen(const char* from) { return _mm256_cvtph_ps(loadVector<__m128i>(from)); }
  VCOLL_INLINE void narrow(char* to, Vec v) {
    const __m128i h = _mm256_cvtps_ph(v, kRounding);
    memcpy(to, &h, sizeof(h));
  }
#endif
  VCOLL_INLINE void load(const char* from, Vec* a, Vec* b) {
    *a = widen(from);
    *b = widen(from + kVectorBytes / 2);
  }
  VCOLL_INLINE void store(char* to, Vec a, Vec b) {
    narrow(to, a);
    narrow(to + kVectorBytes / 2, b);
  }
  VCOLL_INLINE void loadFp32(const char* from, Vec* a, Vec* b) { Plain<float>::load(from, a, b); }
  VCOLL_INLINE void storeFp32(char* to, Vec a, Vec b) { Plain<float>::store(to, a, b); }
};
#else
// By integers. No float32 denormal takes part, so a caller's flush-to-zero mode changes nothing.
struct Float16 : SplitPair {
  static constexpr int32_t kRebias = (127 - 15) << 23;
  static constexpr int32_t kSmallestNormal = (127 - 14) << 23;  // 2^-14
  static constexpr int32_t kTooLarge = (127 + 16) << 23;        // 2^16
  static constexpr int32_t kInfinity = 255 << 23;
  static constexpr int32_t kHalf = (127 - 1) << 23;  // 0.5: the unit of its last place is float16's smallest denormal

  // The low 16 bits of each lane.
  VCOLL_INLINE Vec widen(VecI32 bits) {
    const VecI32 exponent = bits & 0x7c00;
    const VecI32 shifted = (bits & 0x7fff) << 13;
    const VecI32 denormal =
        bitCast<VecI32>(bitCast<VecF32>(shifted + kSmallestNormal) - bitCast<VecF32>(VecI32{} + kSmallestNormal));
    VecI32 magnitude = shifted + kRebias;
    magnitude += (exponent == 0x7c00) & kRebias;
    magnitude = exponent == 0 ? denormal : magnitude;
    return bitCast<Vec>(magnitude | ((bits & 0x8000) << 16));
  }
  VCOLL_INLINE VecI32 narrow(Vec v) {
    const VecI32 bits = bitCast<VecI32>(v);
    const VecI32 magnitude = bits & 0x7fffffff;
    VecI32 h = (magnitude - kRebias + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    const VecI32 denormal = bitCast<VecI32>(bitCast<VecF32>(magnitude) + bitCast<VecF32>(VecI32{} + kHalf)) - kHalf;
    h = magnitude < kSmallestNormal ? denormal : h;
    h = magnitude >= kTooLarge ? VecI32{} + 0x7c00 : h;
    h = magnitude > kInfinity ? VecI32{} + 0x7e00 : h;
    return h | ((bits >> 16) & 0x8000);
  }
  VCOLL_INLINE void load(const char* from, Vec* a, Vec* b) {
    const VecU32 both = loadVector<VecU32>(from);
    *a = widen(bitCast<VecI32>(both & 0xffff));
    *b = widen(bitCast<VecI32>(both >> 16));
  }
  VCOLL_INLINE void store(char* to, Vec a, Vec b) {
    const VecU32 both = bitCast<VecU32>(narrow(a)) | (bitCast<VecU32>(narrow(b)) << 16);
    memcpy(to, &both, sizeof(both));
  }
};
#endif

// ---- operations ----

// The type whose arithmetic wraps where that of Vec would overflow.
template <typename Vec>
struct WrappingOf {
  using Type = Vec;
};
template <>
struct WrappingOf<Vector<int8_t>> {
  using Type = Vector<uint8_t>;
};
template <>
struct WrappingOf<Vector<int32_t>> {
  using Type = Vector<uint32_t>;
};
template <>
struct WrappingOf<Vector<int64_t>> {
  using Type = Vector<uint64_t>;
};

struct Sum {
  template <typename Vec>
  VCOLL_INLINE Vec apply(Vec a, Vec b) {
    using Wrapping = typename WrappingOf<Vec>::Type;
    return bitCast<Vec>(bitCast<Wrapping>(a) + bitCast<Wrapping>(b));
  }
};
struct Prod {
  template <typename Vec>
  VCOLL_INLINE Vec apply(Vec a, Vec b) {
    using Wrapping = typename WrappingOf<Vec>::Type;
    return bitCast<Vec>(bitCast<Wrapping>(a) * bitCast<Wrapping>(b));
  }
};
// A NaN in a is kept by the second comparison (always false for integers), one in b because it compares false.
struct Max {
  template <typename Vec>
  VCOLL_INLINE Vec apply(Vec a, Vec b) {
    return ((a > b) | (a != a)) ? a : b;
  }
};
struct Min {
  template <typename Vec>
  VCOLL_INLINE Vec apply(Vec a, Vec b) {
    return ((a < b) | (a != a)) ? a : b;
  }
};

VCOLL_INLINE VecF32 canonical(VecF32 v) { return v == v ? v : VecF32{} + __builtin_nanf(""); }
VCOLL_INLINE Vector<double> canonical(Vector<double> v) { return v == v ? v : Vector<double>{} + __builtin_nan(""); }
template <typename Vec>
VCOLL_INLINE Vec canonical(Vec v) {
  return v;
}

constexpr bool isFloat(float) { return true; }
constexpr bool isFloat(double) { return true; }
template <typename T>
constexpr bool isFloat(T) {
  return false;
}
template <typename T>
VCOLL_INLINE T divideElement(T value, uint32_t divisor) {
  if constexpr (sizeof(T) == 8) {
    return value / static_cast<T>(divisor);
  } else {
    // Exact after truncation: the quotient of two 32-bit integers is further from the next integer than double's error.
    return static_cast<T>(static_cast<double>(value) / divisor);
  }
}
// Not inlined: rare, and much code.
template <typename T>
__attribute__((noinline)) void divideIntegers(T* values, uint32_t divisor) {
  for (size_t i = 0; i < kUnroll * kVectorBytes / sizeof(T); ++i) values[i] = divideElement(values[i], divisor);
}
template <typename T>
VCOLL_INLINE void divideAll(Vector<T> (&sum)[kUnroll], uint32_t divisor) {
  if constexpr (isFloat(T{})) {
#pragma GCC unroll 8
    for (uint64_t u = 0; u < kUnroll; ++u) sum[u] /= static_cast<T>(divisor);
  } else {
    // A copy has an address, so that sum needs none and stays in registers.
    T values[kUnroll * kVectorBytes / sizeof(T)];
    memcpy(values, sum, sizeof(values));
    divideIntegers(values, divisor);
    memcpy(sum, values, sizeof(values));
  }
}

// ---- the loop ----

// Elements [first, first + kBlock) or, in the tail, [first, job.elements), which pass through a padded copy. One code
// for both: the tail's branches are well predicted, and these loops are the largest part of the library as it is.
template <typename Format, typename Op>
VCOLL_INLINE void reduceBlock(const ReduceJob& job, uint64_t first) {
  using Vec = typename Format::Vec;
  constexpr uint64_t kPairBytes = Format::kPairElements * Format::kElementBytes;
  constexpr uint64_t kBlock = kUnroll / 2 * Format::kPairElements;
  constexpr bool k16Bit = Format::kIs16BitFloat;
  const uint64_t count = job.elements - first;
  const bool tail = count < kBlock;
  const bool outFp32 = k16Bit && job.outFp32;

  alignas(64) char padded[kBlock * (k16Bit ? 4 : Format::kElementBytes)];
  if (tail) memset(padded, 0, sizeof(padded));
  const auto input = [&](const void* base, uint64_t elementBytes) __attribute__((always_inline)) {
    const char* from = static_cast<const char*>(base) + first * elementBytes;
    if (!tail) return from;
    memcpy(padded, from, count * elementBytes);
    return static_cast<const char*>(padded);
  };

  Vec sum[kUnroll];
  const auto combine = [&](const char* from) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (uint64_t u = 0; u < kUnroll; u += 2) {
      Vec a;
      Vec b;
      // Measured: helps the 16-bit floats where chunks come from memory, costs nothing where they do not.
      if (k16Bit) __builtin_prefetch(from + u / 2 * kPairBytes + kPrefetchBytes);
      Format::load(from + u / 2 * kPairBytes, &a, &b);
      sum[u] = Op::apply(sum[u], a);
      sum[u + 1] = Op::apply(sum[u + 1], b);
    }
  };

  const char* from = input(job.sources[0], Format::kElementBytes);
#pragma GCC unroll 8
  for (uint64_t u = 0; u < kUnroll; u += 2) Format::load(from + u / 2 * kPairBytes, &sum[u], &sum[u + 1]);
  for (uint32_t s = 1; s < job.nsources; ++s) combine(input(job.sources[s], Format::kElementBytes));
  if (!k16Bit || !job.partialsFp32) {
    for (uint32_t p = 0; p < job.npartials; ++p) combine(input(job.partials[p], Format::kElementBytes));
  } else if constexpr (k16Bit) {
    for (uint32_t p = 0; p < job.npartials; ++p) {
      from = input(job.partials[p], sizeof(float));
#pragma GCC unroll 8
      for (uint64_t u = 0; u < kUnroll; u += 2) {
        Vec a;
        Vec b;
        Format::loadFp32(from + u * kVectorBytes, &a, &b);
        sum[u] = Op::apply(sum[u], a);
        sum[u + 1] = Op::apply(sum[u + 1], b);
      }
    }
  }

  if (job.op == vcollAvg && job.avgDivisor > 0) divideAll<typename Format::Element>(sum, job.avgDivisor);
#pragma GCC unroll 8
  for (uint64_t u = 0; u < kUnroll; ++u) sum[u] = canonical(sum[u]);

  const uint64_t outElementBytes = outFp32 ? sizeof(float) : Format::kElementBytes;
  char* const out = static_cast<char*>(job.out) + first * outElementBytes;
  char* const to = tail ? padded : out;
  if (!outFp32) {
#pragma GCC unroll 8
    for (uint64_t u = 0; u < kUnroll; u += 2) Format::store(to + u / 2 * kPairBytes, sum[u], sum[u + 1]);
  } else if constexpr (k16Bit) {
#pragma GCC unroll 8
    for (uint64_t u = 0; u < kUnroll; u += 2) Format::storeFp32(to + u * kVectorBytes, sum[u], sum[u + 1]);
  }
  if (tail) memcpy(out, padded, count * outElementBytes);
}

template <typename Format, typename Op>
void reduceRange(const ReduceJob& job) {
  constexpr uint64_t kBlock = kUnroll / 2 * Format::kPairElements;
  const ReduceJob local = job;  // stores through out cannot change it, so its fields stay in registers
  for (uint64_t first = 0; first < local.elements; first += kBlock) reduceBlock<Format, Op>(local, first);
}

template <typename Format>
void reduceFormat(const ReduceJob& job) {
  switch (job.op) {
    case vcollProd:
      return reduceRange<Format, Prod>(job);
    case vcollMax:
      return reduceRange<Format, Max>(job);
    case vcollMin:
      return reduceRange<Format, Min>(job);
    default:
      return reduceRange<Format, Sum>(job);
  }
}

void reduce(const ReduceJob& job) {
  switch (job.type) {
    case vcollInt8:
      return reduceFormat<Plain<int8_t>>(job);
    case vcollUint8:
      return reduceFormat<Plain<uint8_t>>(job);
    case vcollInt32:
      return reduceFormat<Plain<int32_t>>(job);
    case vcollUint32:
      return reduceFormat<Plain<uint32_t>>(job);
    case vcollInt64:
      return reduceFormat<Plain<int64_t>>(job);
    case vcollUint64:
      return reduceFormat<Plain<uint64_t>>(job);
    case vcollFloat16:
      return reduceFormat<Float16>(job);
    case vcollFloat32:
      return reduceFormat<Plain<float>>(job);
    case vcollFloat64:
      return reduceFormat<Plain<double>>(job);
    case vcollBfloat16:
      return reduceFormat<Bfloat16>(job);
    default:  // callers accept reducible types only
      return;
  }
}

#define VCOLL_TEXT_(name) #name
#define VCOLL_TEXT(name) VCOLL_TEXT_(name)

}  // namespace

extern const ReduceFunctions kFunctions;
const ReduceFunctions kFunctions = {VCOLL_TEXT(VCOLL_SIMD_NAME), reduce};

}  // namespace vcoll::VCOLL_SIMD_NAME
