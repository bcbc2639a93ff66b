// SPDX-License-Identifier: Apache-2.0
// The finalizer of SplitMix64: what initial weights and the choice of text are drawn with.
#pragma once

#include <cstdint>
#include <string_view>

namespace gpt {

constexpr uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr uint64_t mix(uint64_t seed, std::string_view text) {
  for (const char c : text) seed = mix(seed ^ static_cast<unsigned char>(c));
  return seed;
}

}  // namespace gpt
