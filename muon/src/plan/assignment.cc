// SPDX-License-Identifier: Apache-2.0
#include "plan/assignment.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>
#include <tuple>

#include "plan/digest.h"

namespace vmuon {
namespace {

// A rank or a column while units are handed out.
struct Bin {
  uint64_t ranks = 1;
  uint64_t time = 0;
  uint64_t bytes = 0;
  uint64_t untimedBytes = 0;  // of units without time
};

// a / ranks(a) < b / ranks(b), exactly.
using Wide = unsigned __int128;
int comparePerRank(uint64_t a, const Bin& binA, uint64_t b, const Bin& binB) {
  const Wide left = Wide{a} * binB.ranks;
  const Wide right = Wide{b} * binA.ranks;
  return left < right ? -1 : left > right ? 1 : 0;
}

class Bins {
 public:
  Bins(std::vector<Bin> bins, size_t layers, double capPerRank, bool spreadLayers)
      : bins_(std::move(bins)),
        uses_(layers, std::vector<uint32_t>(bins_.size(), 0)),
        cap_(capPerRank),
        spread_(spreadLayers) {}

  // One of the candidates, which takes the unit.
  int give(const std::vector<int>& candidates, size_t layer, uint64_t time, uint64_t bytes) {
    std::vector<int> left = candidates;
    if (spread_) keepLeastUsed(&left, uses_[layer]);
    std::vector<int> fitting;
    for (const int b : left) {
      const Bin& bin = at(b);
      if (cap_ == 0 || static_cast<double>(bin.bytes + bytes) <= cap_ * static_cast<double>(bin.ranks))
        fitting.push_back(b);
    }
    const bool fits = !fitting.empty();
    const auto before = [&](int a, int b) {
      const Bin& x = at(a);
      const Bin& y = at(b);
      int order = 0;
      if (fits && time > 0) order = comparePerRank(x.time, x, y.time, y);
      if (fits && time == 0) order = comparePerRank(x.untimedBytes, x, y.untimedBytes, y);
      if (order == 0) order = comparePerRank(x.bytes, x, y.bytes, y);
      return order != 0 ? order < 0 : a < b;
    };
    const std::vector<int>& from = fits ? fitting : left;
    const int chosen = *std::min_element(from.begin(), from.end(), before);
    Bin& bin = bins_[static_cast<size_t>(chosen)];
    bin.time += time;
    bin.bytes += bytes;
    if (time == 0) bin.untimedBytes += bytes;
    ++uses_[layer][static_cast<size_t>(chosen)];
    return chosen;
  }

 private:
  const Bin& at(int bin) const { return bins_[static_cast<size_t>(bin)]; }

  // Those that would have fewest units of the layer per rank after taking this one.
  void keepLeastUsed(std::vector<int>* candidates, const std::vector<uint32_t>& uses) const {
    const auto compare = [&](int a, int b) {
      return comparePerRank(uint64_t{uses[static_cast<size_t>(a)]} + 1, at(a),
                            uint64_t{uses[static_cast<size_t>(b)]} + 1, at(b));
    };
    const int least =
        *std::min_element(candidates->begin(), candidates->end(), [&](int a, int b) { return compare(a, b) < 0; });
    candidates->erase(
        std::remove_if(candidates->begin(), candidates->end(), [&](int b) { return compare(b, least) > 0; }),
        candidates->end());
  }

  std::vector<Bin> bins_;
  std::vector<std::vector<uint32_t>> uses_;  // by layer, by bin
  double cap_;
  bool spread_;
};

void giveBalanced(const UnitTable& table, const std::vector<uint64_t>& times, const RankGrid& grid,
                  const AssignOptions& options, std::vector<int32_t>* owner) {
  std::vector<size_t> order;
  std::map<int32_t, size_t> layers;
  uint64_t total = 0;
  for (size_t u = 0; u < table.units.size(); ++u) {
    const Unit& unit = table.units[u];
    if (unit.fixedOwner >= 0) continue;
    order.push_back(u);
    layers.emplace(unit.layer, layers.size());
    total += unit.bytes;
  }
  const auto key = [&](size_t u) {
    const Unit& unit = table.units[u];
    return std::tuple<uint64_t, uint64_t, const std::string&, int64_t>(~times[u], ~unit.elements, unit.name,
                                                                       unit.expert);
  };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });

  const auto ranks = static_cast<size_t>(grid.ranks());
  const double cap = options.byteCap * (static_cast<double>(total) / static_cast<double>(ranks));
  std::vector<std::vector<int>> ranksOf(static_cast<size_t>(grid.columns()));
  for (size_t r = 0; r < ranks; ++r) ranksOf[static_cast<size_t>(grid.columnOf[r])].push_back(static_cast<int>(r));
  std::vector<Bin> columnBins(ranksOf.size());
  for (size_t c = 0; c < ranksOf.size(); ++c) columnBins[c].ranks = ranksOf[c].size();
  std::vector<int> allColumns(ranksOf.size());
  std::iota(allColumns.begin(), allColumns.end(), 0);
  std::vector<int> allRanks(ranks);
  std::iota(allRanks.begin(), allRanks.end(), 0);

  Bins columns(std::move(columnBins), layers.size(), cap, options.spreadLayers);
  Bins single(std::vector<Bin>(ranks), layers.size(), cap, options.spreadLayers);
  for (const size_t u : order) {
    const Unit& unit = table.units[u];
    const size_t layer = layers.at(unit.layer);
    const std::vector<int>* candidates = &allRanks;
    if (options.balanceColumns) {
      candidates = &ranksOf[static_cast<size_t>(columns.give(allColumns, layer, times[u], unit.bytes))];
    }
    (*owner)[u] = single.give(*candidates, layer, times[u], unit.bytes);
  }
}

double busiestOverMean(const std::vector<Load>& loads, const std::vector<uint64_t>& ranksOf, uint64_t Load::*what) {
  double total = 0;
  double most = 0;
  uint64_t ranks = 0;
  for (size_t i = 0; i < loads.size(); ++i) {
    const auto load = static_cast<double>(loads[i].*what);
    total += load;
    most = std::max(most, load / static_cast<double>(ranksOf[i]));
    ranks += ranksOf[i];
  }
  return total == 0 ? 1 : most / (total / static_cast<double>(ranks));
}

// By layer the heaviest place's bytes over the largest unit's; the worst layer counts.
double worstLayer(const UnitTable& table, const std::vector<int32_t>& placeOf) {
  std::map<std::pair<int32_t, int32_t>, uint64_t> held;  // by layer and place
  std::map<int32_t, uint64_t> largest;
  for (size_t u = 0; u < table.units.size(); ++u) {
    const Unit& unit = table.units[u];
    if (unit.fixedOwner >= 0) continue;
    held[{unit.layer, placeOf[u]}] += unit.bytes;
    largest[unit.layer] = std::max(largest[unit.layer], unit.bytes);
  }
  double worst = 1;
  for (const auto& [where, bytes] : held) {
    worst = std::max(worst, static_cast<double>(bytes) / static_cast<double>(largest[where.first]));
  }
  return worst;
}

void addUnit(Load* load, const Unit& unit, uint64_t time) {
  load->time += time;
  (unit.fixedOwner >= 0 ? load->split : load->bytes) += unit.bytes;
  load->elements += unit.elements;
  load->blocks += unit.blocks;
  load->units += 1;
  load->tensors += unit.pieces.size();
}

void addUp(const UnitTable& table, const RankGrid& grid, Assignment* result) {
  const auto columns = static_cast<size_t>(grid.columns());
  result->ranks.assign(static_cast<size_t>(grid.ranks()), {});
  result->columns.assign(columns, {});
  std::vector<int32_t> columnOf;
  for (size_t u = 0; u < table.units.size(); ++u) {
    const auto rank = static_cast<size_t>(result->owner[u]);
    columnOf.push_back(grid.columnOf[rank]);
    addUnit(&result->ranks[rank], table.units[u], result->times[u]);
    addUnit(&result->columns[static_cast<size_t>(columnOf.back())], table.units[u], result->times[u]);
  }
  std::vector<uint64_t> ranksOf(columns, 0);
  for (const int column : grid.columnOf) ++ranksOf[static_cast<size_t>(column)];
  const std::vector<uint64_t> ones(result->ranks.size(), 1);
  result->timeRatio = busiestOverMean(result->ranks, ones, &Load::time);
  result->byteRatio = busiestOverMean(result->ranks, ones, &Load::bytes);
  result->columnTimeRatio = busiestOverMean(result->columns, ranksOf, &Load::time);
  result->columnByteRatio = busiestOverMean(result->columns, ranksOf, &Load::bytes);
  result->layerRatio = worstLayer(table, result->owner);
  result->columnLayerRatio = worstLayer(table, columnOf);
}

}  // namespace

RankGrid RankGrid::even(int ranks, int nodes) {
  RankGrid grid;
  for (int node = 0; node < nodes; ++node) {
    const int count = ranks / nodes + (node < ranks % nodes ? 1 : 0);
    for (int column = 0; column < count; ++column) {
      grid.nodeOf.push_back(node);
      grid.columnOf.push_back(column);
    }
  }
  return grid;
}

int RankGrid::columns() const { return columnOf.empty() ? 0 : 1 + *std::max_element(columnOf.begin(), columnOf.end()); }

uint64_t Assignment::digest(const ParamRegistry& params, const UnitTable& table) const {
  Digest digest;
  digest.add(ranks.size());
  for (const Piece& piece : table.pieces) {
    const auto unit = static_cast<size_t>(piece.unit);
    digest.add(params[piece.param].spec.name);
    for (const uint64_t word : {piece.offset, piece.elements, static_cast<uint64_t>(owner[unit]), times[unit]})
      digest.add(word);
  }
  return digest.value();
}

Assignment assignOwners(const UnitTable& table, const std::vector<uint64_t>& times, const RankGrid& grid,
                        const AssignOptions& options) {
  Assignment result;
  result.times = times;
  result.owner.assign(table.units.size(), 0);
  if (grid.ranks() < 1) throw std::invalid_argument("assignOwners needs ranks");
  int32_t next = 0;
  for (size_t u = 0; u < table.units.size(); ++u) {
    const int32_t fixed = table.units[u].fixedOwner;
    if (fixed >= grid.ranks()) throw std::invalid_argument("units were made for more ranks than there are");
    if (fixed >= 0) {
      result.owner[u] = fixed;
    } else if (options.strategy == AssignOptions::Strategy::kRoundRobin) {
      result.owner[u] = next;
      next = (next + 1) % grid.ranks();
    }
  }
  if (options.strategy == AssignOptions::Strategy::kBalanced) giveBalanced(table, times, grid, options, &result.owner);
  addUp(table, grid, &result);
  return result;
}

Assignment withTimes(const Assignment& assignment, const UnitTable& table, const std::vector<uint64_t>& times,
                     const RankGrid& grid) {
  Assignment result = assignment;
  result.times = times;
  addUp(table, grid, &result);
  return result;
}

}  // namespace vmuon
