// SPDX-License-Identifier: Apache-2.0
// Data types and reduction operations: names, sizes, what may be reduced.
#pragma once

#include <cstddef>

#include "vcoll/vcoll.h"

namespace vcoll {

struct TypeInfo {
  const char* name;  // nccl-tests' spelling
  size_t size;       // bytes
  bool reducible;
  bool isFloat;
};

// nullptr when type is out of range.
const TypeInfo* typeInfo(int type);
// nullptr when op is out of range.
const char* opName(int op);

}  // namespace vcoll
