// SPDX-License-Identifier: Apache-2.0
#include "perf/values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace vcoll::perf {
namespace {

constexpr uint64_t kBlock = 1024;  // elements or 8-byte words made at a time

inline uint64_t streamOf(uint64_t seed, int source) {
  return (seed + 1) * 0x9e3779b97f4a7c15u ^ (static_cast<uint64_t>(source) + 1) * 0xd1b54a32d192ed03u;
}

inline uint64_t mix(uint64_t stream, uint64_t position) {
  uint64_t x = position * 0x9fb21c651e98df25u + stream;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  return x ^ (x >> 32);
}

// How the inputs of a reduction are drawn.
struct Domain {
  int64_t low;
  uint64_t width;   // values are low .. low + width - 1
  uint64_t stride;  // only every stride-th rank contributes, so that the sum stays exact over many ranks
};

Domain domainOf(const Reduction& r) {
  // Integers stay in range too: some MPI libraries saturate sums of bytes instead of wrapping.
  const bool sums = r.op == vcollSum || r.op == vcollAvg;
  const int64_t ranks = std::max(r.ranks, 1);
  int64_t span = std::min<int64_t>(sums ? r.type->exactMax / ranks : r.type->exactMax, 1000);
  uint64_t stride = 1;
  if (span == 0) {
    stride = static_cast<uint64_t>((ranks + r.type->exactMax - 1) / r.type->exactMax);
    span = 1;
  }
  const int64_t low = r.type->isSigned ? -span : 0;
  return {low, static_cast<uint64_t>(span - low + 1), stride};
}

inline int64_t drawValue(const Reduction& r, const Domain& domain, uint64_t stream, int source, uint64_t index) {
  const uint64_t h = mix(stream, index) >> 32;
  if (r.op == vcollProd) {
    // One rank brings a 3, the others only signs: exact in every type.
    const int64_t magnitude = index % static_cast<uint64_t>(r.ranks) == static_cast<uint64_t>(source) ? 3 : 1;
    return r.type->isSigned && (h & 1) != 0 ? -magnitude : magnitude;
  }
  if (domain.stride > 1 && (index + static_cast<uint64_t>(source)) % domain.stride != 0) return 0;
  return domain.low + static_cast<int64_t>((h * domain.width) >> 32);
}

template <typename T>
void encodeAs(const int64_t* values, uint64_t count, void* out) {
  T* typed = static_cast<T*>(out);
  for (uint64_t i = 0; i < count; ++i) typed[i] = static_cast<T>(values[i]);
}

template <typename Convert>
void encode16(const int64_t* values, uint64_t count, void* out, Convert convert) {
  uint16_t* bits = static_cast<uint16_t*>(out);
  for (uint64_t i = 0; i < count; ++i) bits[i] = convert(static_cast<float>(values[i]));
}

// out is aligned for any type.
void encode(vcollDataType_t type, const int64_t* values, uint64_t count, void* out) {
  switch (type) {
    case vcollInt8:
      return encodeAs<int8_t>(values, count, out);
    case vcollUint8:
      return encodeAs<uint8_t>(values, count, out);
    case vcollInt32:
      return encodeAs<int32_t>(values, count, out);
    case vcollUint32:
      return encodeAs<uint32_t>(values, count, out);
    case vcollInt64:
      return encodeAs<int64_t>(values, count, out);
    case vcollUint64:
      return encodeAs<uint64_t>(values, count, out);
    case vcollFloat32:
      return encodeAs<float>(values, count, out);
    case vcollFloat64:
      return encodeAs<double>(values, count, out);
    case vcollFloat16:
      return encode16(values, count, out, floatToHalf);
    case vcollBfloat16:
      return encode16(values, count, out, floatToBfloat16);
    default:
      std::memset(out, 0, count);  // fp8 is never reduced
  }
}

double decode(vcollDataType_t type, const void* element) {
  uint16_t bits = 0;
  float single = 0;
  double wide = 0;
  switch (type) {
    case vcollFloat32:
      std::memcpy(&single, element, sizeof(single));
      return static_cast<double>(single);
    case vcollFloat64:
      std::memcpy(&wide, element, sizeof(wide));
      return wide;
    case vcollFloat16:
      std::memcpy(&bits, element, sizeof(bits));
      return static_cast<double>(halfToFloat(bits));
    case vcollBfloat16:
      std::memcpy(&bits, element, sizeof(bits));
      return static_cast<double>(bfloat16ToFloat(bits));
    default:
      return 0;
  }
}

// One unit in the last place of a normal value of the type.
double ulp(vcollDataType_t type, double value) {
  const int digits = type == vcollFloat64 ? 52 : type == vcollFloat32 ? 23 : type == vcollFloat16 ? 10 : 7;
  if (value == 0) return 0;
  return std::ldexp(1.0, std::ilogb(value) - digits);
}

void accumulate(const Reduction& r, const Domain& domain, int source, uint64_t index, uint64_t count, int64_t* sum) {
  const uint64_t stream = streamOf(r.seed, source);
  for (uint64_t i = 0; i < count; ++i) {
    const int64_t value = drawValue(r, domain, stream, source, index + i);
    switch (r.op) {
      case vcollProd:
        sum[i] *= value;
        break;
      case vcollMin:
        sum[i] = std::min(sum[i], value);
        break;
      case vcollMax:
        sum[i] = std::max(sum[i], value);
        break;
      default:
        sum[i] += value;
        break;
    }
  }
}

int64_t neutral(vcollRedOp_t op) {
  if (op == vcollProd) return 1;
  if (op == vcollMin) return std::numeric_limits<int64_t>::max();
  if (op == vcollMax) return std::numeric_limits<int64_t>::min();
  return 0;
}

uint64_t differing(const void* expected, const void* got, uint64_t count, size_t size) {
  if (std::memcmp(expected, got, count * size) == 0) return 0;
  uint64_t wrong = 0;
  const char* a = static_cast<const char*>(expected);
  const char* b = static_cast<const char*>(got);
  for (uint64_t i = 0; i < count; ++i) wrong += std::memcmp(a + i * size, b + i * size, size) != 0 ? 1 : 0;
  return wrong;
}

}  // namespace

float halfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t floatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x38800000u) {                                               // subnormal or zero
    const float scaled = std::ldexp(std::bit_cast<float>(magnitude), 24);
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(scaled)));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | static_cast<uint16_t>((rounded - 0x38000000u) >> 13));
}

void fillBytes(uint64_t seed, int source, uint64_t offset, size_t bytes, void* out) {
  const uint64_t stream = streamOf(seed, source);
  char* to = static_cast<char*>(out);
  while (bytes > 0) {
    const uint64_t word = mix(stream, offset / 8);
    const size_t skip = static_cast<size_t>(offset % 8);
    const size_t take = std::min<size_t>(8 - skip, bytes);
    std::memcpy(to, reinterpret_cast<const char*>(&word) + skip, take);
    to += take;
    offset += take;
    bytes -= take;
    uint64_t position = offset / 8;
    for (; bytes >= 8; bytes -= 8, to += 8, offset += 8, ++position) {
      const uint64_t whole = mix(stream, position);
      std::memcpy(to, &whole, 8);
    }
  }
}

uint64_t wrongBytes(uint64_t seed, int source, uint64_t offset, uint64_t count, size_t elementSize, const void* got) {
  alignas(64) char expected[kBlock * 8];
  const char* at = static_cast<const char*>(got);
  uint64_t wrong = 0;
  while (count > 0) {
    const uint64_t now = std::min<uint64_t>(count, sizeof(expected) / elementSize);
    const size_t bytes = static_cast<size_t>(now) * elementSize;
    fillBytes(seed, source, offset, bytes, expected);
    wrong += differing(expected, at, now, elementSize);
    at += bytes;
    offset += bytes;
    count -= now;
  }
  return wrong;
}

int64_t inputValue(const Reduction& reduction, int source, uint64_t index) {
  return drawValue(reduction, domainOf(reduction), streamOf(reduction.seed, source), source, index);
}

namespace {

// Calls use(block, elements, bytes so far) with the encoded inputs of each block.
template <typename Use>
void forInputBlocks(const Reduction& r, int source, uint64_t index, uint64_t count, Use use) {
  const Domain domain = domainOf(r);
  const uint64_t stream = streamOf(r.seed, source);
  int64_t values[kBlock];
  alignas(64) char encoded[kBlock * 8];
  size_t done = 0;
  while (count > 0) {
    const uint64_t now = std::min(count, kBlock);
    for (uint64_t i = 0; i < now; ++i) values[i] = drawValue(r, domain, stream, source, index + i);
    encode(r.type->type, values, now, encoded);
    use(encoded, now, done);
    done += static_cast<size_t>(now) * r.type->size;
    index += now;
    count -= now;
  }
}

}  // namespace

void fillInputs(const Reduction& r, int source, uint64_t index, uint64_t count, void* out) {
  forInputBlocks(r, source, index, count, [&](const char* block, uint64_t now, size_t done) {
    std::memcpy(static_cast<char*>(out) + done, block, static_cast<size_t>(now) * r.type->size);
  });
}

uint64_t wrongInputs(const Reduction& r, int source, uint64_t index, uint64_t count, const void* got) {
  uint64_t wrong = 0;
  forInputBlocks(r, source, index, count, [&](const char* block, uint64_t now, size_t done) {
    wrong += differing(block, static_cast<const char*>(got) + done, now, r.type->size);
  });
  return wrong;
}

uint64_t wrongResults(const Reduction& r, uint64_t index, uint64_t count, const void* got) {
  const Domain domain = domainOf(r);
  const bool roundedAverage = r.op == vcollAvg && r.type->isFloat;
  int64_t sums[kBlock];
  alignas(64) char expected[kBlock * 8];
  const char* at = static_cast<const char*>(got);
  uint64_t wrong = 0;
  while (count > 0) {
    const uint64_t now = std::min(count, kBlock);
    std::fill_n(sums, now, neutral(r.op));
    for (int source = 0; source < r.ranks; ++source) accumulate(r, domain, source, index, now, sums);
    if (roundedAverage) {
      for (uint64_t i = 0; i < now; ++i) {
        const double exact = static_cast<double>(sums[i]) / r.ranks;
        const double value = decode(r.type->type, at + i * r.type->size);
        // Written so that a NaN is wrong.
        wrong += std::abs(value - exact) <= 2 * ulp(r.type->type, exact) ? 0 : 1;
      }
    } else {
      if (r.op == vcollAvg) {
        for (uint64_t i = 0; i < now; ++i) sums[i] /= r.ranks;
      }
      encode(r.type->type, sums, now, expected);
      wrong += differing(expected, at, now, r.type->size);
    }
    at += static_cast<size_t>(now) * r.type->size;
    index += now;
    count -= now;
  }
  return wrong;
}

uint64_t touchedGuards(const void* data, size_t bytes) {
  const unsigned char* at = static_cast<const unsigned char*>(data);
  return bytes - static_cast<uint64_t>(std::count(at, at + bytes, kGuardByte));
}

}  // namespace vcoll::perf
