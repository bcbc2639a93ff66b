// SPDX-License-Identifier: Apache-2.0
// Gradient norm and bfloat16.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "math/gradient_norm.h"
#include "math/rounding.h"
#include "math_reference.h"

namespace {

uint32_t bitsOf(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float fromBits(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

uint16_t rounded(float value) {
  uint16_t result = 0;
  vmuon::roundToBfloat16(&value, &result, 1);
  return result;
}

// The nearer of the two neighbours, by distance in double.
uint16_t nearest(float value) {
  const auto down = static_cast<uint16_t>(bitsOf(value) >> 16);
  const auto up = static_cast<uint16_t>(down + 1);
  const auto magnitude = [](uint16_t v) {  // beyond the largest number lies 2^128
    return (v & 0x7fffu) == 0x7f80u ? 0x1p128 : std::abs(static_cast<double>(fromBits(static_cast<uint32_t>(v) << 16)));
  };
  const double toDown = std::abs(static_cast<double>(value)) - magnitude(down);
  const double toUp = magnitude(up) - std::abs(static_cast<double>(value));
  if (toDown != toUp) return toDown < toUp ? down : up;
  return down % 2 == 0 ? down : up;
}

}  // namespace

TEST_CASE("math norm: no overflow or underflow, any length") {
  for (const int64_t count : {0, 1, 15, 16, 17, 33, 1000}) {
    for (const double size : {1.0, 1e-30, 1e30, 3e38}) {
      const std::vector<float> values(static_cast<size_t>(count), static_cast<float>(-size));
      CHECK(vmuon::sumOfSquares(values.data(), count) ==
            Approx(size * size * static_cast<double>(count)).epsilon(1e-6));
    }
  }
  std::vector<float> different(37);
  double wanted = 0;
  for (size_t i = 0; i < different.size(); ++i) {
    different[i] = static_cast<float>(i + 1);
    wanted += static_cast<double>((i + 1) * (i + 1));
  }
  CHECK(vmuon::sumOfSquares(different.data(), 37) == wanted);
}

TEST_CASE("math norm: a value that is not finite is seen wherever it is") {
  std::vector<float> values(50, 3e38f);
  CHECK(std::isfinite(vmuon::sumOfSquares(values.data(), 50)));
  for (size_t at = 0; at < values.size(); ++at) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      values[at] = bad;
      CHECK_FALSE(std::isfinite(vmuon::sumOfSquares(values.data(), 50)));
      values[at] = 3e38f;
    }
  }
  values = {INFINITY, -INFINITY};  // must not cancel
  CHECK_FALSE(std::isfinite(vmuon::sumOfSquares(values.data(), 2)));
}

TEST_CASE("math norm: clipping's factor") {
  CHECK(vmuon::clipCoefficient(4, 1) == Approx(0.25).epsilon(1e-5));
  CHECK(vmuon::clipCoefficient(0.5, 1) == 1);
  CHECK(vmuon::clipCoefficient(0, 1) == 1);
  CHECK(vmuon::clipCoefficient(1, 1) == 1 / (1 + 1e-6));
  CHECK(vmuon::clipCoefficient(2e11, 1) == Approx(5e-12));
  CHECK(vmuon::clipCoefficient(100, 0) == 1);  // off
  CHECK(vmuon::clipCoefficient(INFINITY, 1) == 1);
  CHECK(vmuon::clipCoefficient(NAN, 1) == 1);
}

TEST_CASE("math bfloat16: to nearest, ties to even, over the whole range") {
  CHECK(rounded(1.0f) == 0x3f80);
  CHECK(rounded(fromBits(0x3f808000)) == 0x3f80);  // tie: down to even
  CHECK(rounded(fromBits(0x3f818000)) == 0x3f82);  // tie: up to even
  CHECK(rounded(fromBits(0x3f808001)) == 0x3f81);
  CHECK(rounded(-0.0f) == 0x8000);
  CHECK(rounded(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(rounded(fromBits(0x7f7f7fff)) == 0x7f7f);
  CHECK(rounded(-INFINITY) == 0xff80);
  std::vector<float> values;
  std::vector<uint16_t> wanted;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    if ((upper & 0x7f80u) == 0x7f80u) continue;  // infinity and NaN
    for (const uint32_t lower : {0u, 1u, 0x1234u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      values.push_back(fromBits(upper << 16 | lower));
      wanted.push_back(nearest(values.back()));
    }
  }
  std::vector<uint16_t> result(values.size());
  vmuon::roundToBfloat16(values.data(), result.data(), static_cast<int64_t>(values.size()));
  CHECK(result == wanted);
}

TEST_CASE("math bfloat16: all values survive the way to fp32 and back, NaN stays NaN") {
  std::vector<uint16_t> all(0x10000);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<float> wide(all.size());
  std::vector<uint16_t> back(all.size());
  vmuon::widenBfloat16(all.data(), wide.data(), 0x10000);
  vmuon::roundToBfloat16(wide.data(), back.data(), 0x10000);
  size_t wrong = 0;
  size_t nans = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::isnan(wide[i])) {
      ++nans;
      wrong += back[i] != (all[i] | 0x40u);
    } else {
      wrong += back[i] != all[i];
    }
  }
  CHECK(wrong == 0);
  CHECK(nans == 2 * 127);
  CHECK(std::isnan(fromBits(static_cast<uint32_t>(rounded(fromBits(0x7f800001))) << 16)));  // only low bits set
  CHECK(rounded(fromBits(0xffffffff)) == 0xffff);                                           // must not wrap to zero
}

TEST_CASE("math bfloat16: gradients add up in fp32") {
  constexpr int64_t kCount = 37;
  std::vector<uint16_t> gradient(kCount);
  std::vector<float> values(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    values[i] = static_cast<float>(i) * 0.25f - 3;
    gradient[i] = rounded(values[i]);
  }
  // 256 + 1/256 needs more bits than bfloat16 has.
  std::vector<float> sum(kCount, 256.00390625f);
  std::vector<float> sum32 = sum;
  vmuon::addBfloat16(gradient.data(), sum.data(), kCount - 1);
  vmuon::addFloat32(values.data(), sum32.data(), kCount - 1);
  for (size_t i = 0; i + 1 < kCount; ++i) {
    CHECK(sum[i] == 256.00390625f + values[i]);
    CHECK(sum32[i] == 256.00390625f + values[i]);
  }
  CHECK(sum.back() == 256.00390625f);
  CHECK(sum32.back() == 256.00390625f);
}
