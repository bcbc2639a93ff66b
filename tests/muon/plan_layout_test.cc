// SPDX-License-Identifier: Apache-2.0
#include "plan/layout.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>

#include "plan_support.h"

namespace vmuon {
namespace {

using namespace test;

// What must hold for any layout of any parameters.
void requireSound(const ParamRegistry& params, const UnitTable& table, const Assignment& owners, const Layouts& layouts,
                  uint64_t gradSize) {
  size_t pieces = 0;
  for (const LayerLayout& layer : layouts.layers) {
    REQUIRE(layer.paramBytes % 64 == 0);
    REQUIRE(layer.gradBytes % 64 == 0);
    std::vector<std::pair<uint64_t, uint64_t>> used;
    for (const ParamSlot& slot : layer.params) {
      const Param& param = params[slot.param];
      REQUIRE(&layouts.param(slot.param) == &slot);
      REQUIRE(param.spec.layer == layer.layer);
      REQUIRE(slot.paramOffset % 64 == 0);
      REQUIRE(slot.paramOffset + param.elements * dtypeBytes(param.spec.dtype) <= layer.paramBytes);
      REQUIRE((slot.gradOffset == kNoOffset) == param.spec.frozen);
      if (!param.spec.frozen) {
        REQUIRE(slot.gradOffset % 64 == 0);
        REQUIRE(slot.gradOffset + param.elements * gradSize <= layer.gradBytes);
      }
      used.emplace_back(slot.paramOffset, slot.paramOffset + param.elements * dtypeBytes(param.spec.dtype));
    }
    for (size_t i = 1; i < used.size(); ++i) REQUIRE(used[i - 1].second <= used[i].first);
    for (const PieceSlot& slot : layer.pieces) {
      const Piece& piece = table.pieces[static_cast<size_t>(slot.piece)];
      const ParamSlot& param = layouts.param(piece.param);
      const uint64_t size = dtypeBytes(params[piece.param].spec.dtype);
      REQUIRE(&layouts.piece(slot.piece) == &slot);
      REQUIRE(slot.owner == owners.ownerOf(table, slot.piece));
      REQUIRE(slot.paramOffset == param.paramOffset + piece.offset * size);
      REQUIRE(slot.paramBytes == piece.elements * size);
      if (param.gradOffset != kNoOffset) {
        REQUIRE(slot.gradOffset == param.gradOffset + piece.offset * gradSize);
        REQUIRE(slot.gradBytes == piece.elements * gradSize);
      }
    }
    pieces += layer.pieces.size();
    // Segments have every byte of every piece, under its owner, once.
    for (const Space space : {Space::kParam, Space::kGrad}) {
      const std::vector<vcollSegment_t>& segments = space == Space::kParam ? layer.paramSegments : layer.gradSegments;
      uint64_t end = 0;
      for (const vcollSegment_t& segment : segments) {
        REQUIRE(segment.offset >= end);
        REQUIRE(segment.bytes > 0);
        REQUIRE(segment.reserved == 0);
        if (space == Space::kGrad) REQUIRE((segment.offset % gradSize == 0 && segment.bytes % gradSize == 0));
        end = segment.offset + segment.bytes;
      }
      REQUIRE(end <= (space == Space::kParam ? layer.paramBytes : layer.gradBytes));
      for (const PieceSlot& slot : layer.pieces) {
        const uint64_t offset = space == Space::kParam ? slot.paramOffset : slot.gradOffset;
        const uint64_t bytes = space == Space::kParam ? slot.paramBytes : slot.gradBytes;
        if (bytes == 0) continue;
        const auto within = std::count_if(segments.begin(), segments.end(), [&](const vcollSegment_t& s) {
          return s.owner == slot.owner && s.offset <= offset && offset + bytes <= s.offset + s.bytes;
        });
        REQUIRE(within == 1);
      }
    }
  }
  REQUIRE(pieces == table.pieces.size());
}

std::vector<ParamSpec> randomSpecs(unsigned seed) {
  std::mt19937 random(seed);
  const auto upTo = [&](unsigned n) { return 1 + random() % n; };
  std::vector<ParamSpec> specs;
  for (unsigned i = 0; i < 30; ++i) {
    const std::string name = fmt::format("p{}", i);
    const auto layer = static_cast<int32_t>(3 * (random() % 4));
    ParamSpec one;
    switch (random() % 5) {
      case 0:
        one = matrix(name, upTo(40), upTo(40), layer);
        break;
      case 1:
        one = spec(name, vmuonExperts, {upTo(9), upTo(7), upTo(7)}, layer);
        break;
      case 2:
        one = vector(name, random() % 900, layer);
        break;
      case 3:
        one = frozen(matrix(name, upTo(40), upTo(40), layer));
        break;
      default:
        one = spec(name, vmuonFusedRows, {30, upTo(20)}, layer);
        one.splits = {10, 5, 15};
    }
    one.dtype = random() % 3 == 0 ? vcollFloat32 : vcollBfloat16;
    specs.push_back(one);
  }
  ParamSpec tied = spec("tied", vmuonMatrix, {});
  tied.tiedTo = "p3";
  specs.push_back(tied);
  return specs;
}

}  // namespace

TEST_CASE("plan layout: random parameters on random grids", "[plan]") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    const ParamRegistry params = registryOf(randomSpecs(seed));
    const int ranks = static_cast<int>(1 + seed % 9);
    for (const Split split : {Split::kOwners, Split::kEven}) {
      const UnitTable table = unitsOf(params, ranks, 300, split);
      requireWhole(params, table);
      const RankGrid grid = RankGrid::even(ranks, ranks > 3 ? 2 : 1);
      AssignOptions options;
      options.balanceColumns = seed % 2 == 0;
      const Assignment owners = assignOwners(table, unitTimes(table, FlopCosts(1e6)), grid, options);
      for (const int32_t gradType : {int32_t{vcollFloat32}, int32_t{vcollBfloat16}}) {
        const Layouts layouts = makeLayouts(params, table, owners, gradType);
        requireSound(params, table, owners, layouts, dtypeBytes(gradType));
        const auto tied = static_cast<size_t>(params.find("tied"));
        const auto holder = static_cast<size_t>(params.find("p3"));
        REQUIRE(layouts.slotOf[tied] == layouts.slotOf[holder]);
        REQUIRE(layouts.find(1) == -1);
        for (size_t i = 0; i < layouts.layers.size(); ++i)
          REQUIRE(layouts.find(layouts.layers[i].layer) == static_cast<int32_t>(i));
        if (split == Split::kEven) {
          // One range per rank, whatever the number of parameters.
          for (const LayerLayout& layer : layouts.layers)
            REQUIRE(layer.paramSegments.size() <= static_cast<size_t>(ranks));
        }
      }
    }
  }
}

TEST_CASE("plan layout: one segment per owner where only whole parameters are", "[plan]") {
  const Planned plan("qwen2.5-1.5b", 8);
  const Assignment owners = plan.assign(ToyCosts());
  const Layouts layouts = makeLayouts(plan.params, plan.table, owners, vcollFloat32);
  for (const LayerLayout& layer : layouts.layers) {
    std::set<int32_t> ranks;
    for (const PieceSlot& slot : layer.pieces) ranks.insert(slot.owner);
    REQUIRE(layer.paramSegments.size() == ranks.size());
    REQUIRE(layer.gradSegments.size() == ranks.size());
  }
  const int32_t first = layouts.find(1);
  REQUIRE(layouts.layers[static_cast<size_t>(first)].paramSegments.size() == 4);
  REQUIRE(layouts.layers[0].paramSegments.size() == 8);  // the embedding
}

TEST_CASE("plan layout: up to 180 segments for a layer of experts", "[plan]") {
  const Planned plan("qwen1.5-moe", 256);
  const Layouts layouts = makeLayouts(plan.params, plan.table, plan.assign(ToyCosts()), vcollBfloat16);
  REQUIRE(layouts.layers[1].paramSegments.size() == 180 + 4);
}

TEST_CASE("plan layout: segments with leaders in the place of owners", "[plan]") {
  const Planned plan("qwen2.5-1.5b", 8, 2);
  AssignOptions options;
  options.balanceColumns = true;
  const Assignment owners = plan.assign(ToyCosts(), options);
  const Layouts layouts = makeLayouts(plan.params, plan.table, owners, vcollFloat32);
  for (const LayerLayout& layer : layouts.layers) {
    const auto segments =
        segmentsOf(layer, Space::kParam, [&](int32_t rank) { return plan.grid.columnOf[static_cast<size_t>(rank)]; });
    uint64_t bytes = 0;
    uint64_t expected = 0;
    for (const vcollSegment_t& segment : segments) {
      REQUIRE(segment.owner < 4);
      bytes += segment.bytes;
    }
    for (const vcollSegment_t& segment : layer.paramSegments) expected += segment.bytes;
    REQUIRE(bytes >= expected);
    REQUIRE(bytes < expected + 64 * layer.params.size());
    for (size_t i = 1; i < segments.size(); ++i) REQUIRE(segments[i].owner != segments[i - 1].owner);
  }
}

TEST_CASE("plan layout: the digest follows names, not numbers", "[plan]") {
  std::vector<ParamSpec> specs = randomSpecs(5);
  specs.pop_back();
  const auto digest = [](const std::vector<ParamSpec>& list, int32_t gradType) {
    const ParamRegistry params = registryOf(list);
    const UnitTable table = unitsOf(params, 4, 300);
    const Assignment owners = assignOwners(table, unitTimes(table, FlopCosts(1e6)), RankGrid::even(4, 1), {});
    return makeLayouts(params, table, owners, gradType).digest(params, table);
  };
  const uint64_t expected = digest(specs, vcollFloat32);
  for (unsigned seed = 0; seed < 5; ++seed) REQUIRE(digest(shuffled(specs, seed), vcollFloat32) == expected);
  REQUIRE(digest(specs, vcollBfloat16) != expected);
  specs[0].dtype = specs[0].dtype == vcollFloat32 ? vcollBfloat16 : vcollFloat32;
  REQUIRE(digest(specs, vcollFloat32) != expected);
}

}  // namespace vmuon
