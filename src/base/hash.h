// SPDX-License-Identifier: Apache-2.0
// A 64-bit mixing hash for digests (not cryptographic) and for position-hash test data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

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

// Checksum of bytes, at memory speed: four independent sums of multiplied words, so that order counts.
inline uint64_t checksumOf(const void* data, size_t bytes) {
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15u;
  const auto* at = static_cast<const unsigned char*>(data);
  uint64_t sums[4] = {1, 2, 3, 4};
  size_t left = bytes;
  for (; left >= sizeof sums; left -= sizeof sums, at += sizeof sums) {
    uint64_t words[4];
    std::memcpy(words, at, sizeof words);
    for (int i = 0; i < 4; ++i) sums[i] = ((sums[i] ^ words[i]) * kFactor) ^ (sums[i] >> 29);
  }
  unsigned char tail[sizeof sums] = {};
  if (left > 0) std::memcpy(tail, at, left);
  Digest digest;
  for (int i = 0; i < 4; ++i) {
    uint64_t word;
    std::memcpy(&word, tail + 8 * i, sizeof word);
    digest.add(sums[i]);
    digest.add(word);
  }
  digest.add(bytes);
  return digest.value();
}

}  // namespace vcoll
