// SPDX-License-Identifier: Apache-2.0
#include "plan/pool.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "plan/digest.h"

namespace vmuon {
namespace {

bool coversTime(const PoolInterval& interval, uint64_t time) {
  if (interval.begin < interval.end) return interval.begin <= time && time < interval.end;
  return time >= interval.begin || time < interval.end;
}

// Two stretches of a circle overlap exactly if one has the other's start.
bool overlap(const PoolInterval& a, const PoolInterval& b) { return coversTime(a, b.begin) || coversTime(b, a.begin); }

// Each in the given order at the lowest place that is free while it lives, taking `room` bytes or its own if more.
uint64_t firstFit(const std::vector<PoolInterval>& intervals, const std::vector<size_t>& order, uint64_t room,
                  uint64_t align, std::vector<uint64_t>* offsets) {
  offsets->assign(intervals.size(), 0);
  uint64_t bytes = 0;
  std::vector<size_t> placed;
  std::vector<std::pair<uint64_t, uint64_t>> taken;
  for (const size_t i : order) {
    taken.clear();
    for (const size_t other : placed) {
      if (overlap(intervals[i], intervals[other])) {
        taken.emplace_back((*offsets)[other], (*offsets)[other] + std::max(room, intervals[other].bytes));
      }
    }
    std::sort(taken.begin(), taken.end());
    uint64_t at = 0;
    for (const auto& [begin, end] : taken) {
      if (at + std::max(room, intervals[i].bytes) <= begin) break;
      at = std::max(at, (end + align - 1) & ~(align - 1));
    }
    (*offsets)[i] = at;
    if (intervals[i].bytes == 0) continue;
    placed.push_back(i);
    bytes = std::max(bytes, at + intervals[i].bytes);
  }
  return bytes;
}

}  // namespace

PoolLayout packPool(const std::vector<PoolInterval>& intervals, uint64_t align) {
  std::vector<size_t> bySize(intervals.size());
  std::iota(bySize.begin(), bySize.end(), size_t{0});
  std::vector<size_t> byTime = bySize;
  std::stable_sort(bySize.begin(), bySize.end(), [&](size_t a, size_t b) {
    return std::tuple(~intervals[a].bytes, intervals[a].begin) < std::tuple(~intervals[b].bytes, intervals[b].begin);
  });
  std::stable_sort(byTime.begin(), byTime.end(),
                   [&](size_t a, size_t b) { return intervals[a].begin < intervals[b].begin; });

  PoolLayout layout;
  layout.bytes = firstFit(intervals, bySize, 0, align, &layout.offsets);
  const uint64_t largest = intervals.empty() ? 0 : intervals[bySize.front()].bytes;
  for (const uint64_t room : {uint64_t{0}, largest}) {
    std::vector<uint64_t> offsets;
    const uint64_t bytes = firstFit(intervals, byTime, room, align, &offsets);
    if (bytes >= layout.bytes) continue;
    layout.bytes = bytes;
    layout.offsets = std::move(offsets);
  }
  // The most is reached where something begins.
  for (const PoolInterval& at : intervals) {
    uint64_t sum = 0;
    for (const PoolInterval& other : intervals) {
      if (coversTime(other, at.begin)) sum += other.bytes;
    }
    layout.lowerBound = std::max(layout.lowerBound, sum);
  }
  Digest digest;
  for (size_t i = 0; i < intervals.size(); ++i) {
    for (const uint64_t word : {intervals[i].begin, intervals[i].end, intervals[i].bytes, layout.offsets[i]})
      digest.add(word);
  }
  layout.digest = digest.value();
  return layout;
}

}  // namespace vmuon
