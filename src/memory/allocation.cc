// SPDX-License-Identifier: Apache-2.0
#include "memory/allocation.h"

#include <map>
#include <mutex>

#include "memory/shared_memory.h"

namespace vcoll {

namespace {

struct Allocation {
  UniqueFd fd;
  Mapping mapping;
  size_t bytes = 0;  // asked for; the mapping is whole pages
  int pins = 0;
};

struct Registry {
  std::mutex mutex;
  std::map<uintptr_t, Allocation> byStart;

  std::map<uintptr_t, Allocation>::iterator find(const void* ptr) {
    auto after = byStart.upper_bound(reinterpret_cast<uintptr_t>(ptr));
    if (after == byStart.begin()) return byStart.end();
    --after;
    const uintptr_t offset = reinterpret_cast<uintptr_t>(ptr) - after->first;
    return offset <= after->second.bytes ? after : byStart.end();
  }
};

Registry& registry() {
  static Registry* const instance = new Registry;  // never destroyed: no work at exit
  return *instance;
}

}  // namespace

Status allocateMemory(size_t bytes, void** ptr) {
  constexpr size_t kPage = 4096;
  if (bytes > SIZE_MAX / 4) return makeError(vcollInvalidArgument, "bytes = {} is too large", bytes);
  const size_t rounded = bytes == 0 ? kPage : (bytes + kPage - 1) / kPage * kPage;
  Allocation made;
  VCOLL_TRY(createSharedFile("vcollMemAlloc", &made.fd));
  VCOLL_TRY(reserveSharedFile(made.fd.get(), rounded, "vcollMemAlloc"));
  VCOLL_TRY(Mapping::make(made.fd.get(), 0, rounded, "vcollMemAlloc", &made.mapping));
  made.bytes = bytes;
  *ptr = made.mapping.base();
  std::lock_guard lock(registry().mutex);
  registry().byStart.emplace(reinterpret_cast<uintptr_t>(*ptr), std::move(made));
  return {};
}

Status freeMemory(void* ptr) {
  Allocation ended;  // unmapped outside the lock
  std::lock_guard lock(registry().mutex);
  const auto found = registry().byStart.find(reinterpret_cast<uintptr_t>(ptr));
  if (found == registry().byStart.end()) {
    return makeError(vcollInvalidArgument, "ptr = {} was not returned by vcollMemAlloc, or was freed before", ptr);
  }
  if (found->second.pins > 0) {
    return makeError(vcollInvalidUsage, "ptr = {} still has {} registered window(s)", ptr, found->second.pins);
  }
  ended = std::move(found->second);
  registry().byStart.erase(found);
  return {};
}

Status pinRange(const void* ptr, size_t bytes, AllocationRef* ref) {
  std::lock_guard lock(registry().mutex);
  const auto found = registry().find(ptr);
  const uintptr_t start = reinterpret_cast<uintptr_t>(ptr);
  if (found == registry().byStart.end() || bytes > found->second.bytes - (start - found->first)) {
    return makeError(vcollInvalidArgument, "[ptr = {}, bytes = {}) is not inside one vcollMemAlloc allocation", ptr,
                     bytes);
  }
  ++found->second.pins;
  ref->fd = found->second.fd.get();
  ref->fileOffset = start - found->first;
  return {};
}

void unpinRange(const void* ptr) {
  std::lock_guard lock(registry().mutex);
  const auto found = registry().find(ptr);
  if (found != registry().byStart.end()) --found->second.pins;
}

}  // namespace vcoll
