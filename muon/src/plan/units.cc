// SPDX-License-Identifier: Apache-2.0
#include "plan/units.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <tuple>

namespace vmuon {
namespace {

constexpr uint64_t kCutElements = 64;  // split parameters are cut at multiples of it

class Builder {
 public:
  Builder(const ParamRegistry& params, const UnitOptions& options) : params_(params), options_(options) {}

  UnitTable build() {
    std::vector<int32_t> order;
    for (int32_t i = 0; i < params_.size(); ++i) {
      if (!params_[i].isAlias(i) && params_[i].elements > 0) order.push_back(i);
    }
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      const ParamSpec& left = params_[a].spec;
      const ParamSpec& right = params_[b].spec;
      return std::tie(left.layer, left.name) < std::tie(right.layer, right.name);
    });
    table_.piecesOf.assign(static_cast<size_t>(params_.size()), {0, 0});
    for (size_t i = 0; i < order.size();) {
      const int32_t layer = params_[order[i]].spec.layer;
      std::vector<int32_t> split;
      merged_ = -1;
      for (; i < order.size() && params_[order[i]].spec.layer == layer; ++i) {
        if (isSplit(order[i]))
          split.push_back(order[i]);
        else
          addWhole(order[i]);
      }
      addSplit(split);
    }
    for (int32_t i = 0; i < params_.size(); ++i) {
      if (params_[i].isAlias(i)) pieceRange(i) = pieceRange(params_[i].holder);
    }
    orderUnits();
    return std::move(table_);
  }

 private:
  std::pair<int32_t, int32_t>& pieceRange(int32_t param) { return table_.piecesOf[static_cast<size_t>(param)]; }

  bool isSmall(int32_t number) const { return params_[number].elements < options_.mergeElements; }
  bool isSplit(int32_t number) const {
    if (options_.split == Split::kEven) return true;
    return !params_[number].isTrainedMatrix() && !isSmall(number);
  }

  int32_t addUnit(int32_t layer, std::string name) {
    table_.units.emplace_back();
    table_.units.back().layer = layer;
    table_.units.back().name = std::move(name);
    return static_cast<int32_t>(table_.units.size()) - 1;
  }

  void addPiece(Piece piece) {
    const auto number = static_cast<int32_t>(table_.pieces.size());
    std::pair<int32_t, int32_t>& range = pieceRange(piece.param);
    if (range.second == 0) range.first = number;
    range.second = number + 1;
    Unit& unit = table_.units[static_cast<size_t>(piece.unit)];
    unit.pieces.push_back(number);
    unit.elements += piece.elements;
    unit.bytes += piece.elements * dtypeBytes(params_[piece.param].spec.dtype);
    unit.blocks += piece.blocks.size();
    table_.pieces.push_back(std::move(piece));
  }

  // One piece, or one per expert.
  void addWhole(int32_t number) {
    const Param& param = params_[number];
    const ParamSpec& spec = param.spec;
    if (param.isTrainedMatrix() && spec.kind == vmuonExperts) {
      addExperts(number);
      return;
    }
    Piece piece;
    piece.param = number;
    piece.elements = param.elements;
    if (param.isTrainedMatrix()) piece.blocks = blocksOf(spec);
    if (isSmall(number)) {
      if (merged_ < 0) merged_ = addUnit(spec.layer, spec.name);
      piece.unit = merged_;
    } else {
      piece.unit = addUnit(spec.layer, spec.name);
    }
    addPiece(std::move(piece));
  }

  void addExperts(int32_t number) {
    const Param& param = params_[number];
    std::vector<MatrixBlock> blocks = blocksOf(param.spec);
    const uint64_t elements = param.elements / param.spec.shape[0];
    for (size_t i = 0; i < blocks.size();) {
      Piece piece;
      piece.param = number;
      piece.offset = blocks[i].offset;
      piece.elements = elements;
      piece.expert = blocks[i].expert;
      for (; i < blocks.size() && blocks[i].expert == piece.expert; ++i) piece.blocks.push_back(blocks[i]);
      piece.unit = addUnit(param.spec.layer, param.spec.name);
      table_.units.back().expert = piece.expert;
      addPiece(std::move(piece));
    }
  }

  // Cuts a layer's split parameters, laid end to end, into one range per rank.
  void addSplit(const std::vector<int32_t>& numbers) {
    const auto cuts = [&](int32_t number) { return (params_[number].elements + kCutElements - 1) / kCutElements; };
    uint64_t total = 0;
    for (const int32_t number : numbers) total += cuts(number);
    if (total == 0) return;
    const auto ranks = static_cast<uint64_t>(options_.ranks);
    const uint64_t shares = std::min(total, ranks);
    size_t at = 0;          // which parameter
    uint64_t begin = 0;     // in it, in cuts
    uint64_t position = 0;  // overall
    for (uint64_t share = 0; share < shares; ++share) {
      const uint64_t end = cutPoint(share + 1, shares, total);
      int32_t unit = -1;
      while (position < end) {
        const int32_t number = numbers[at];
        const uint64_t count = std::min(end - position, cuts(number) - begin);
        if (unit < 0) {
          unit = addUnit(params_[number].spec.layer, params_[number].spec.name);
          table_.units.back().fixedOwner = static_cast<int32_t>((firstRank_ + share) % ranks);
        }
        Piece piece;
        piece.param = number;
        piece.unit = unit;
        piece.offset = begin * kCutElements;
        piece.elements = std::min(count * kCutElements, params_[number].elements - piece.offset);
        addPiece(std::move(piece));
        position += count;
        begin += count;
        if (begin == cuts(number)) {
          ++at;
          begin = 0;
        }
      }
    }
    firstRank_ = (firstRank_ + shares) % ranks;
  }

  // share * total / shares, without overflow.
  static uint64_t cutPoint(uint64_t share, uint64_t shares, uint64_t total) {
    return share * (total / shares) + share * (total % shares) / shares;
  }

  void orderUnits() {
    std::vector<int32_t> order(table_.units.size());
    std::vector<int32_t> firstParam(table_.units.size());
    for (size_t u = 0; u < order.size(); ++u) {
      order[u] = static_cast<int32_t>(u);
      const Unit& unit = table_.units[u];
      firstParam[u] = params_.size();
      for (const int32_t p : unit.pieces) {
        firstParam[u] = std::min(firstParam[u], table_.pieces[static_cast<size_t>(p)].param);
      }
    }
    const auto key = [&](int32_t u) {
      const Unit& unit = table_.units[static_cast<size_t>(u)];
      return std::tuple(unit.layer, firstParam[static_cast<size_t>(u)], unit.expert, u);
    };
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return key(a) < key(b); });
    std::vector<Unit> units;
    units.reserve(order.size());
    for (const int32_t old : order) {
      Unit& unit = table_.units[static_cast<size_t>(old)];
      for (const int32_t p : unit.pieces)
        table_.pieces[static_cast<size_t>(p)].unit = static_cast<int32_t>(units.size());
      units.push_back(std::move(unit));
    }
    table_.units = std::move(units);
  }

  const ParamRegistry& params_;
  const UnitOptions options_;
  UnitTable table_;
  int32_t merged_ = -1;  // the layer's shared unit
  uint64_t firstRank_ = 0;
};

}  // namespace

uint64_t UnitTable::blocks() const {
  uint64_t count = 0;
  for (const Unit& unit : units) count += unit.blocks;
  return count;
}

int32_t UnitTable::pieceAt(int32_t param, uint64_t offset) const {
  const auto [first, last] = piecesOf[static_cast<size_t>(param)];
  const auto begin = pieces.begin() + first;
  const auto end = pieces.begin() + last;
  auto after = std::upper_bound(begin, end, offset, [](uint64_t at, const Piece& piece) { return at < piece.offset; });
  if (after == begin) return -1;
  --after;
  return offset - after->offset < after->elements ? static_cast<int32_t>(after - pieces.begin()) : -1;
}

UnitTable makeUnits(const ParamRegistry& params, const UnitOptions& options) {
  if (options.ranks < 1) throw std::invalid_argument("makeUnits needs the number of ranks");
  return Builder(params, options).build();
}

std::vector<std::pair<uint64_t, uint64_t>> distinctShapes(const UnitTable& table) {
  std::set<std::pair<uint64_t, uint64_t>> shapes;
  for (const Piece& piece : table.pieces) {
    for (const MatrixBlock& block : piece.blocks) shapes.emplace(block.rows, block.cols);
  }
  return {shapes.begin(), shapes.end()};
}

}  // namespace vmuon
