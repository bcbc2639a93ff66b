// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "plan/units.h"

namespace vmuon {
namespace {

constexpr size_t kColumns = 8;
using Row = std::array<std::string, kColumns>;

// "3", or "3..19 (12)" for several.
std::string rangeText(std::vector<int32_t> numbers) {
  if (numbers.empty()) return "-";
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  if (numbers.size() == 1) return fmt::format("{}", numbers[0]);
  return fmt::format("{}..{} ({})", numbers.front(), numbers.back(), numbers.size());
}

std::string kindText(const ParamSpec& spec) {
  std::string text = kindName(spec.kind);
  if (!spec.splits.empty()) text += fmt::format(" {}", fmt::join(spec.splits, "+"));
  if (spec.frozen) text += ", frozen";
  return text;
}

}  // namespace

std::string describeParams(const ParamRegistry& params, const UnitTable* table, const std::vector<int32_t>* owners) {
  std::vector<Row> rows{{"name", "kind", "shape", "type", "layer", "group", "unit", "owner"}};
  std::map<int32_t, std::pair<uint64_t, uint64_t>> totals;  // by kind: parameters, elements
  for (int32_t i = 0; i < params.size(); ++i) {
    const Param& param = params[i];
    const ParamSpec& spec = param.spec;
    std::vector<int32_t> units;
    std::vector<int32_t> ranks;
    if (table != nullptr) {
      const auto [first, last] = table->piecesOf[static_cast<size_t>(i)];
      for (int32_t p = first; p < last; ++p) {
        units.push_back(table->pieces[static_cast<size_t>(p)].unit);
        if (owners != nullptr) ranks.push_back((*owners)[static_cast<size_t>(units.back())]);
      }
    }
    const bool alias = param.isAlias(i);
    rows.push_back({spec.name, alias ? fmt::format("tied to {}", spec.tiedTo) : kindText(spec), shapeText(spec.shape),
                    dtypeName(spec.dtype), fmt::format("{}", spec.layer), fmt::format("{}", spec.group),
                    rangeText(units), rangeText(ranks)});
    if (alias) continue;
    ++totals[spec.kind].first;
    totals[spec.kind].second += param.elements;
  }
  std::array<size_t, kColumns> widths{};
  for (const Row& row : rows) {
    for (size_t c = 0; c < kColumns; ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t c = 0; c < kColumns; ++c) line += fmt::format("{:<{}}  ", row[c], widths[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  for (const auto& [kind, total] : totals) {
    text += fmt::format("{}: {} parameters, {} elements\n", kindName(kind), total.first, total.second);
  }
  if (table != nullptr) text += fmt::format("orthogonalisations per step: {}\n", table->blocks());
  return text;
}

}  // namespace vmuon
