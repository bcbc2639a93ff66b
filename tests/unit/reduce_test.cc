// SPDX-License-Identifier: Apache-2.0
// The reduction loops of every instruction set of this CPU against a slow oracle, and against each other bit by bit.
#include "transport/host/reduce.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/types.h"

using namespace vcoll;

namespace {

// ---- the oracle: scalar, in double or __int128, each step rounded to the accumulator's type ----

struct FloatFormat {
  int mantissaBits;
  int exponentBits;
};
constexpr FloatFormat kHalf = {10, 5};
constexpr FloatFormat kBfloat = {7, 8};

double decode16(uint16_t bits, FloatFormat f) {
  const int mantissa = bits & ((1 << f.mantissaBits) - 1);
  const int exponent = (bits & 0x7fff) >> f.mantissaBits;
  const int bias = (1 << (f.exponentBits - 1)) - 1;
  double value = 0;
  if (exponent == (1 << f.exponentBits) - 1) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - bias - f.mantissaBits);
  } else {
    value = std::ldexp(mantissa + (1 << f.mantissaBits), exponent - bias - f.mantissaBits);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

uint16_t encode16(double value, FloatFormat f) {
  const int bias = (1 << (f.exponentBits - 1)) - 1;
  const int infinity = ((1 << f.exponentBits) - 1) << f.mantissaBits;
  if (std::isnan(value)) return static_cast<uint16_t>(infinity | 1 << (f.mantissaBits - 1));
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return static_cast<uint16_t>(sign | infinity);
  if (magnitude == 0) return static_cast<uint16_t>(sign);
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  // Units of the last place; nearbyint rounds to nearest even. A carry into the next exponent comes out right.
  const int units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, f.mantissaBits - exponent)));
  const int bits = units + ((exponent + bias - 1) << f.mantissaBits);
  return static_cast<uint16_t>(sign | std::min(bits, infinity));
}

bool isFloatType(vcollDataType_t type) { return typeInfo(type)->isFloat; }
bool is16BitFloat(vcollDataType_t type) { return type == vcollFloat16 || type == vcollBfloat16; }

template <typename T>
T at(const char* from, uint64_t index) {
  T value;
  memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}

// Calls use(T{}) with the C++ type of an integer type.
template <typename Use>
auto withInteger(vcollDataType_t type, Use use) {
  switch (type) {
    case vcollInt8:
      return use(int8_t{});
    case vcollUint8:
      return use(uint8_t{});
    case vcollInt32:
      return use(int32_t{});
    case vcollUint32:
      return use(uint32_t{});
    case vcollInt64:
      return use(int64_t{});
    default:
      return use(uint64_t{});
  }
}

double loadFloat(vcollDataType_t type, const char* from, uint64_t index) {
  switch (type) {
    case vcollFloat16:
      return decode16(at<uint16_t>(from, index), kHalf);
    case vcollBfloat16:
      return decode16(at<uint16_t>(from, index), kBfloat);
    case vcollFloat32:
      return static_cast<double>(at<float>(from, index));
    default:
      return at<double>(from, index);
  }
}

template <typename T>
T combine(vcollRedOp_t op, T a, T b) {
  switch (op) {
    case vcollProd:
      if constexpr (std::is_same_v<T, __int128>) {  // the low bits are all that counts; they may overflow
        return static_cast<T>(static_cast<unsigned __int128>(a) * static_cast<unsigned __int128>(b));
      }
      return a * b;
    case vcollMax:
      return a > b ? a : b;
    case vcollMin:
      return a < b ? a : b;
    default:
      return a + b;
  }
}

double combineFloat(vcollRedOp_t op, double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  return combine(op, a, b);
}

struct Outcome {
  uint64_t bits = 0;
  bool zero = false;  // a floating zero, of either sign
};

Outcome oracle(const ReduceJob& job, uint64_t index) {
  Outcome outcome;
  const bool divides = job.op == vcollAvg && job.avgDivisor > 0;
  const uint32_t inputs = job.nsources + job.npartials;
  const auto input = [&](uint32_t i) {
    return static_cast<const char*>(i < job.nsources ? job.sources[i] : job.partials[i - job.nsources]);
  };
  if (!isFloatType(job.type)) {
    withInteger(job.type, [&](auto example) {
      using T = decltype(example);
      __int128 sum = at<T>(input(0), index);
      // Every step is cut to the type's bits, as wrapping arithmetic does.
      for (uint32_t i = 1; i < inputs; ++i) {
        sum = static_cast<T>(static_cast<uint64_t>(combine<__int128>(job.op, sum, at<T>(input(i), index))));
      }
      const T result = static_cast<T>(divides ? sum / job.avgDivisor : sum);
      memcpy(&outcome.bits, &result, sizeof(result));
    });
    return outcome;
  }

  // Rounding a double's result to float is the float operation's result: double has more than twice the bits.
  const bool isDouble = job.type == vcollFloat64;
  const auto step = [isDouble](double v) { return isDouble ? v : static_cast<double>(static_cast<float>(v)); };
  const vcollDataType_t partialType = job.partialsFp32 && is16BitFloat(job.type) ? vcollFloat32 : job.type;
  const vcollDataType_t outType = job.outFp32 && is16BitFloat(job.type) ? vcollFloat32 : job.type;
  double sum = loadFloat(job.type, input(0), index);
  for (uint32_t i = 1; i < inputs; ++i) {
    sum = step(combineFloat(job.op, sum, loadFloat(i < job.nsources ? job.type : partialType, input(i), index)));
  }
  if (divides) sum = step(sum / job.avgDivisor);
  if (std::isnan(sum)) sum = std::numeric_limits<double>::quiet_NaN();
  switch (outType) {
    case vcollFloat16:
      outcome.bits = encode16(sum, kHalf);
      break;
    case vcollBfloat16:
      outcome.bits = encode16(sum, kBfloat);
      break;
    case vcollFloat32: {
      const float narrow = std::isnan(sum) ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(sum);
      memcpy(&outcome.bits, &narrow, sizeof(narrow));
      break;
    }
    default:
      memcpy(&outcome.bits, &sum, sizeof(sum));
  }
  outcome.zero = sum == 0;
  return outcome;
}

// ---- buffers and jobs ----

std::vector<const ReduceFunctions*> variants() {
  std::vector<const ReduceFunctions*> found;
  for (const char* name : {"baseline", "avx2", "avx512"}) {
    if (const ReduceFunctions* functions = reduceVariant(name)) found.push_back(functions);
  }
  return found;
}

using Random = std::mt19937_64;

// Ends where its allocation ends, so that AddressSanitizer sees the first byte read past it.
struct Input {
  Input(uint64_t bytes, uint64_t shift) : memory(shift + bytes), data(memory.data() + shift) {}
  std::vector<char> memory;
  char* data;
};

void fill(char* to, vcollDataType_t type, uint64_t elements, Random& random) {
  for (uint64_t i = 0; i < elements; ++i) {
    const uint64_t r = random();
    // Mostly moderate values, some from all the bits there are: infinities, NaNs, denormals, extremes.
    const bool wild = r % 16 == 0;
    const double moderate = static_cast<double>(static_cast<int64_t>(r >> 8) % 4096) / 512.0;
    const size_t size = typeInfo(type)->size;
    uint64_t bits = r >> 11 | r << 53;
    if (isFloatType(type) && !wild) {
      if (type == vcollFloat64) {
        memcpy(&bits, &moderate, sizeof(moderate));
      } else if (type == vcollFloat32) {
        const float narrow = static_cast<float>(moderate) * 1.1f;
        memcpy(&bits, &narrow, sizeof(narrow));
      } else {
        bits = encode16(moderate, type == vcollFloat16 ? kHalf : kBfloat);
      }
    }
    memcpy(to + i * size, &bits, size);
  }
}

struct Case {
  vcollDataType_t type;
  vcollRedOp_t op;
  uint32_t nsources = 1;
  uint32_t npartials = 0;
  bool partialsFp32 = false;
  bool outFp32 = false;
  uint64_t elements = 0;
  int inPlace = -1;  // the source that out is
  uint32_t divisor = 0;
};

std::string describe(const Case& c) {
  return std::string(typeInfo(c.type)->name) + " " + opName(c.op) + " sources " + std::to_string(c.nsources) +
         " partials " + std::to_string(c.npartials) + (c.partialsFp32 ? " fp32" : "") + (c.outFp32 ? " out fp32" : "") +
         " elements " + std::to_string(c.elements) + " in place " + std::to_string(c.inPlace) + " divisor " +
         std::to_string(c.divisor);
}

// Runs c on all variants. Returns "" or what is wrong.
std::string runCase(const Case& c, Random& random) {
  constexpr uint64_t kGuard = 80;
  const uint64_t size = typeInfo(c.type)->size;
  const uint64_t partialSize = c.partialsFp32 ? 4 : size;
  const uint64_t outSize = c.outFp32 ? 4 : size;
  std::vector<Input> inputs;
  std::vector<const void*> sources;
  std::vector<const void*> partials;
  for (uint32_t i = 0; i < c.nsources + c.npartials; ++i) {
    const bool source = i < c.nsources;
    inputs.emplace_back(c.elements * (source ? size : partialSize), random() % 67);
    fill(inputs.back().data, source || !c.partialsFp32 ? c.type : vcollFloat32, c.elements, random);
    (source ? sources : partials).push_back(inputs.back().data);
  }
  const std::vector<Input> before = inputs;

  ReduceJob job;
  job.type = c.type;
  job.op = c.op;
  job.nsources = c.nsources;
  job.partials = partials.data();
  job.npartials = c.npartials;
  job.partialsFp32 = c.partialsFp32;
  job.outFp32 = c.outFp32;
  job.elements = c.elements;
  job.avgDivisor = c.divisor;

  std::vector<Outcome> expected(c.elements);
  job.sources = sources.data();
  for (uint64_t i = 0; i < c.elements; ++i) expected[i] = oracle(job, i);
  const bool anyZeroSign = c.op == vcollMax || c.op == vcollMin;

  std::vector<char> firstResult;
  for (const ReduceFunctions* functions : variants()) {
    std::vector<char> area(2 * kGuard + c.elements * outSize, 0x5a);
    char* const out = area.data() + kGuard + random() % 16;
    std::vector<const void*> used = sources;
    if (c.inPlace >= 0) {
      memcpy(out, sources[static_cast<size_t>(c.inPlace)], c.elements * size);
      used[static_cast<size_t>(c.inPlace)] = out;
    }
    job.sources = used.data();
    job.out = out;
    functions->reduce(job);

    const std::string who = std::string(functions->name) + ": " + describe(c);
    for (const char* p = area.data(); p != area.data() + area.size(); ++p) {
      const bool inside = p >= out && p < out + c.elements * outSize;
      if (!inside && *p != 0x5a) return who + ": wrote outside, at " + std::to_string(p - out);
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].memory != before[i].memory) return who + ": wrote input " + std::to_string(i);
    }
    for (uint64_t i = 0; i < c.elements; ++i) {
      uint64_t bits = 0;
      memcpy(&bits, out + i * outSize, outSize);
      const uint64_t signBit = uint64_t{1} << (8 * outSize - 1);
      if (anyZeroSign && expected[i].zero && (bits & ~signBit) == 0) continue;
      if (bits != expected[i].bits) {
        return fmt::format("{}: element {} is {:#x}, expected {:#x}", who, i, bits, expected[i].bits);
      }
    }
    const std::vector<char> result(out, out + c.elements * outSize);
    if (firstResult.empty()) firstResult = result;
    if (result != firstResult) return who + ": differs from the first variant";
  }
  return "";
}

constexpr vcollDataType_t kTypes[] = {vcollInt8,   vcollUint8,   vcollInt32,   vcollUint32,  vcollInt64,
                                      vcollUint64, vcollFloat16, vcollFloat32, vcollFloat64, vcollBfloat16};

}  // namespace

TEST_CASE("the variants of this CPU are found by name", "[reduce]") {
  CHECK(reduceVariant("baseline") != nullptr);
  CHECK(reduceVariant("sse9") == nullptr);
  for (const ReduceFunctions* functions : variants()) {
    CHECK(reduceVariant(functions->name) == functions);
  }
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) CHECK(reduceVariant("avx2") != nullptr);
  if (__builtin_cpu_supports("avx512vl")) CHECK(reduceVariant("avx512") != nullptr);
#endif
}

TEST_CASE("all types, operations and numbers of inputs match the oracle", "[reduce]") {
  Random random(20240607);
  constexpr uint64_t kSizes[] = {0,  1,   2,   3,   7,   15,  16,  17,  31,  63,  64,
                                 65, 127, 128, 129, 255, 257, 511, 512, 513, 1000};
  size_t nextSize = 0;
  for (const vcollDataType_t type : kTypes) {
    for (int op = 0; op < vcollNumOps; ++op) {
      for (uint32_t nsources = 1; nsources <= 9; ++nsources) {
        for (uint32_t npartials = 0; npartials <= 2; ++npartials) {
          for (int fp32 = 0; fp32 < (is16BitFloat(type) ? 4 : 1); ++fp32) {
            Case c{type, static_cast<vcollRedOp_t>(op)};
            c.nsources = nsources;
            c.npartials = npartials;
            c.partialsFp32 = (fp32 & 1) != 0;
            c.outFp32 = (fp32 & 2) != 0;
            c.elements = kSizes[nextSize++ % std::size(kSizes)];
            if (!c.outFp32 && random() % 2 == 0) c.inPlace = static_cast<int>(random() % nsources);
            if (op == vcollAvg && random() % 2 == 0) c.divisor = nsources + npartials;
            CHECK(runCase(c, random) == "");
          }
        }
      }
    }
  }
}

TEST_CASE("the bits do not depend on how a range is cut", "[reduce]") {
  Random random(7);
  for (const vcollDataType_t type : kTypes) {
    const uint64_t size = typeInfo(type)->size;
    constexpr uint64_t kElements = 3001;
    std::vector<Input> inputs;
    std::vector<const void*> sources;
    for (int i = 0; i < 5; ++i) {
      inputs.emplace_back(kElements * size, random() % 9);
      fill(inputs.back().data, type, kElements, random);
      sources.push_back(inputs.back().data);
    }
    ReduceJob job;
    job.type = type;
    job.op = vcollAvg;
    job.avgDivisor = 5;
    job.sources = sources.data();
    job.nsources = 5;
    std::vector<char> whole(kElements * size);
    job.out = whole.data();
    job.elements = kElements;
    reduceChunk(job);

    std::vector<char> pieces(kElements * size);
    for (uint64_t first = 0; first < kElements; first += job.elements) {
      job.elements = std::min(1 + random() % 400, kElements - first);
      std::vector<const void*> from;
      for (const Input& input : inputs) from.push_back(input.data + first * size);
      job.sources = from.data();
      job.out = pieces.data() + first * size;
      reduceChunk(job);
    }
    INFO(typeInfo(type)->name);
    CHECK(pieces == whole);
  }
}

TEST_CASE("every 16-bit pattern survives widening and rounding", "[reduce]") {
  for (const ReduceFunctions* functions : variants()) {
    for (const vcollDataType_t type : {vcollFloat16, vcollBfloat16}) {
      const FloatFormat format = type == vcollFloat16 ? kHalf : kBfloat;
      std::vector<uint16_t> all(65536);
      for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
      std::vector<uint16_t> out(all.size());
      const void* source = all.data();
      ReduceJob job;
      job.type = type;
      job.sources = &source;
      job.nsources = 1;
      job.out = out.data();
      job.elements = all.size();
      functions->reduce(job);
      size_t wrong = 0;
      for (size_t i = 0; i < all.size(); ++i) {
        const bool nan = std::isnan(decode16(all[i], format));
        if (out[i] != (nan ? encode16(std::nan(""), format) : all[i])) ++wrong;
      }
      INFO(functions->name << " " << typeInfo(type)->name);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("copies are exact at every alignment and write nothing else", "[reduce]") {
  Random random(3);
  for (const uint64_t bytes : {0u, 1u, 63u, 64u, 65u, 127u, 128u, 200u, 4096u, 70001u}) {
    for (const bool streaming : {false, true}) {
      for (const uint64_t shift : {0u, 1u, 13u, 32u, 63u}) {
        Input from(bytes, random() % 67);
        fill(from.data, vcollUint8, bytes, random);
        std::vector<char> area(bytes + 256, 0x5a);
        std::vector<char> expected = area;
        const uint64_t at = 64 - reinterpret_cast<uintptr_t>(area.data()) % 64 + shift;
        std::copy(from.data, from.data + bytes, expected.data() + at);
        copyBytes(area.data() + at, from.data, bytes, streaming);
        INFO(bytes << " bytes, shift " << shift << (streaming ? ", streaming" : ""));
        CHECK(area == expected);
      }
    }
  }
}
