// SPDX-License-Identifier: Apache-2.0
// Which rank owns which unit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/costs.h"
#include "plan/units.h"

namespace vmuon {

// Where ranks are. A column is the ranks of the same place on all nodes; nodes need not have equally many ranks.
struct RankGrid {
  std::vector<int> nodeOf;
  std::vector<int> columnOf;  // place in the node

  static RankGrid even(int ranks,
                       int nodes);  // consecutive ranks share a node; the first nodes take what does not divide
  int ranks() const { return static_cast<int>(nodeOf.size()); }
  int columns() const;
};

struct AssignOptions {
  enum class Strategy { kBalanced, kRoundRobin };
  Strategy strategy = Strategy::kBalanced;  // round robin: units in their order, for comparison
  double byteCap = 1.1;      // heaviest rank's bytes over the mean, unless layer spreading leaves no choice; 0: no cap
  bool spreadLayers = true;  // units of one layer on different ranks
  bool balanceColumns = false;  // columns first, then ranks inside each: for copies in every node (HSDP)
};

struct Load {
  uint64_t time = 0;      // nanoseconds per step
  uint64_t bytes = 0;     // of compute copies, without split parameters, of which every rank has an equal share
  uint64_t split = 0;     // bytes of split parameters
  uint64_t elements = 0;  // with split parameters
  uint64_t blocks = 0;    // orthogonalisations
  uint64_t units = 0;
  uint64_t tensors = 0;  // pieces
};

struct Assignment {
  std::vector<int32_t> owner;  // by unit
  std::vector<Load> ranks;
  std::vector<Load> columns;  // sums
  // Busiest over mean. Columns are compared per rank that they have. 1 when there is nothing to balance.
  double timeRatio = 1;
  double byteRatio = 1;
  double columnTimeRatio = 1;
  double columnByteRatio = 1;
  // Over layers, the largest of: bytes of the layer's heaviest rank over those of its largest unit. 1: perfectly
  // spread.
  double layerRatio = 1;
  double columnLayerRatio = 1;  // the same with columns in the place of ranks

  int32_t ownerOf(const UnitTable& table, int32_t piece) const {
    return owner[static_cast<size_t>(table.pieces[static_cast<size_t>(piece)].unit)];
  }
  // Of units, owners and times, by names: equal whatever the order in which parameters were added.
  uint64_t digest(const ParamRegistry& params, const UnitTable& table) const;

  std::vector<uint64_t> times;  // by unit, as given
};

// Greedy, longest time first (ties: more elements, then name, then expert). A unit goes to a rank that has fewest units
// of its layer; among these, to one that it does not lift above the cap on bytes; among these, to the one with least
// time, then fewest bytes, then the lowest number. If the unit fits nowhere under the cap, the rank with fewest bytes
// takes it. Units without time come last and are balanced among themselves by their own bytes, then by all. With
// balanceColumns the same choice is first made among columns, by load per rank, then among the ranks of each. times:
// unitTimes(). Units with a fixed owner keep it. Throws std::invalid_argument if that is no rank of the grid, which
// then has another size than the units were made for.
Assignment assignOwners(const UnitTable& table, const std::vector<uint64_t>& times, const RankGrid& grid,
                        const AssignOptions& options);

// Ratios and loads of the same owners with other times, e.g. to see what balancing by element count would cost.
Assignment withTimes(const Assignment& assignment, const UnitTable& table, const std::vector<uint64_t>& times,
                     const RankGrid& grid);

}  // namespace vmuon
