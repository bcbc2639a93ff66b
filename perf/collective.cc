// SPDX-License-Identifier: Apache-2.0
#include "perf/collective.h"

#include <cstring>

#include "perf/values.h"

namespace vcoll::perf {

uint64_t Case::ownOffset() const {
  uint64_t offset = 0;
  for (int r = 0; r < rank; ++r) offset += layout->counts[static_cast<size_t>(r)];
  return offset;
}

void clearBuffer(const Case& c, const Buffer& buffer) {
  std::memset(buffer.data, kGuardByte, c.start + c.totalBytes() + kGuardBytes);
}

uint64_t wrongGuards(const Case& c, const Buffer& buffer, uint64_t count) {
  const size_t end = c.start + static_cast<size_t>(count) * c.type->size;
  const size_t used = c.start + c.totalBytes() + kGuardBytes;
  return touchedGuards(buffer.data, c.start) + touchedGuards(buffer.data + end, used - end);
}

}  // namespace vcoll::perf
