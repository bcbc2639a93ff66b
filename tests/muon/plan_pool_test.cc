// SPDX-License-Identifier: Apache-2.0
#include "plan/pool.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

namespace vmuon {
namespace {

// In use at any of the times 0, 1, ..: end <= begin goes over the turn.
bool inUse(const PoolInterval& interval, uint64_t time) {
  return interval.begin < interval.end ? interval.begin <= time && time < interval.end
                                       : interval.begin <= time || time < interval.end;
}

// Simulates every point in time.
void requireApart(const std::vector<PoolInterval>& intervals, const PoolLayout& layout, uint64_t times,
                  uint64_t align) {
  REQUIRE(layout.offsets.size() == intervals.size());
  uint64_t most = 0;
  for (uint64_t time = 0; time < times; ++time) {
    std::vector<std::pair<uint64_t, uint64_t>> taken;
    uint64_t sum = 0;
    for (size_t i = 0; i < intervals.size(); ++i) {
      REQUIRE(layout.offsets[i] % align == 0);
      REQUIRE(layout.offsets[i] + intervals[i].bytes <= layout.bytes);
      if (!inUse(intervals[i], time) || intervals[i].bytes == 0) continue;
      taken.emplace_back(layout.offsets[i], layout.offsets[i] + intervals[i].bytes);
      sum += intervals[i].bytes;
    }
    std::sort(taken.begin(), taken.end());
    for (size_t i = 1; i < taken.size(); ++i) REQUIRE(taken[i - 1].second <= taken[i].first);
    most = std::max(most, sum);
  }
  REQUIRE(layout.lowerBound == most);
  REQUIRE(layout.bytes >= most);
}

}  // namespace

TEST_CASE("plan pool: nothing", "[plan]") {
  const PoolLayout layout = packPool({});
  REQUIRE(layout.offsets.empty());
  REQUIRE(layout.bytes == 0);
  REQUIRE(layout.lowerBound == 0);
}

TEST_CASE("plan pool: touching intervals share, overlapping ones do not", "[plan]") {
  const PoolLayout layout = packPool({{0, 2, 100}, {2, 4, 100}, {3, 5, 100}, {5, 6, 0}});
  REQUIRE(layout.offsets[0] == layout.offsets[1]);
  REQUIRE(layout.offsets[2] != layout.offsets[1]);
  REQUIRE(layout.bytes == 228);
  REQUIRE(layout.lowerBound == 200);
}

TEST_CASE("plan pool: intervals over the turn and for good", "[plan]") {
  const std::vector<PoolInterval> intervals{{8, 2, 64}, {1, 3, 64}, {3, 8, 64}, {4, 4, 64}, {9, 1, 64}};
  const PoolLayout layout = packPool(intervals);
  requireApart(intervals, layout, 10, 64);
  REQUIRE(layout.bytes == 3 * 64);
}

TEST_CASE("plan pool: layers in use one or two at a time need one or two places", "[plan]") {
  // Forward and backward of ZeRO-3 with the next layer fetched while one computes.
  std::vector<PoolInterval> intervals;
  const uint64_t layers = 12;
  for (uint64_t turn = 0; turn < 2 * layers; ++turn) {
    const uint64_t layer = turn < layers ? turn : 2 * layers - 1 - turn;
    intervals.push_back({turn == 0 ? 0 : 2 * turn - 2, 2 * turn + 1, 1000 + 64 * (layer % 3)});
  }
  const PoolLayout layout = packPool(intervals);
  requireApart(intervals, layout, 4 * layers, 64);
  REQUIRE(layout.bytes <= 2 * (1000 + 128) + 64);
}

TEST_CASE("plan pool: random intervals", "[plan]") {
  double worst = 1;
  for (unsigned seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const uint64_t align = uint64_t{1} << (random() % 8);
    const uint64_t times = 5 + random() % 40;
    std::vector<PoolInterval> intervals(1 + random() % 40);
    for (PoolInterval& interval : intervals) {
      interval = {random() % times, random() % times, random() % 7 == 0 ? 0 : random() % 5000};
      if (random() % 2 == 0 && interval.end < interval.begin) std::swap(interval.begin, interval.end);
    }
    const PoolLayout layout = packPool(intervals, align);
    requireApart(intervals, layout, times, align);
    REQUIRE(layout.digest == packPool(intervals, align).digest);
    if (layout.lowerBound > 0) worst = std::max(worst, double(layout.bytes) / double(layout.lowerBound));
    intervals[0].bytes += 1;
    REQUIRE(layout.digest != packPool(intervals, align).digest);
  }
  WARN("300 random pools: at most " << worst << " times the bytes in use at once");
  REQUIRE(worst < 1.6);
}

}  // namespace vmuon
