// SPDX-License-Identifier: Apache-2.0
// The process's vcollMemAlloc allocations: memory that can become a window.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace vcoll {

struct AllocationRef {
  int fd = -1;              // of the whole allocation; owned by the allocation
  uint64_t fileOffset = 0;  // of the range's first byte
};

Status allocateMemory(size_t bytes, void** ptr);
// vcollInvalidArgument: not the start of an allocation; vcollInvalidUsage: windows are still on it.
Status freeMemory(void* ptr);
// Finds the allocation that holds [ptr, ptr + bytes) and keeps it from being freed until unpinned.
Status pinRange(const void* ptr, size_t bytes, AllocationRef* ref);
void unpinRange(const void* ptr);

}  // namespace vcoll
