// SPDX-License-Identifier: Apache-2.0
// Test data: bytes and elements that are a hash of (seed, source, position), and what reductions of them must give.
// Written without the library's own conversions.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "vcoll/vcoll.h"

namespace suite {

inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
inline uint64_t hashOf(uint64_t seed, uint64_t source, uint64_t index) { return mix(mix(mix(seed) ^ source) ^ index); }

// Equal on all ranks for equal seeds.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(mix(seed)) {}
  uint64_t next() { return mix(state_ += 0x632be59bd9b4e019u); }
  uint64_t below(uint64_t limit) { return next() % limit; }
  template <typename T>
  void shuffle(std::vector<T>* items) {
    for (size_t i = items->size(); i > 1; --i) std::swap((*items)[i - 1], (*items)[below(i)]);
  }

 private:
  uint64_t state_;
};

inline void fillBytes(unsigned char* out, size_t bytes, uint64_t seed, uint64_t source) {
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t word = hashOf(seed, source, i / 8);
    std::memcpy(out + i, &word, std::min<size_t>(8, bytes - i));
  }
}

// 16-bit floats as bits.
struct Half {
  uint16_t bits;
  static constexpr int kMantissa = 10;
  double value() const {
    const int exponent = bits >> 10 & 31;
    const int mantissa = bits & 1023;
    const double magnitude = exponent == 31  ? (mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                                                              : std::numeric_limits<double>::infinity())
                             : exponent == 0 ? std::ldexp(mantissa, -24)
                                             : std::ldexp(1024 + mantissa, exponent - 25);
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
  }
  static Half of(double x) {
    const int sign = std::signbit(x) ? 0x8000 : 0;
    const double a = std::fabs(x);
    int code = 0;
    if (std::isnan(x)) {
      code = 0x7e00;
    } else if (a >= 65520) {
      code = 0x7c00;
    } else if (a < std::ldexp(1.0, -14)) {
      code = static_cast<int>(std::nearbyint(std::ldexp(a, 24)));
    } else {
      const int e = std::ilogb(a);
      code = ((e + 15) << 10) + static_cast<int>(std::nearbyint(std::ldexp(a, 10 - e))) - 1024;
    }
    return {static_cast<uint16_t>(sign | code)};
  }
};
struct Brain {
  uint16_t bits;
  static constexpr int kMantissa = 7;
  double value() const { return static_cast<double>(std::bit_cast<float>(uint32_t{bits} << 16)); }
  static Brain of(double x) {
    const auto word = std::bit_cast<uint32_t>(static_cast<float>(x));
    if (std::isnan(x)) return {0x7fc0};
    return {static_cast<uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16)};
  }
};

template <typename T>
constexpr bool kIsSmallFloat = std::is_same_v<T, Half> || std::is_same_v<T, Brain>;
template <typename T>
constexpr bool kIsFloat = kIsSmallFloat<T> || std::is_floating_point_v<T>;

template <typename T>
double toDouble(T x) {
  if constexpr (kIsSmallFloat<T>) {
    return x.value();
  } else {
    return static_cast<double>(x);
  }
}
template <typename T>
T fromDouble(double x) {
  if constexpr (kIsSmallFloat<T>) {
    return T::of(x);
  } else {
    return static_cast<T>(x);
  }
}
// Distance of neighbours of T around x.
template <typename T>
double ulpAt(double x) {
  int mantissa = std::is_same_v<T, double> ? 52 : 23;
  int lowest = std::is_same_v<T, double> ? -1022 : -126;
  if constexpr (kIsSmallFloat<T>) {
    mantissa = T::kMantissa;
    lowest = std::is_same_v<T, Half> ? -14 : -126;
  }
  const int e = x == 0 ? lowest : std::max(lowest, std::ilogb(std::fabs(x)));
  return std::ldexp(1.0, e - mantissa);
}

// Calls fn with a value of the C++ type of a reducible type.
template <typename Fn>
void withType(vcollDataType_t type, Fn fn) {
  switch (type) {
    case vcollInt8:
      return fn(int8_t{});
    case vcollUint8:
      return fn(uint8_t{});
    case vcollInt32:
      return fn(int32_t{});
    case vcollUint32:
      return fn(uint32_t{});
    case vcollInt64:
      return fn(int64_t{});
    case vcollUint64:
      return fn(uint64_t{});
    case vcollFloat16:
      return fn(Half{});
    case vcollFloat32:
      return fn(float{});
    case vcollFloat64:
      return fn(double{});
    case vcollBfloat16:
      return fn(Brain{});
    default:
      return;
  }
}

inline size_t sizeOfType(vcollDataType_t type) {
  size_t size = 1;  // the 8-bit floats
  withType(type, [&](auto sample) { size = sizeof sample; });
  return size;
}

constexpr vcollDataType_t kReducible[] = {vcollInt8,   vcollUint8,   vcollInt32,   vcollUint32,  vcollInt64,
                                          vcollUint64, vcollFloat16, vcollFloat32, vcollFloat64, vcollBfloat16};
inline const char* typeName(vcollDataType_t type) {
  static constexpr const char* kNames[] = {"int8",    "uint8",   "int32",   "uint32",   "int64",       "uint64",
                                           "float16", "float32", "float64", "bfloat16", "float8_e4m3", "float8_e5m2"};
  return kNames[type];
}
inline const char* opName(vcollRedOp_t op) {
  static constexpr const char* kNames[] = {"sum", "prod", "max", "min", "avg"};
  return kNames[op];
}

// Elements whose reductions are exact in every type and every order, but for avg of floats. Integers use all bits, so
// that sums and products wrap.
template <typename T>
T elementOf(vcollRedOp_t op, uint64_t hash) {
  if constexpr (kIsFloat<T>) {
    static constexpr double kFactors[] = {1, -1, 2, 0.5};
    if (op == vcollProd) return fromDouble<T>(kFactors[hash % 4]);
    if (op == vcollMin || op == vcollMax) return fromDouble<T>(static_cast<double>(hash % 4001) / 8 - 250);
    return fromDouble<T>(static_cast<double>(hash % 17) - 8);
  } else {
    if (op != vcollAvg) return static_cast<T>(hash);
    return static_cast<T>(std::is_signed_v<T> ? static_cast<int64_t>(hash % 17) - 8 : static_cast<int64_t>(hash % 17));
  }
}

template <typename T>
T reduceOf(vcollRedOp_t op, const std::vector<T>& values) {
  if constexpr (kIsFloat<T>) {
    double all = toDouble(values[0]);
    for (size_t i = 1; i < values.size(); ++i) {
      const double x = toDouble(values[i]);
      all = op == vcollProd ? all * x : op == vcollMax ? std::max(all, x) : op == vcollMin ? std::min(all, x) : all + x;
    }
    return fromDouble<T>(op == vcollAvg ? all / static_cast<double>(values.size()) : all);
  } else {
    if (op == vcollMax) return *std::max_element(values.begin(), values.end());
    if (op == vcollMin) return *std::min_element(values.begin(), values.end());
    uint64_t all = op == vcollProd ? 1 : 0;
    for (const T x : values) all = op == vcollProd ? all * static_cast<uint64_t>(x) : all + static_cast<uint64_t>(x);
    if (op != vcollAvg) return static_cast<T>(all);
    if (std::is_signed_v<T>) return static_cast<T>(static_cast<int64_t>(all) / static_cast<int64_t>(values.size()));
    return static_cast<T>(all / values.size());
  }
}

// Elements `first`.. of a rank's array.
inline void fillElements(unsigned char* out, vcollDataType_t type, vcollRedOp_t op, size_t first, size_t count,
                         uint64_t seed, uint64_t rank) {
  withType(type, [&](auto sample) {
    using T = decltype(sample);
    for (size_t i = 0; i < count; ++i) {
      const T value = elementOf<T>(op, hashOf(seed, rank, first + i));
      std::memcpy(out + i * sizeof(T), &value, sizeof(T));
    }
  });
}

// What the reduction of those elements over all ranks gives. Where a float avg in `got` is within one ulp of it, got's
// bits are taken.
inline void fillReduced(unsigned char* out, const unsigned char* got, vcollDataType_t type, vcollRedOp_t op,
                        size_t first, size_t count, uint64_t seed, size_t ranks) {
  withType(type, [&](auto sample) {
    using T = decltype(sample);
    std::vector<T> values(ranks);
    for (size_t i = 0; i < count; ++i) {
      for (size_t r = 0; r < ranks; ++r) values[r] = elementOf<T>(op, hashOf(seed, r, first + i));
      T result = reduceOf(op, values);
      if constexpr (kIsFloat<T>) {
        if (op == vcollAvg) {
          T actual;
          std::memcpy(&actual, got + i * sizeof(T), sizeof(T));
          const double wanted = toDouble(result);
          if (std::fabs(toDouble(actual) - wanted) <= ulpAt<T>(wanted)) result = actual;
        }
      }
      std::memcpy(out + i * sizeof(T), &result, sizeof(T));
    }
  });
}

}  // namespace suite
