// SPDX-License-Identifier: Apache-2.0
#include "plan/costs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "plan/costs_file.h"
#include "plan_support.h"

namespace vmuon {
namespace {

using Catch::Matchers::Contains;
using namespace test;

// A directory that goes away with its test.
class Directory {
 public:
  Directory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "vmuon-costs-XXXXXX").string();
    const char* made = ::mkdtemp(pattern.data());
    REQUIRE(made != nullptr);
    path_ = made;
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  std::string file(const char* name) const { return (path_ / name).string(); }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator()));
  }

 private:
  std::filesystem::path path_;
};

void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

MeasuredCosts measured(std::map<Shape, double> times) {
  MeasuredCosts costs;
  costs.times = std::move(times);
  return costs;
}

}  // namespace

TEST_CASE("plan costs: operations", "[plan]") {
  // Five steps with one restart: 4 rectangular and 14 square products, symmetric ones at half.
  REQUIRE(newtonSchulzFlops(100, 300) == 6.0 * 100 * 100 * 300 + 14.0 * 100 * 100 * 100);
  REQUIRE(newtonSchulzFlops(300, 100) == newtonSchulzFlops(100, 300));
  REQUIRE(newtonSchulzFlops(100, 100) == 20.0 * 100 * 100 * 100);
  REQUIRE(newtonSchulzFlops(1, 1) > 0);
  REQUIRE(FlopCosts(2e9).seconds(100, 100) == Approx(0.01));
}

TEST_CASE("plan costs: measured times, and what stands in for them", "[plan]") {
  MeasuredCosts costs;
  REQUIRE(costs.seconds(10, 20) == Approx(FlopCosts().seconds(10, 20)));
  costs = measured({{{10, 20}, 3.0}, {{20, 10}, 4.0}, {{1000, 2000}, 5.0}});
  REQUIRE(costs.seconds(10, 20) == 3.0);
  REQUIRE(costs.seconds(20, 10) == 4.0);
  REQUIRE(costs.seconds(2000, 1000) == 5.0);
  REQUIRE(costs.seconds(1000, 2500) == Approx(5.0 * newtonSchulzFlops(1000, 2500) / newtonSchulzFlops(1000, 2000)));
  REQUIRE(costs.seconds(10, 22) == Approx(3.0 * newtonSchulzFlops(10, 22) / newtonSchulzFlops(10, 20)));
  REQUIRE(costs.has(20, 10));
  REQUIRE_FALSE(costs.has(2000, 1000));
}

TEST_CASE("plan costs: a unit's time is the sum of its matrices", "[plan]") {
  ParamSpec fused = spec("qkv", vmuonFusedRows, {30, 10});
  fused.splits = {10, 20};
  const ParamRegistry params = registryOf({fused, matrix("o", 10, 10), vector("norm", 5), vector("alone", 5, 1)});
  const UnitTable table = unitsOf(params, 2);
  const std::vector<uint64_t> times = unitTimes(table, measured({{{10, 10}, 2e-6}, {{20, 10}, 5e-6}}));
  REQUIRE(times == std::vector<uint64_t>{2000 + 5000 + 2000, 0});
}

TEST_CASE("plan costs file: what is stored comes back, for its key only", "[plan]") {
  const Directory directory;
  const std::string path = directory.file("costs.json");
  const CostKey key{"cpu \"A\"", "blas 0.3", "polar-express"};
  MeasuredCosts costs;
  REQUIRE(loadCosts(path, key, &costs) == "");  // no file yet
  REQUIRE(costs.times.empty());
  const MeasuredCosts first = measured({{{10, 20}, 1.25e-3}, {{20, 10}, 1.0 / 3}});
  REQUIRE(saveCosts(path, key, first) == "");
  REQUIRE(loadCosts(path, key, &costs) == "");
  REQUIRE(costs.times == first.times);  // to the last bit

  for (const CostKey& other :
       {CostKey{"cpu B", key.blas, key.coefficients}, CostKey{key.cpu, "blas 0.4", key.coefficients},
        CostKey{key.cpu, key.blas, "keller-jordan"}}) {
    MeasuredCosts none;
    REQUIRE(loadCosts(path, other, &none) == "");
    REQUIRE(none.times.empty());
    REQUIRE(saveCosts(path, other, measured({{{7, 7}, 1.0}})) == "");
  }
  REQUIRE(saveCosts(path, key, measured({{{10, 20}, 2.0}, {{5, 5}, 1.0}})) == "");
  MeasuredCosts merged;
  REQUIRE(loadCosts(path, key, &merged) == "");
  REQUIRE(merged.times == std::map<Shape, double>{{{5, 5}, 1.0}, {{10, 20}, 2.0}, {{20, 10}, 1.0 / 3}});
  REQUIRE(directory.files() == 1);  // no temporary files are left
}

TEST_CASE("plan costs file: a damaged file is named and ignored, then replaced", "[plan]") {
  const Directory directory;
  const std::string path = directory.file("costs.json");
  const CostKey key{"cpu", "blas", "set"};
  REQUIRE(saveCosts(path, key, measured({{{10, 20}, 1.0}})) == "");
  std::ifstream in(path);
  const std::string good((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
  };
  std::vector<std::string> damaged{"",
                                   "{}",
                                   "[1]",
                                   "\xff\xfe",
                                   good.substr(0, good.size() / 2),
                                   replaced("\"version\": 1", "\"version\": 2"),
                                   replaced("1.0", "-1.0"),
                                   replaced("1.0", "0.0"),
                                   replaced("1.0", "\"1\""),
                                   replaced("1.0", "null"),
                                   replaced("\"rows\": 10", "\"rows\": -10"),
                                   replaced("\"rows\": 10", "\"rows\": 0"),
                                   replaced("\"rows\": 10", "\"rows\": 1.5"),
                                   replaced("\"cpu\": \"cpu\"", "\"cpu\": 7")};
  for (const std::string& text : damaged) {
    INFO(text);
    put(path, text);
    MeasuredCosts costs;
    const std::string note = loadCosts(path, key, &costs);
    CHECK_THAT(note, Contains(path) && Contains("ignored"));
    REQUIRE(costs.times.empty());
    REQUIRE(saveCosts(path, key, measured({{{10, 20}, 1.0}})) == "");
    REQUIRE(loadCosts(path, key, &costs) == "");
    REQUIRE(costs.has(10, 20));
  }
}

TEST_CASE("plan costs file: places that cannot be written or read are named", "[plan]") {
  const Directory directory;
  const CostKey key{"cpu", "blas", "set"};
  const std::string nowhere = directory.file("missing/costs.json");
  CHECK_THAT(saveCosts(nowhere, key, measured({{{1, 1}, 1.0}})), Contains(nowhere) && Contains("No such file"));
  MeasuredCosts costs;
  const std::string folder = directory.file("folder");
  REQUIRE(::mkdir(folder.c_str(), 0777) == 0);
  CHECK_THAT(loadCosts(folder, key, &costs), Contains(folder));
  CHECK_THAT(saveCosts(folder, key, measured({{{1, 1}, 1.0}})), Contains(folder));
  REQUIRE(directory.files() == 1);
}

TEST_CASE("plan costs file: this machine has a name", "[plan]") { REQUIRE_FALSE(cpuModel().empty()); }

}  // namespace vmuon
