// SPDX-License-Identifier: Apache-2.0
// What an owner owns. A piece is a range of one parameter with one owner; a unit is the pieces of one layer that share
// their owner.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plan/params.h"

namespace vmuon {

struct Piece {
  int32_t param = 0;  // its number; never an alias
  int32_t unit = 0;
  uint64_t offset = 0;    // elements from the parameter's first
  uint64_t elements = 0;  // more than 0
  int64_t expert = -1;
  // What is orthogonalised, in order; offsets count from the parameter's first element. Empty: element-wise or frozen.
  std::vector<MatrixBlock> blocks;
};

struct Unit {
  std::string name;  // the first of its parameters by name
  int32_t layer = 0;
  std::vector<int32_t> pieces;  // in the order of names, then offsets
  uint64_t elements = 0;
  uint64_t bytes = 0;       // of the compute copies
  uint64_t blocks = 0;      // orthogonalisations
  int64_t expert = -1;      // if the unit is one expert
  int32_t fixedOwner = -1;  // a rank: the unit is that rank's share of parameters that are split over all ranks
};

enum class Split {
  kOwners,  // lines C and D: whole matrices have owners, only large element-wise parameters are split
  kEven     // lines A and B: every parameter is split over all ranks, without regard to matrices
};

struct UnitOptions {
  int32_t ranks = 0;                   // of the whole cluster; has no default
  uint64_t mergeElements = 5'000'000;  // matrices of fewer elements share their layer's unit; see muon.md
  Split split = Split::kOwners;
};

struct UnitTable {
  std::vector<Piece> pieces;  // grouped by parameter (in the order of layers, then names), then by offset
  std::vector<Unit> units;    // by layer, then in the order of first parameters by number, then by expert
  // Pieces of a parameter: [first, second). Aliases have their holder's; parameters without elements have none.
  std::vector<std::pair<int32_t, int32_t>> piecesOf;

  uint64_t blocks() const;  // orthogonalisations of one step, in the whole cluster
  // The piece that has element `offset` of the parameter; -1 if there is none.
  int32_t pieceAt(int32_t param, uint64_t offset) const;
};

// Rules. With Split::kOwners
//   - a matrix or fused parameter of mergeElements or more is a unit; every expert is one, however small;
//   - smaller ones, and element-wise and frozen parameters of fewer than mergeElements, share one unit per layer;
//   - element-wise and frozen parameters of mergeElements or more are split into one piece per rank (fixedOwner).
// Split parameters are cut at multiples of 64 elements, as evenly as that allows; which rank gets the first piece moves
// on from parameter to parameter, so that short ones don't all begin at rank 0. The result does not depend on the order
// in which parameters were added, but for their numbers and the order of units. Throws std::invalid_argument without
// ranks.
UnitTable makeUnits(const ParamRegistry& params, const UnitOptions& options);

// Distinct shapes that are orthogonalised, as {rows, cols}, sorted.
std::vector<std::pair<uint64_t, uint64_t>> distinctShapes(const UnitTable& table);

// The table of parameters, for people. table may be null (before opening), owners too (one rank per unit).
std::string describeParams(const ParamRegistry& params, const UnitTable* table, const std::vector<int32_t>* owners);

}  // namespace vmuon
