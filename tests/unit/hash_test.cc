// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <catch2/catch.hpp>
#include <set>

using vcoll::Digest;
using vcoll::mix64;

namespace {

uint64_t digestOf(std::initializer_list<uint64_t> words) {
  Digest digest;
  for (const uint64_t word : words) digest.add(word);
  return digest.value();
}

}  // namespace

TEST_CASE("mix64 is SplitMix64's output function", "[hash]") {
  // The published first outputs for seed 0: the state advances by the golden ratio.
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;
  CHECK(mix64(0) == 0xe220a8397b1dcdafu);
  CHECK(mix64(kStep) == 0x6e789e6aa1b965f4u);
  CHECK(mix64(2 * kStep) == 0x06c45d188009454fu);
}

TEST_CASE("mix64 changes about half of the bits when one changes", "[hash]") {
  for (int bit = 0; bit < 64; ++bit) {
    int changed = 0;
    for (uint64_t x = 0; x < 64; ++x) changed += __builtin_popcountll(mix64(x) ^ mix64(x ^ (uint64_t{1} << bit)));
    CHECK(changed > 64 * 28);
    CHECK(changed < 64 * 36);
  }
}

TEST_CASE("a digest depends on the words, their order and their number", "[hash]") {
  CHECK(digestOf({1, 2, 3}) == digestOf({1, 2, 3}));
  CHECK(digestOf({1, 2, 3}) != digestOf({1, 3, 2}));
  CHECK(digestOf({1, 2, 3}) != digestOf({1, 2}));

  // Zeros count as well; no two short series of small words collide.
  std::set<uint64_t> seen = {digestOf({})};
  size_t series = 1;
  for (uint64_t a = 0; a < 16; ++a) {
    seen.insert(digestOf({a}));
    ++series;
    for (uint64_t b = 0; b < 16; ++b) {
      seen.insert(digestOf({a, b}));
      seen.insert(digestOf({a, b, 0}));
      series += 2;
    }
  }
  CHECK(seen.size() == series);
}
