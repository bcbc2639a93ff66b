// SPDX-License-Identifier: Apache-2.0
// Order-dependent 64-bit digest of what ranks must agree on. Not cryptographic.
#pragma once

#include <cstdint>
#include <string_view>

namespace vmuon {

class Digest {
 public:
  void add(uint64_t word) { state_ = mix(state_ ^ word) + count_++; }
  void add(std::string_view text) {
    add(text.size());
    for (const char c : text) add(static_cast<uint64_t>(static_cast<unsigned char>(c)));
  }
  uint64_t value() const { return mix(state_ + count_); }

 private:
  // The finalizer of SplitMix64: a bijection with full avalanche.
  static constexpr uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

  uint64_t state_ = 0;
  uint64_t count_ = 0;
};

}  // namespace vmuon
