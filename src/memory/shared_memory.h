// SPDX-License-Identifier: Apache-2.0
// memfd memory: it can be handed to other processes and leaves nothing behind in any file system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/status.h"

namespace vcoll {

// An owned file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// An owned mapping.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();
  unsigned char* base() const { return static_cast<unsigned char*>(base_); }
  size_t bytes() const { return bytes_; }

  // Populated, so that no page fault is paid later. fd < 0: private zeroed memory.
  static Status make(int fd, uint64_t fileOffset, size_t bytes, const char* what, Mapping* mapping);

 private:
  void* base_ = nullptr;
  size_t bytes_ = 0;
};

// A memfd with no memory yet.
Status createSharedFile(const char* what, UniqueFd* fd);
// Gives the file its size and reserves the memory now: later writes cannot fail for want of it.
Status reserveSharedFile(int fd, size_t bytes, const char* what);

}  // namespace vcoll
