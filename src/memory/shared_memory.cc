// SPDX-License-Identifier: Apache-2.0
#include "memory/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

namespace vcoll {

namespace {
constexpr size_t kLargeBytes = size_t{16} << 20;  // below, asking the machine first costs more than it tells
}

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) close(fd_);
}

Mapping::~Mapping() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

Status Mapping::make(int fd, uint64_t fileOffset, size_t bytes, const char* what, Mapping* mapping) {
  const int flags = fd >= 0 ? MAP_SHARED | MAP_POPULATE : MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, static_cast<off_t>(fileOffset));
  if (base == MAP_FAILED) return systemError(formatText("cannot map {} bytes for {}", bytes, what));
  Mapping made;
  made.base_ = base;
  made.bytes_ = bytes;
  *mapping = std::move(made);
  return {};
}

Status createSharedFile(const char* what, UniqueFd* fd) {
  UniqueFd made(memfd_create("vcoll", MFD_CLOEXEC));
  if (!made) return systemError(formatText("cannot create a memory file for {}", what));
  *fd = std::move(made);
  return {};
}

namespace {
// What the machine can give now without killing anybody; SIZE_MAX if it does not say.
uint64_t availableBytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name;) {
    uint64_t kib = 0;
    if (name == "MemAvailable:" && file >> kib) return kib * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return UINT64_MAX;
}
}  // namespace

Status reserveSharedFile(int fd, size_t bytes, const char* what) {
  // Memory files have no limit of their own: asking for more than there is would end in the kernel killing processes.
  const uint64_t available = bytes >= kLargeBytes ? availableBytes() : UINT64_MAX;
  if (bytes > available) {
    return systemError(
        formatText("cannot reserve {} bytes of shared memory for {}: {} bytes are available", bytes, what, available),
        ENOMEM);
  }
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    return systemError(formatText("cannot size shared memory to {} bytes for {}", bytes, what));
  }
  int error = 0;
  do {
    error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error != 0) return systemError(formatText("cannot reserve {} bytes of shared memory for {}", bytes, what), error);
  return {};
}

}  // namespace vcoll
