// SPDX-License-Identifier: Apache-2.0
// What the perf programs know of the data types and operations, in nccl-tests' spelling.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "vcoll/vcoll.h"

namespace vcoll::perf {

struct PerfType {
  vcollDataType_t type;
  const char* name;
  size_t size;
  bool reducible;
  bool isFloat;
  bool isSigned;
  int64_t exactMax;  // integers up to this are exact in the type
};

inline constexpr PerfType kTypes[] = {
    {vcollInt8, "int8", 1, true, false, true, 127},         {vcollUint8, "uint8", 1, true, false, false, 255},
    {vcollInt32, "int32", 4, true, false, true, 1 << 24},   {vcollUint32, "uint32", 4, true, false, false, 1 << 24},
    {vcollInt64, "int64", 8, true, false, true, 1 << 24},   {vcollUint64, "uint64", 8, true, false, false, 1 << 24},
    {vcollFloat16, "half", 2, true, true, true, 2048},      {vcollFloat32, "float", 4, true, true, true, 1 << 24},
    {vcollFloat64, "double", 8, true, true, true, 1 << 24}, {vcollBfloat16, "bfloat16", 2, true, true, true, 256},
    {vcollFloat8e4m3, "f8e4m3", 1, false, true, true, 16},  {vcollFloat8e5m2, "f8e5m2", 1, false, true, true, 8},
};

struct PerfOp {
  vcollRedOp_t op;
  const char* name;
};

inline constexpr PerfOp kOps[] = {
    {vcollSum, "sum"}, {vcollProd, "prod"}, {vcollMin, "min"}, {vcollMax, "max"}, {vcollAvg, "avg"},
};

inline const PerfType* findType(std::string_view name) {
  for (const PerfType& type : kTypes) {
    if (name == type.name) return &type;
  }
  return nullptr;
}

inline const PerfOp* findOp(std::string_view name) {
  for (const PerfOp& op : kOps) {
    if (name == op.name) return &op;
  }
  return nullptr;
}

// ---- 16-bit floats ----

inline float bfloat16ToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Round to nearest even; NaN stays a (quiet) NaN. Written without branches so that loops vectorise.
inline uint16_t floatToBfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

float halfToFloat(uint16_t bits);
uint16_t floatToHalf(float value);  // round to nearest even

}  // namespace vcoll::perf
