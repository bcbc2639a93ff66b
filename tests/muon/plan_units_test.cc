// SPDX-License-Identifier: Apache-2.0
// Pieces and units. Numbers in brackets are rows of the list of public bug reports in docs/muon.md.
#include "plan/units.h"

#include <catch2/catch.hpp>
#include <map>
#include <stdexcept>

#include "plan_support.h"

namespace vmuon {
namespace {

using namespace test;

const Unit& unitOf(const ParamRegistry& params, const UnitTable& table, const std::string& name, uint64_t offset = 0) {
  const int32_t piece = table.pieceAt(params.find(name), offset);
  REQUIRE(piece >= 0);
  return table.units[static_cast<size_t>(table.pieces[static_cast<size_t>(piece)].unit)];
}

bool sameUnit(const ParamRegistry& params, const UnitTable& table, const std::string& a, const std::string& b) {
  return &unitOf(params, table, a) == &unitOf(params, table, b);
}

}  // namespace

TEST_CASE("plan units: 4,999,999 elements merge, 5,000,000 do not", "[plan]") {
  const ParamRegistry params =
      registryOf({matrix("below", 1, 4'999'999), matrix("at", 2000, 2500), vector("norm", 8), vector("other", 8, 1),
                  vector("large", 5'000'000), vector("almost", 4'999'999)});
  const UnitTable table = unitsOf(params, 4);
  requireWhole(params, table);
  REQUIRE(sameUnit(params, table, "below", "norm"));
  REQUIRE(sameUnit(params, table, "below", "almost"));
  REQUIRE_FALSE(sameUnit(params, table, "below", "at"));
  REQUIRE_FALSE(sameUnit(params, table, "norm", "other"));  // another layer
  REQUIRE(unitOf(params, table, "at").elements == 5'000'000);
  REQUIRE(unitOf(params, table, "at").fixedOwner == -1);
  REQUIRE(unitOf(params, table, "below").elements == 2 * 4'999'999 + 8);
  REQUIRE(unitOf(params, table, "below").blocks == 1);
  REQUIRE(unitOf(params, table, "other").blocks == 0);
  REQUIRE(unitOf(params, table, "large").fixedOwner >= 0);
  REQUIRE(table.units.size() == 3 + 4);
  REQUIRE(table.blocks() == 2);
}

TEST_CASE("plan units: experts are never merged, and whole [50, 52]", "[plan]") {
  ParamSpec fused = spec("gate_up", vmuonExperts, {5, 8, 6});
  fused.splits = {4, 4};
  const ParamRegistry params = registryOf({fused, spec("down", vmuonExperts, {5, 6, 8}), vector("norm", 8),
                                           frozen(spec("still", vmuonExperts, {2, 6, 8}))});
  const UnitTable table = unitsOf(params, 3);
  requireWhole(params, table);
  REQUIRE(table.units.size() == 11);
  REQUIRE(table.blocks() == 15);
  REQUIRE(sameUnit(params, table, "norm", "still"));
  for (uint64_t e = 0; e < 5; ++e) {
    const Unit& unit = unitOf(params, table, "gate_up", e * 48 + 47);
    REQUIRE(unit.expert == static_cast<int64_t>(e));
    REQUIRE(unit.elements == 48);
    REQUIRE(unit.bytes == 96);
    REQUIRE(unit.blocks == 2);
    REQUIRE(&unit != &unitOf(params, table, "down", e * 48));
  }
}

TEST_CASE("plan units: what is not for Muon has no orthogonalisation [45, 37]", "[plan]") {
  std::vector<ParamSpec> specs{spec("mtp.embed", vmuonElementwise, {200, 100}),
                               spec("router", vmuonElementwise, {4, 100}), frozen(matrix("still", 200, 100)),
                               matrix("w", 100, 100)};
  const ParamRegistry params = registryOf(specs);
  for (const uint64_t merge : {uint64_t{0}, uint64_t{1000}, uint64_t{1} << 40}) {
    const UnitTable table = unitsOf(params, 4, merge);
    requireWhole(params, table);
    REQUIRE(table.blocks() == 1);
    REQUIRE(distinctShapes(table) == std::vector<std::pair<uint64_t, uint64_t>>{{100, 100}});
    for (const Piece& piece : table.pieces) REQUIRE(piece.blocks.empty() == (params[piece.param].spec.name != "w"));
  }
}

TEST_CASE("plan units: a matrix has one owner whatever its shape; shares are even and may be empty [8, 28]", "[plan]") {
  const std::vector<std::pair<uint64_t, uint64_t>> shapes{{1, 2},  {3, 2},     {5, 4}, {2, 4},
                                                          {15, 4}, {18, 2304}, {1, 1}, {7, 1000}};
  for (const int ranks : {1, 2, 3, 8, 64}) {
    for (const auto& [rows, cols] : shapes) {
      INFO(fmt::format("{}x{} over {}", rows, cols, ranks));
      const ParamRegistry params = registryOf({matrix("w", rows, cols), matrix("z", cols, rows), vector("norm", rows)});
      for (const uint64_t merge : {uint64_t{0}, uint64_t{1} << 40}) {
        const UnitTable table = unitsOf(params, ranks, merge);
        requireWhole(params, table);
        REQUIRE(table.piecesOf[0].second - table.piecesOf[0].first == 1);
        REQUIRE(table.blocks() == 2);
      }
      const UnitTable even = unitsOf(params, ranks, 5'000'000, Split::kEven);
      requireWhole(params, even);
      REQUIRE(even.blocks() == 0);
      std::vector<uint64_t> elements(static_cast<size_t>(ranks), 0);
      for (const Unit& unit : even.units) elements[static_cast<size_t>(unit.fixedOwner)] += unit.elements;
      // Cuts are at multiples of 64 and each parameter's last part may be shorter.
      const auto [least, most] = std::minmax_element(elements.begin(), elements.end());
      REQUIRE(*most - *least <= 3 * 64);
    }
  }
}

TEST_CASE("plan units: split parameters are one range per rank", "[plan]") {
  const ParamRegistry params =
      registryOf({spec("embed", vmuonElementwise, {1009, 640}), spec("a", vmuonElementwise, {7, 640}),
                  vector("late", 64 * 3, 1), vector("later", 100, 1), matrix("w", 640, 640)});
  const UnitTable table = unitsOf(params, 8, 150);
  requireWhole(params, table);
  std::map<int32_t, std::vector<const Unit*>> units;
  for (const Unit& unit : table.units) {
    if (unit.fixedOwner >= 0) units[unit.layer].push_back(&unit);
  }
  REQUIRE(units[0].size() == 8);
  std::vector<int> seen(8, 0);
  for (const Unit* unit : units[0]) {
    ++seen[static_cast<size_t>(unit->fixedOwner)];
    REQUIRE(unit->elements >= 1016 * 640 / 8 - 64);
    REQUIRE(unit->elements <= 1016 * 640 / 8 + 64);
    for (const int32_t p : unit->pieces) REQUIRE(table.pieces[static_cast<size_t>(p)].offset % 64 == 0);
  }
  REQUIRE(seen == std::vector<int>(8, 1));
  REQUIRE(units[1].size() == 3);  // three ranks get 64 elements each, the others nothing
  REQUIRE(unitOf(params, table, "later").fixedOwner == -1);

  // Even shares: short parameters of different layers start at different ranks.
  std::vector<ParamSpec> norms;
  for (int32_t layer = 0; layer < 16; ++layer) norms.push_back(vector(fmt::format("norm{}", layer), 128, layer));
  const ParamRegistry many = registryOf(norms);
  std::vector<int> load(8, 0);
  for (const Unit& unit : unitsOf(many, 8, 0, Split::kEven).units) ++load[static_cast<size_t>(unit.fixedOwner)];
  REQUIRE(load == std::vector<int>(8, 4));
}

TEST_CASE("plan units: one rank alone [43]", "[plan]") {
  const ParamRegistry params =
      registryOf({spec("experts", vmuonExperts, {1, 8, 6}), vector("large", 1000), matrix("w", 30, 40)});
  for (const Split split : {Split::kOwners, Split::kEven}) {
    const UnitTable table = unitsOf(params, 1, 500, split);
    requireWhole(params, table);
    for (const Unit& unit : table.units) REQUIRE(unit.fixedOwner <= 0);
  }
}

TEST_CASE("plan units: the number of ranks has no default [18]", "[plan]") {
  const ParamRegistry params = registryOf({matrix("w", 4, 4)});
  REQUIRE_THROWS_AS(makeUnits(params, {}), std::invalid_argument);
}

TEST_CASE("plan units: aliases have their holder's pieces", "[plan]") {
  std::vector<ParamSpec> specs{spec("embed", vmuonElementwise, {100, 8}), matrix("w", 8, 8, 1)};
  ParamSpec head = spec("head", vmuonMatrix, {}, 2);
  head.tiedTo = "embed";
  specs.push_back(head);
  const ParamRegistry params = registryOf(specs);
  const UnitTable table = unitsOf(params, 4, 100);
  requireWhole(params, table);
  REQUIRE(table.piecesOf[2] == table.piecesOf[0]);
  uint64_t elements = 0;
  for (const Unit& unit : table.units) elements += unit.elements;
  REQUIRE(elements == 800 + 64);
}

TEST_CASE("plan units: the order of registration changes numbers only", "[plan]") {
  const std::vector<ParamSpec> specs = makeModel("pi0.5", {64, 3}).params;
  const auto summary = [](const std::vector<ParamSpec>& list) {
    ParamRegistry params;
    params.addGroup();
    std::vector<ParamSpec> later;
    for (const ParamSpec& one : list) {
      if (one.tiedTo.empty())
        REQUIRE(params.add(one) == "");
      else
        later.push_back(one);
    }
    for (const ParamSpec& one : later) REQUIRE(params.add(one) == "");
    const UnitTable table = unitsOf(params, 8, 2000);
    std::vector<std::string> lines;
    for (const Piece& piece : table.pieces) {
      const Unit& unit = table.units[static_cast<size_t>(piece.unit)];
      lines.push_back(fmt::format("{} {} {} {} {} {}", params[piece.param].spec.name, piece.offset, piece.elements,
                                  unit.name, unit.elements, unit.fixedOwner));
    }
    return lines;
  };
  const std::vector<std::string> expected = summary(specs);
  REQUIRE(expected.size() > 50);
  for (unsigned seed = 0; seed < 5; ++seed) REQUIRE(summary(shuffled(specs, seed)) == expected);
}

}  // namespace vmuon
