// SPDX-License-Identifier: Apache-2.0
// What is trained and who owns it: fixed when the optimizer opens.
#pragma once

#include <map>
#include <vector>

#include "plan/assignment.h"
#include "plan/layout.h"
#include "plan/params.h"
#include "plan/units.h"

namespace vmuon {

struct Model {
  ParamRegistry params;
  std::vector<vmuonGroup_t> groups;
  UnitTable table;
  Assignment assignment;
  Layouts layouts;

  const Param& paramOf(const Piece& piece) const { return params[piece.param]; }
  const LayerLayout& layer(int index) const { return layouts.layers[static_cast<size_t>(index)]; }
  int layers() const { return static_cast<int>(layouts.layers.size()); }
  const Piece& piece(int number) const { return table.pieces[static_cast<size_t>(number)]; }
  int pieces() const { return static_cast<int>(table.pieces.size()); }
  bool frozen(const Piece& piece) const { return paramOf(piece).spec.frozen; }
  const vmuonGroup_t& groupOf(const Piece& piece) const {
    return groups[static_cast<size_t>(paramOf(piece).spec.group)];
  }
};

// The parts of a segment table that one collective moves: all of it, or with perOwner those of one owner.
inline std::vector<std::vector<vcollSegment_t>> splitSegments(const std::vector<vcollSegment_t>& segments,
                                                              bool perOwner) {
  std::map<int32_t, std::vector<vcollSegment_t>> parts;
  for (const vcollSegment_t& segment : segments) parts[perOwner ? segment.owner : 0].push_back(segment);
  std::vector<std::vector<vcollSegment_t>> list;
  for (auto& [owner, part] : parts) list.push_back(std::move(part));
  return list;
}

}  // namespace vmuon
