// SPDX-License-Identifier: Apache-2.0
// bfloat16, kept as the upper half of an fp32 value's bits.
#pragma once

#include <cstdint>

namespace vmuon {

// To nearest, ties to even. NaN stays NaN (quiet, with its sign and upper bits); what is too large becomes infinite.
void roundToBfloat16(const float* from, uint16_t* to, int64_t count);
void widenBfloat16(const uint16_t* from, float* to, int64_t count);

// sum += values, in fp32.
void addBfloat16(const uint16_t* values, float* sum, int64_t count);
void addFloat32(const float* values, float* sum, int64_t count);

}  // namespace vmuon
