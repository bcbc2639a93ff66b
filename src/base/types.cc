// SPDX-License-Identifier: Apache-2.0
#include "base/types.h"

#include <array>

namespace vcoll {

const TypeInfo* typeInfo(int type) {
  static constexpr std::array<TypeInfo, vcollNumTypes> kTypes = {{
      {"int8", 1, true, false},
      {"uint8", 1, true, false},
      {"int32", 4, true, false},
      {"uint32", 4, true, false},
      {"int64", 8, true, false},
      {"uint64", 8, true, false},
      {"half", 2, true, true},
      {"float", 4, true, true},
      {"double", 8, true, true},
      {"bfloat16", 2, true, true},
      {"f8e4m3", 1, false, true},
      {"f8e5m2", 1, false, true},
  }};
  return type >= 0 && type < vcollNumTypes ? &kTypes[static_cast<size_t>(type)] : nullptr;
}

const char* opName(int op) {
  static constexpr std::array<const char*, vcollNumOps> kOps = {"sum", "prod", "max", "min", "avg"};
  return op >= 0 && op < vcollNumOps ? kOps[static_cast<size_t>(op)] : nullptr;
}

}  // namespace vcoll
