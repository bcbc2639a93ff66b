// SPDX-License-Identifier: Apache-2.0
// Where parameters and gradients of a layer are in its buffers, and the segment tables that follow. A parameter is one
// array, whoever owns its pieces.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "plan/assignment.h"
#include "plan/units.h"

namespace vmuon {

inline constexpr uint64_t kNoOffset = UINT64_MAX;

struct PieceSlot {
  int32_t piece = 0;
  int32_t owner = 0;
  uint64_t paramOffset = 0;  // bytes from the start of the layer's buffer
  uint64_t paramBytes = 0;
  uint64_t gradOffset = 0;  // kNoOffset: frozen
  uint64_t gradBytes = 0;   // 0: frozen
};

struct ParamSlot {
  int32_t param = 0;
  uint64_t paramOffset = 0;  // a multiple of 64
  uint64_t gradOffset = 0;   // a multiple of 64; kNoOffset: frozen
};

struct LayerLayout {
  int32_t layer = 0;
  std::vector<ParamSlot> params;  // in the order of memory; no aliases
  std::vector<PieceSlot> pieces;  // in the order of memory
  uint64_t paramBytes = 0;        // multiples of 64; 0: nothing to move
  uint64_t gradBytes = 0;
  std::vector<vcollSegment_t> paramSegments;  // owners are ranks; neighbours of one owner are one segment
  std::vector<vcollSegment_t> gradSegments;   // offsets and bytes are multiples of the gradient type's size
};

struct Layouts {
  std::vector<LayerLayout> layers;                      // by layer number; only layers with parameters
  std::vector<int32_t> indexOf;                         // by parameter (aliases: their holder's): index into layers
  std::vector<int32_t> slotOf;                          // by parameter: index into its layer's params
  std::vector<std::pair<int32_t, int32_t>> pieceSlots;  // by piece: index into layers, index into its layer's pieces

  int32_t find(int32_t layer) const;  // index into layers; -1: it has no parameters
  const ParamSlot& param(int32_t number) const;
  const PieceSlot& piece(int32_t number) const;
  // Of all offsets by name, and owners.
  uint64_t digest(const ParamRegistry& params, const UnitTable& table) const;
};

// Parameters of one owner lie beside each other where their layer allows it; those with several owners come last.
// Between parameters there may be up to 63 unused bytes, which move with their neighbours.
Layouts makeLayouts(const ParamRegistry& params, const UnitTable& table, const Assignment& assignment,
                    int32_t gradType);

enum class Space { kParam, kGrad };

// The segment table with other owners, e.g. leaders inside a node in the place of owners.
std::vector<vcollSegment_t> segmentsOf(const LayerLayout& layout, Space space,
                                       const std::function<int32_t(int32_t)>& ownerOf);

}  // namespace vmuon
