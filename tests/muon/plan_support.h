// SPDX-License-Identifier: Apache-2.0
// Short ways to say what parameters there are.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "plan/assignment.h"
#include "plan/models.h"
#include "plan/params.h"
#include "plan/units.h"

namespace vmuon::test {

inline ParamSpec spec(std::string name, int32_t kind, std::vector<uint64_t> shape, int32_t layer = 0) {
  ParamSpec made;
  made.name = std::move(name);
  made.kind = kind;
  made.shape = std::move(shape);
  made.layer = layer;
  return made;
}

inline ParamSpec matrix(std::string name, uint64_t rows, uint64_t cols, int32_t layer = 0) {
  return spec(std::move(name), vmuonMatrix, {rows, cols}, layer);
}

inline ParamSpec vector(std::string name, uint64_t size, int32_t layer = 0) {
  return spec(std::move(name), vmuonElementwise, {size}, layer);
}

inline ParamSpec frozen(ParamSpec of) {
  of.frozen = true;
  return of;
}

inline ParamRegistry registryOf(const std::vector<ParamSpec>& specs) {
  ParamRegistry registry;
  registry.addGroup();
  for (const ParamSpec& one : specs) REQUIRE(registry.add(one) == "");
  return registry;
}

inline std::vector<ParamSpec> shuffled(std::vector<ParamSpec> specs, unsigned seed) {
  std::mt19937 random(seed);
  std::shuffle(specs.begin(), specs.end(), random);
  return specs;
}

inline UnitTable unitsOf(const ParamRegistry& params, int ranks, uint64_t mergeElements = 5'000'000,
                         Split split = Split::kOwners) {
  UnitOptions options;
  options.ranks = ranks;
  options.mergeElements = mergeElements;
  options.split = split;
  return makeUnits(params, options);
}

// A model planned on a grid.
struct Planned {
  Planned(const std::string& model, int ranks, int nodes = 1) : grid(RankGrid::even(ranks, nodes)) {
    REQUIRE(registerModel(makeModel(model), &params) == "");
    table = unitsOf(params, ranks);
  }
  Assignment assign(const CostTable& costs, const AssignOptions& options = {}) const {
    return assignOwners(table, unitTimes(table, costs), grid, options);
  }

  ParamRegistry params;
  UnitTable table;
  RankGrid grid;
};

// Every element of every parameter is in exactly one piece, every matrix in one piece, every piece in its unit.
inline void requireWhole(const ParamRegistry& params, const UnitTable& table) {
  for (int32_t i = 0; i < params.size(); ++i) {
    if (params[i].isAlias(i)) continue;
    const auto [first, last] = table.piecesOf[static_cast<size_t>(i)];
    uint64_t at = 0;
    uint64_t blocks = 0;
    for (int32_t p = first; p < last; ++p) {
      const Piece& piece = table.pieces[static_cast<size_t>(p)];
      REQUIRE(piece.param == i);
      REQUIRE(piece.offset == at);
      REQUIRE(piece.elements > 0);
      REQUIRE(table.pieceAt(i, at) == p);
      REQUIRE(table.pieceAt(i, at + piece.elements - 1) == p);
      uint64_t block = piece.offset;
      for (const MatrixBlock& one : piece.blocks) {
        REQUIRE(one.offset == block);
        block += one.elements();
        ++blocks;
      }
      if (!piece.blocks.empty()) REQUIRE(block == piece.offset + piece.elements);
      const std::vector<int32_t>& members = table.units[static_cast<size_t>(piece.unit)].pieces;
      REQUIRE(std::count(members.begin(), members.end(), p) == 1);
      at += piece.elements;
    }
    INFO(params[i].spec.name);
    REQUIRE(at == params[i].elements);
    REQUIRE(table.pieceAt(i, at) == -1);
    if (blocks > 0) REQUIRE(blocks == blocksOf(params[i].spec).size());
  }
}

}  // namespace vmuon::test
