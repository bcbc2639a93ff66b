// SPDX-License-Identifier: Apache-2.0
#include "plan/layout.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "plan/digest.h"

namespace vmuon {
namespace {

constexpr uint64_t kAlign = 64;

uint64_t aligned(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// Where a parameter comes in its layer: first those with one owner, by owner and unit; then those with several; last
// those that are split over all ranks, whose ranges continue from one to the next.
std::tuple<int, int32_t, std::string, std::string> placeOf(const ParamRegistry& params, const UnitTable& table,
                                                           const Assignment& assignment, int32_t number) {
  const std::string& name = params[number].spec.name;
  const auto [first, last] = table.piecesOf[static_cast<size_t>(number)];
  if (first == last) return {2, 0, "", name};  // without elements
  const Unit& unit = table.units[static_cast<size_t>(table.pieces[static_cast<size_t>(first)].unit)];
  if (unit.fixedOwner >= 0) return {2, 0, "", name};
  if (last - first > 1) return {1, 0, "", name};
  return {0, assignment.ownerOf(table, first), unit.name, name};
}

class LayerBuilder {
 public:
  LayerBuilder(const ParamRegistry& params, const UnitTable& table, const Assignment& assignment, uint64_t gradBytes)
      : params_(params), table_(table), assignment_(assignment), gradBytes_(gradBytes) {}

  LayerLayout build(int32_t layer, const std::vector<int32_t>& numbers) {
    out_ = {};
    out_.layer = layer;
    for (const int32_t number : numbers) add(number);
    out_.paramSegments = segmentsOf(out_, Space::kParam, [](int32_t owner) { return owner; });
    out_.gradSegments = segmentsOf(out_, Space::kGrad, [](int32_t owner) { return owner; });
    return std::move(out_);
  }

 private:
  void add(int32_t number) {
    const Param& param = params_[number];
    const uint64_t size = dtypeBytes(param.spec.dtype);
    const bool frozen = param.spec.frozen;
    const ParamSlot slot{number, out_.paramBytes, frozen ? kNoOffset : out_.gradBytes};
    out_.params.push_back(slot);
    const auto [first, last] = table_.piecesOf[static_cast<size_t>(number)];
    for (int32_t p = first; p < last; ++p) {
      const Piece& piece = table_.pieces[static_cast<size_t>(p)];
      PieceSlot at{
          p, assignment_.ownerOf(table_, p), slot.paramOffset + piece.offset * size, piece.elements * size, kNoOffset,
          0};
      if (!frozen) {
        at.gradOffset = slot.gradOffset + piece.offset * gradBytes_;
        at.gradBytes = piece.elements * gradBytes_;
      }
      out_.pieces.push_back(at);
    }
    out_.paramBytes += aligned(param.elements * size);
    if (!frozen) out_.gradBytes += aligned(param.elements * gradBytes_);
  }

  const ParamRegistry& params_;
  const UnitTable& table_;
  const Assignment& assignment_;
  const uint64_t gradBytes_;
  LayerLayout out_;
};

}  // namespace

int32_t Layouts::find(int32_t layer) const {
  const auto found = std::lower_bound(layers.begin(), layers.end(), layer,
                                      [](const LayerLayout& layout, int32_t wanted) { return layout.layer < wanted; });
  return found != layers.end() && found->layer == layer ? static_cast<int32_t>(found - layers.begin()) : -1;
}

const ParamSlot& Layouts::param(int32_t number) const {
  const auto index = static_cast<size_t>(number);
  return layers[static_cast<size_t>(indexOf[index])].params[static_cast<size_t>(slotOf[index])];
}

const PieceSlot& Layouts::piece(int32_t number) const {
  const auto [layer, slot] = pieceSlots[static_cast<size_t>(number)];
  return layers[static_cast<size_t>(layer)].pieces[static_cast<size_t>(slot)];
}

uint64_t Layouts::digest(const ParamRegistry& params, const UnitTable& table) const {
  Digest digest;
  for (const LayerLayout& layer : layers) {
    for (const uint64_t word : {static_cast<uint64_t>(layer.layer), layer.paramBytes, layer.gradBytes})
      digest.add(word);
    for (const PieceSlot& slot : layer.pieces) {
      digest.add(params[table.pieces[static_cast<size_t>(slot.piece)].param].spec.name);
      for (const uint64_t word :
           {static_cast<uint64_t>(slot.owner), slot.paramOffset, slot.paramBytes, slot.gradOffset}) {
        digest.add(word);
      }
    }
  }
  return digest.value();
}

Layouts makeLayouts(const ParamRegistry& params, const UnitTable& table, const Assignment& assignment,
                    int32_t gradType) {
  std::map<int32_t, std::vector<int32_t>> byLayer;
  for (int32_t i = 0; i < params.size(); ++i) {
    if (!params[i].isAlias(i)) byLayer[params[i].spec.layer].push_back(i);
  }
  Layouts layouts;
  layouts.indexOf.assign(static_cast<size_t>(params.size()), -1);
  layouts.slotOf.assign(static_cast<size_t>(params.size()), -1);
  layouts.pieceSlots.assign(table.pieces.size(), {-1, -1});
  LayerBuilder builder(params, table, assignment, dtypeBytes(gradType));
  for (auto& [layer, numbers] : byLayer) {
    std::sort(numbers.begin(), numbers.end(), [&](int32_t a, int32_t b) {
      return placeOf(params, table, assignment, a) < placeOf(params, table, assignment, b);
    });
    const auto index = static_cast<int32_t>(layouts.layers.size());
    layouts.layers.push_back(builder.build(layer, numbers));
    const LayerLayout& built = layouts.layers.back();
    for (size_t i = 0; i < built.params.size(); ++i) {
      layouts.indexOf[static_cast<size_t>(built.params[i].param)] = index;
      layouts.slotOf[static_cast<size_t>(built.params[i].param)] = static_cast<int32_t>(i);
    }
    for (size_t i = 0; i < built.pieces.size(); ++i) {
      layouts.pieceSlots[static_cast<size_t>(built.pieces[i].piece)] = {index, static_cast<int32_t>(i)};
    }
  }
  for (int32_t i = 0; i < params.size(); ++i) {
    if (!params[i].isAlias(i)) continue;
    const auto holder = static_cast<size_t>(params[i].holder);
    layouts.indexOf[static_cast<size_t>(i)] = layouts.indexOf[holder];
    layouts.slotOf[static_cast<size_t>(i)] = layouts.slotOf[holder];
  }
  return layouts;
}

std::vector<vcollSegment_t> segmentsOf(const LayerLayout& layout, Space space,
                                       const std::function<int32_t(int32_t)>& ownerOf) {
  std::vector<vcollSegment_t> segments;
  for (const PieceSlot& slot : layout.pieces) {
    const uint64_t offset = space == Space::kParam ? slot.paramOffset : slot.gradOffset;
    const uint64_t bytes = space == Space::kParam ? slot.paramBytes : slot.gradBytes;
    if (bytes == 0) continue;
    const int32_t owner = ownerOf(slot.owner);
    // Less than kAlign apart: only padding lies between.
    if (!segments.empty() && segments.back().owner == owner) {
      segments.back().bytes = offset + bytes - segments.back().offset;
    } else {
      segments.push_back({owner, 0, offset, bytes});
    }
  }
  return segments;
}

}  // namespace vmuon
