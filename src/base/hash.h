// SPDX-License-Identifier: Apache-2.0
// A 64-bit mixing hash for digests (not cryptographic) and for position-hash test data.
#pragma once

#include <cstdint>

namespace vcoll {

// The finalizer of SplitMix64: a bijection with full avalanche.
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Order-dependent digest of a series of words.
class Digest {
 public:
  void add(uint64_t word) { state_ = mix64(state_ ^ word) + count_++; }
  uint64_t value() const { return mix64(state_ + count_); }

 private:
  uint64_t state_ = 0;
  uint64_t count_ = 0;
};

}  // namespace vcoll
