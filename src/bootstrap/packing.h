// SPDX-License-Identifier: Apache-2.0
// Flat messages: plain values and length-prefixed blobs one after the other, read back with every length checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/status.h"

namespace vcoll {

class Packer {
 public:
  template <typename T>
  Packer& value(const T& item) {
    static_assert(std::is_trivially_copyable_v<T>);
    return raw(&item, sizeof item);
  }
  Packer& blob(const void* data, size_t bytes) {
    value<uint64_t>(bytes);
    return raw(data, bytes);
  }
  Packer& text(std::string_view text) { return blob(text.data(), text.size()); }
  Packer& status(const Status& status) { return value<int32_t>(status.code()).text(status.text()); }
  void reserve(size_t bytes) { bytes_.reserve(bytes); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  Packer& raw(const void* data, size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + bytes);
    return *this;
  }
  std::vector<std::byte> bytes_;
};

// Every read is false once one failed.
class Unpacker {
 public:
  explicit Unpacker(const std::vector<std::byte>& bytes) : at_(bytes.data()), left_(bytes.size()) {}

  template <typename T>
  bool value(T* item) {
    static_assert(std::is_trivially_copyable_v<T>);
    return raw(item, sizeof *item);
  }
  bool blob(std::vector<std::byte>* blob) {
    const std::byte* data = nullptr;
    size_t bytes = 0;
    if (!piece(&data, &bytes)) return false;
    blob->assign(data, data + bytes);
    return true;
  }
  bool text(std::string* text) {
    const std::byte* data = nullptr;
    size_t bytes = 0;
    if (!piece(&data, &bytes)) return false;
    text->assign(reinterpret_cast<const char*>(data), bytes);
    return true;
  }
  bool status(Status* status) {
    int32_t code = 0;
    std::string words;
    if (!value(&code) || !text(&words) || code <= vcollSuccess || code >= vcollNumResults) return false;
    *status = Status(static_cast<vcollResult_t>(code), std::move(words));
    return true;
  }
  bool atEnd() const { return left_ == 0; }

 private:
  bool raw(void* target, size_t bytes) {
    if (bytes > left_) {
      left_ = 0;
      return false;
    }
    std::memcpy(target, at_, bytes);
    at_ += bytes;
    left_ -= bytes;
    return true;
  }
  bool piece(const std::byte** data, size_t* bytes) {
    uint64_t length = 0;
    if (!value(&length) || length > left_) {
      left_ = 0;
      return false;
    }
    *data = at_;
    *bytes = static_cast<size_t>(length);
    at_ += length;
    left_ -= static_cast<size_t>(length);
    return true;
  }
  const std::byte* at_;
  size_t left_;
};

}  // namespace vcoll
