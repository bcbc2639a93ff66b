// SPDX-License-Identifier: Apache-2.0
#include "math/rounding.h"

#include <bit>

namespace vmuon {
namespace {

float widen(uint16_t value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

}  // namespace

void roundToBfloat16(const float* from, uint16_t* to, int64_t count) {
  // Without branches, so that compilers make vectors of it.
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(from[i]);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const uint32_t quiet = bits >> 16 | 0x40u;
    to[i] = static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  }
}

void widenBfloat16(const uint16_t* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = widen(from[i]);
}

void addBfloat16(const uint16_t* values, float* sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += widen(values[i]);
}

void addFloat32(const float* values, float* sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += values[i];
}

}  // namespace vmuon
