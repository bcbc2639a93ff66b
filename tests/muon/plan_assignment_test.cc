// SPDX-License-Identifier: Apache-2.0
// Owners. Numbers in brackets are rows of the list of public bug reports in docs/muon.md.
#include "plan/assignment.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <stdexcept>

#include "plan_support.h"

namespace vmuon {
namespace {

using namespace test;

// Operations at a rate that makes nanoseconds out of small shapes.
const FlopCosts kFlops(1e6);

Assignment assign(const ParamRegistry& params, const UnitTable& table, const RankGrid& grid,
                  const AssignOptions& options = {}) {
  const Assignment result = assignOwners(table, unitTimes(table, kFlops), grid, options);
  REQUIRE(result.owner.size() == table.units.size());
  Load sum;
  for (const Load& load : result.ranks) {
    sum.units += load.units;
    sum.blocks += load.blocks;
    sum.elements += load.elements;
  }
  uint64_t elements = 0;
  for (int32_t i = 0; i < params.size(); ++i) elements += params[i].isAlias(i) ? 0 : params[i].elements;
  REQUIRE(sum.units == table.units.size());
  REQUIRE(sum.blocks == table.blocks());
  REQUIRE(sum.elements == elements);
  return result;
}

// Owner by parameter name and offset.
std::map<std::pair<std::string, uint64_t>, int32_t> byName(const ParamRegistry& params, const UnitTable& table,
                                                           const Assignment& result) {
  std::map<std::pair<std::string, uint64_t>, int32_t> owners;
  for (size_t p = 0; p < table.pieces.size(); ++p) {
    const Piece& piece = table.pieces[p];
    owners[{params[piece.param].spec.name, piece.offset}] = result.ownerOf(table, static_cast<int32_t>(p));
  }
  return owners;
}

std::vector<ParamSpec> mixedLayers(int32_t layers) {
  std::vector<ParamSpec> specs;
  for (int32_t layer = 0; layer < layers; ++layer) {
    const auto name = [&](const char* what) { return fmt::format("layers.{}.{}", layer, what); };
    specs.push_back(matrix(name("q"), 64, 64, layer));
    specs.push_back(matrix(name("k"), 16, 64, layer));
    specs.push_back(matrix(name("up"), 256, 64, layer));
    specs.push_back(matrix(name("down"), 64, 256, layer));
    specs.push_back(vector(name("norm"), 64, layer));
    specs.push_back(spec(name("experts"), vmuonExperts, {6, 48, 64}, layer));
  }
  specs.push_back(spec("embed", vmuonElementwise, {500, 64}, layers));
  return specs;
}

}  // namespace

TEST_CASE("plan assignment: owners do not depend on the order of registration", "[plan]") {
  const std::vector<ParamSpec> specs = mixedLayers(5);
  for (const auto& [ranks, nodes] : {std::pair(1, 1), std::pair(7, 1), std::pair(8, 2), std::pair(12, 3)}) {
    const RankGrid grid = RankGrid::even(ranks, nodes);
    AssignOptions options;
    options.balanceColumns = nodes > 1;
    const auto run = [&](const std::vector<ParamSpec>& list) {
      const ParamRegistry params = registryOf(list);
      const UnitTable table = unitsOf(params, grid.ranks(), 2000);
      const Assignment result = assign(params, table, grid, options);
      return std::pair(byName(params, table, result), result.digest(params, table));
    };
    const auto expected = run(specs);
    for (unsigned seed = 0; seed < 5; ++seed) REQUIRE(run(shuffled(specs, seed)) == expected);
  }
}

TEST_CASE("plan assignment: the digest sees owners, times, ranks and pieces", "[plan]") {
  const ParamRegistry params = registryOf(mixedLayers(2));
  const UnitTable table = unitsOf(params, 4, 2000);
  const Assignment first = assign(params, table, RankGrid::even(4, 1));
  std::set<uint64_t> digests{first.digest(params, table)};
  Assignment other = first;
  other.owner[1] ^= 1;
  digests.insert(other.digest(params, table));
  other = first;
  ++other.times[0];
  digests.insert(other.digest(params, table));
  digests.insert(assign(params, table, RankGrid::even(5, 1)).digest(params, table));
  const UnitTable coarse = unitsOf(params, 4, 5000);
  digests.insert(assign(params, coarse, RankGrid::even(4, 1)).digest(params, coarse));
  REQUIRE(digests.size() == 5);
}

TEST_CASE("plan assignment: equal costs go by name", "[plan]") {
  std::vector<ParamSpec> specs;
  for (int32_t i = 0; i < 12; ++i) specs.push_back(matrix(fmt::format("w{:02}", i), 32, 32, i));
  const ParamRegistry params = registryOf(shuffled(specs, 3));
  const UnitTable table = unitsOf(params, 5, 0);
  const auto owners = byName(params, table, assign(params, table, RankGrid::even(5, 1)));
  int32_t expected = 0;
  for (const auto& [name, owner] : owners) {
    INFO(name.first);
    REQUIRE(owner == expected);
    expected = (expected + 1) % 5;
  }
}

TEST_CASE("plan assignment: experts of equal cost go by number, not by its text", "[plan]") {
  const ParamRegistry params = registryOf({spec("e", vmuonExperts, {12, 8, 8})});
  const UnitTable table = unitsOf(params, 12);
  const Assignment result = assign(params, table, RankGrid::even(12, 1));
  for (int32_t e = 0; e < 12; ++e) REQUIRE(result.ownerOf(table, e) == e);
}

TEST_CASE("plan assignment: a unit heavier than the cap goes to the rank with fewest bytes", "[plan]") {
  std::vector<ParamSpec> specs{matrix("huge", 400, 400, 0)};
  for (int32_t i = 1; i < 9; ++i) specs.push_back(matrix(fmt::format("w{}", i), 20, 20, i));
  const ParamRegistry params = registryOf(specs);
  const UnitTable table = unitsOf(params, 4, 0);
  const Assignment result = assign(params, table, RankGrid::even(4, 1));
  const auto owners = byName(params, table, result);
  const int32_t heavy = owners.at({"huge", 0});
  for (const auto& [name, owner] : owners) REQUIRE((owner == heavy) == (name.first == "huge"));
  REQUIRE(result.byteRatio > 3);  // nothing can be done, but it is seen
}

TEST_CASE("plan assignment: the cap on bytes costs time only where it must", "[plan]") {
  // Slow but small, and large but fast.
  std::vector<ParamSpec> specs;
  for (int32_t i = 0; i < 4; ++i) specs.push_back(matrix(fmt::format("slow{}", i), 100, 100, i));
  for (int32_t i = 0; i < 12; ++i) specs.push_back(matrix(fmt::format("wide{}", i), 2, 5000, 4 + i));
  const ParamRegistry params = registryOf(specs);
  const UnitTable table = unitsOf(params, 8, 0);
  AssignOptions options;
  options.byteCap = 0;
  const Assignment without = assign(params, table, RankGrid::even(8, 1), options);
  const Assignment with = assign(params, table, RankGrid::even(8, 1));
  REQUIRE(without.byteRatio == Approx(1.5));
  REQUIRE(with.byteRatio == Approx(1.0));
  REQUIRE(with.timeRatio >= without.timeRatio);
}

TEST_CASE("plan assignment: units of a layer are on different ranks, even against the cap", "[plan]") {
  for (const int ranks : {4, 10, 16}) {
    const ParamRegistry params = registryOf(mixedLayers(6));
    const UnitTable table = unitsOf(params, ranks, 2000);
    const Assignment result = assign(params, table, RankGrid::even(ranks, 1));
    std::map<std::pair<int32_t, int32_t>, int> uses;
    std::map<int32_t, int> unitsOfLayer;
    for (size_t u = 0; u < table.units.size(); ++u) {
      if (table.units[u].fixedOwner >= 0) continue;
      ++uses[{table.units[u].layer, result.owner[u]}];
      ++unitsOfLayer[table.units[u].layer];
    }
    for (const auto& [where, count] : uses) {
      // More units than ranks: as evenly as possible.
      REQUIRE(count <= (unitsOfLayer[where.first] + ranks - 1) / ranks);
    }
    if (ranks >= 10) REQUIRE(result.layerRatio == 1);
  }
  const ParamRegistry pair = registryOf({matrix("a", 300, 300), matrix("b", 10, 10), matrix("c", 10, 10)});
  const UnitTable table = unitsOf(pair, 3, 0);
  const Assignment result = assign(pair, table, RankGrid::even(3, 1));
  REQUIRE(std::set<int32_t>(result.owner.begin(), result.owner.end()).size() == 3);
}

TEST_CASE("plan assignment: more ranks than units leaves ranks idle [21, 48]", "[plan]") {
  const ParamRegistry params = registryOf({matrix("a", 30, 30), matrix("b", 30, 30, 1), vector("large", 640)});
  const UnitTable table = unitsOf(params, 16, 100);
  for (const bool columns : {false, true}) {
    AssignOptions options;
    options.balanceColumns = columns;
    const Assignment result = assign(params, table, RankGrid::even(16, 4), options);
    REQUIRE(result.ranks.size() == 16);
    REQUIRE(std::count_if(result.ranks.begin(), result.ranks.end(), [](const Load& l) { return l.blocks > 0; }) == 2);
    REQUIRE(std::count_if(result.ranks.begin(), result.ranks.end(), [](const Load& l) { return l.units == 0; }) >= 4);
    REQUIRE(result.timeRatio == Approx(8));
  }
}

TEST_CASE("plan assignment: units without matrices are spread by their bytes", "[plan]") {
  std::vector<ParamSpec> specs;
  for (int32_t i = 0; i < 6; ++i)
    specs.push_back(matrix(fmt::format("w{}", i), 100, 100 + static_cast<uint64_t>(i), i));
  for (int32_t i = 0; i < 24; ++i) specs.push_back(vector(fmt::format("norm{}", i), 50, 100 + i));
  const ParamRegistry params = registryOf(specs);
  const UnitTable table = unitsOf(params, 6, 1000);
  AssignOptions options;
  for (const double cap : {0.0, 1.1}) {
    options.byteCap = cap;
    const Assignment result = assign(params, table, RankGrid::even(6, 1), options);
    // One matrix each, and four of the norms: by time alone one rank would get all of them.
    for (const Load& load : result.ranks) REQUIRE(load.units == 5);
  }
  // No matrices anywhere.
  specs.erase(specs.begin(), specs.begin() + 6);
  const ParamRegistry norms = registryOf(specs);
  const UnitTable only = unitsOf(norms, 6, 1000);
  const Assignment result = assign(norms, only, RankGrid::even(6, 1));
  REQUIRE(result.timeRatio == 1);
  REQUIRE(result.byteRatio == 1);
}

TEST_CASE("plan assignment: matrices of one row [27]", "[plan]") {
  const ParamRegistry params =
      registryOf({matrix("gate", 1, 2048), matrix("tall", 2048, 1, 1), matrix("one", 1, 1, 2)});
  const UnitTable table = unitsOf(params, 3, 0);
  const std::vector<uint64_t> times = unitTimes(table, FlopCosts(1e15));
  for (const uint64_t time : times) REQUIRE(time >= 1);
  const Assignment result = assignOwners(table, times, RankGrid::even(3, 1), {});
  REQUIRE(std::set<int32_t>(result.owner.begin(), result.owner.end()).size() == 3);
}

TEST_CASE("plan assignment: time is balanced, not size [47]", "[plan]") {
  // Two shapes of equal size of which one takes much longer.
  std::vector<ParamSpec> specs;
  for (int32_t i = 0; i < 8; ++i) {
    specs.push_back(matrix(fmt::format("w{}.a", i), 128, 128, 2 * i));
    specs.push_back(matrix(fmt::format("w{}.b", i), 16, 1024, 2 * i + 1));
  }
  const ParamRegistry params = registryOf(specs);
  const UnitTable table = unitsOf(params, 8, 0);
  const RankGrid grid = RankGrid::even(8, 1);
  const std::vector<uint64_t> times = unitTimes(table, kFlops);
  const Assignment bySize =
      withTimes(assignOwners(table, unitTimes(table, ElementCosts()), grid, {}), table, times, grid);
  const Assignment byTime = assignOwners(table, times, grid, {});
  REQUIRE(byTime.timeRatio == Approx(1));
  REQUIRE(byTime.byteRatio == Approx(1));
  REQUIRE(bySize.timeRatio > 1.5);
}

TEST_CASE("plan assignment: columns are balanced first, also with uneven nodes", "[plan]") {
  std::vector<ParamSpec> specs;
  for (int32_t i = 0; i < 60; ++i) {
    specs.push_back(matrix(fmt::format("w{}", i), 20 + static_cast<uint64_t>(i % 7), 60, i / 3));
  }
  const ParamRegistry params = registryOf(specs);
  AssignOptions options;
  options.balanceColumns = true;
  SECTION("even") {
    const UnitTable table = unitsOf(params, 8, 0);
    const Assignment result = assign(params, table, RankGrid::even(8, 2), options);
    REQUIRE(result.columns.size() == 4);
    REQUIRE(result.columnTimeRatio < 1.05);
    REQUIRE(result.columnLayerRatio == 1);
    REQUIRE(result.layerRatio == 1);
  }
  SECTION("uneven") {
    // Nodes of 3, 2 and 1 ranks: columns of 3, 2 and 1 ranks.
    RankGrid grid;
    grid.nodeOf = {0, 0, 0, 1, 1, 2};
    grid.columnOf = {0, 1, 2, 0, 1, 0};
    const UnitTable table = unitsOf(params, 6, 0);
    options.spreadLayers = false;
    const Assignment result = assign(params, table, grid, options);
    REQUIRE(result.columns.size() == 3);
    REQUIRE(result.columnTimeRatio < 1.1);  // per rank
    REQUIRE(result.timeRatio < 1.15);
    REQUIRE(result.columns[0].units > result.columns[1].units);
    REQUIRE(result.columns[1].units > result.columns[2].units);
  }
}

TEST_CASE("plan assignment: round robin follows the order of registration", "[plan]") {
  std::vector<ParamSpec> specs;
  for (int32_t i = 0; i < 10; ++i) specs.push_back(matrix(fmt::format("w{}", 9 - i), 10, 10, i));
  const ParamRegistry params = registryOf(specs);
  const UnitTable table = unitsOf(params, 4, 0);
  AssignOptions options;
  options.strategy = AssignOptions::Strategy::kRoundRobin;
  const Assignment result = assign(params, table, RankGrid::even(4, 1), options);
  for (int32_t i = 0; i < 10; ++i) REQUIRE(result.ownerOf(table, table.pieceAt(i, 0)) == i % 4);
}

TEST_CASE("plan assignment: one rank owns everything [43]", "[plan]") {
  const ParamRegistry params = registryOf(mixedLayers(3));
  const UnitTable table = unitsOf(params, 1, 2000);
  AssignOptions options;
  options.balanceColumns = true;
  const Assignment result = assign(params, table, RankGrid::even(1, 1), options);
  REQUIRE(result.timeRatio == 1);
  REQUIRE(result.byteRatio == 1);
  REQUIRE(std::count(result.owner.begin(), result.owner.end(), 0) == static_cast<int>(table.units.size()));
}

TEST_CASE("plan assignment: units made for another number of ranks are refused [18]", "[plan]") {
  const ParamRegistry params = registryOf({vector("large", 6400), matrix("w", 10, 10)});
  const UnitTable table = unitsOf(params, 8, 1000);
  REQUIRE_THROWS_AS(assignOwners(table, unitTimes(table, kFlops), RankGrid::even(4, 1), {}), std::invalid_argument);
  REQUIRE_THROWS_AS(assignOwners(table, unitTimes(table, kFlops), RankGrid{}, {}), std::invalid_argument);
}

TEST_CASE("plan assignment: ranks of nodes", "[plan]") {
  const RankGrid grid = RankGrid::even(7, 3);
  REQUIRE(grid.nodeOf == std::vector<int>{0, 0, 0, 1, 1, 2, 2});
  REQUIRE(grid.columnOf == std::vector<int>{0, 1, 2, 0, 1, 0, 1});
  REQUIRE(grid.columns() == 3);
}

}  // namespace vmuon
