// SPDX-License-Identifier: Apache-2.0
// What one rail publishes after an optimizer step of five models: item counts, totals and largest items as in table 7
// of arXiv 2611.07084, made of the models' own matrices in bfloat16.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <string_view>
#include <vector>

#include "vcoll/vcoll.h"

namespace vcoll::perf {

struct ItemShape {
  uint32_t count;
  uint64_t rows;
  uint64_t columns;
  uint64_t bytes() const { return rows * columns * 2; }
};

inline constexpr uint32_t kPublishNodes[] = {2, 4, 8, 16, 32};

struct PublishModel {
  const char* name;
  std::vector<ItemShape> shapes;
  // Of the table: what is simulated must add up to this, and the times of its persistent kernel.
  uint32_t items;
  double totalMiB;
  double largestMiB;
  double publishedMs[std::size(kPublishNodes)];
  uint32_t groups;  // adjacent layers whose items fill one coalesced call
};

// Qwen: gate/up/down, q/o, k/v, norms and biases (whose numbers follow from count and total). The other two: the widths
// of their vision towers, language models and action experts; which of their matrices share a rail is not published, so
// only count, total and largest are exact.
inline const std::vector<PublishModel>& publishModels() {
  static const auto* models = new std::vector<PublishModel>{
      {"qwen2.5-1.5b",
       {{9, 8960, 1536}, {8, 1536, 1536}, {8, 256, 1536}, {12, 1536, 1}, {8, 256, 1}},
       45,
       278.3,
       26.25,
       {3.95, 5.57, 7.56, 8.58, 9.78},
       4},
      {"qwen2.5-7b",
       {{11, 18944, 3584}, {6, 3584, 3584}, {6, 512, 3584}, {9, 3584, 1}, {6, 512, 1}},
       38,
       1592.6,
       129.5,
       {19.09, 28.68, 33.05, 38.92, 40.07},
       6},
      {"qwen2.5-32b",
       {{24, 27648, 5120}, {16, 5120, 5120}, {15, 1024, 5120}},
       55,
       7430.0,
       270.0,
       {83.81, 125.75, 147.21, 174.12, 175.71},
       14},
      {"wall-oss-0.5",
       {{6, 22016, 2048},
        {6, 11008, 2048},
        {5, 2048, 2048},
        {5, 256, 2048},
        {5, 3420, 1280},
        {3, 1280, 1280},
        {45, 2048, 1}},
       75,
       870.3,
       86.0,
       {11.53, 18.46, 20.64, 22.23, 23.59},
       9},
      {"pi0.5",
       {{3, 32768, 2048},
        {2, 16384, 2048},
        {4, 4304, 1152},
        {8, 2048, 2048},
        {10, 1152, 1152},
        {4, 2048, 1024},
        {8, 256, 2048},
        {4, 256, 1024},
        {40, 2048, 1}},
       83,
       665.3,
       128.0,
       {9.31, 13.76, 16.55, 20.03, 22.52},
       9},
  };
  return *models;
}

// nullptr when there is no model of that name.
inline const PublishModel* findPublishModel(std::string_view name) {
  for (const PublishModel& model : publishModels()) {
    if (name == model.name) return &model;
  }
  return nullptr;
}

// Owners of items, 0 .. owners-1: the largest first, each to the owner that has the fewest bytes so far.
inline std::vector<int32_t> dealItems(const std::vector<uint64_t>& sizes, uint32_t owners) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  std::vector<uint64_t> owned(owners, 0);
  std::vector<int32_t> owner(sizes.size());
  for (const size_t i : order) {
    const auto least = std::min_element(owned.begin(), owned.end());
    *least += sizes[i];
    owner[i] = static_cast<int32_t>(least - owned.begin());
  }
  return owner;
}

// Its items one after another in a window, the largest first.
inline std::vector<vcollPublishItem_t> publishItems(const PublishModel& model, uint32_t owners) {
  std::vector<uint64_t> sizes;
  for (const ItemShape& shape : model.shapes) sizes.insert(sizes.end(), shape.count, shape.bytes());
  std::sort(sizes.rbegin(), sizes.rend());
  const std::vector<int32_t> dealt = dealItems(sizes, owners);
  std::vector<vcollPublishItem_t> items;
  uint64_t offset = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    items.push_back({i, dealt[i], 0, offset, sizes[i]});
    offset += sizes[i];
  }
  return items;
}

struct LayerItem {
  uint64_t bytes;
  uint32_t group;  // 0 .. groups-1, grows along the layers
};

// Its items in layer order; those of one shape are spread evenly over the layers.
inline std::vector<LayerItem> layerItems(const PublishModel& model) {
  struct Placed {
    double at;  // 0..1 along the layers
    uint64_t bytes;
  };
  std::vector<Placed> placed;
  for (const ItemShape& shape : model.shapes) {
    for (uint32_t i = 0; i < shape.count; ++i) placed.push_back({(i + 0.5) / shape.count, shape.bytes()});
  }
  std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.at < b.at; });
  std::vector<LayerItem> items;
  for (const Placed& p : placed) items.push_back({p.bytes, static_cast<uint32_t>(p.at * model.groups)});
  return items;
}

}  // namespace vcoll::perf
