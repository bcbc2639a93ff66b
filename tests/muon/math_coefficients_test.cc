// SPDX-License-Identifier: Apache-2.0
#include "math/coefficients.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <stdexcept>

#include "math_reference.h"

namespace {

using vmuon::coefficientSet;
using vmuon_test::scalarMap;

struct Range {
  double low;
  double high;
};

// Of the scalar map on [0.002, 1].
Range rangeOf(const char* name) {
  const auto set = coefficientSet(name);
  Range range{1e9, -1e9};
  for (int i = 0; i <= 20000; ++i) {
    const double f = scalarMap(set, 0.002 * std::pow(500.0, i / 20000.0));
    range = {std::min(range.low, f), std::max(range.high, f)};
  }
  return range;
}

std::string failure(const char* text) {
  try {
    (void)coefficientSet(text);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("math coefficients: the default is Polar Express over 1.05, five steps, restart before the third") {
  const auto set = coefficientSet(vmuon::kDefaultCoefficients);
  CHECK(set.name == "polar-express");
  REQUIRE(set.steps.size() == 5);
  CHECK(set.restarts == std::vector<int>{2});
  // The published products of that division; dividing c by 1.05^3, as one document does, gives 14.939 in the first
  // line.
  const double wanted[5][3] = {{7.89258287442441, -20.3830139458796, 13.5553061494069},
                               {3.91148486813543, -2.54646359290609, 0.426898831967307},
                               {3.76065795569742, -2.51281901821656, 0.432364734907007},
                               {3.16039967368629, -2.1496495188985, 0.399636690766439},
                               {2.19109716186173, -1.44166201021466, 0.328146487623155}};
  for (size_t i = 0; i < 5; ++i) {
    CHECK(set.steps[i].a == Approx(wanted[i][0]).epsilon(1e-12));
    CHECK(set.steps[i].b == Approx(wanted[i][1]).epsilon(1e-12));
    CHECK(set.steps[i].c == Approx(wanted[i][2]).epsilon(1e-12));
  }
}

TEST_CASE("math coefficients: published sets map singular values as published") {
  struct Row {
    const char* name;
    double at[6];  // f(1), f(.1), f(.01), f(2e-3), f(1e-3), f(1e-4)
    Range range;
  };
  const Row rows[] = {
      {"polar-express", {1.019, .879, .906, 1.097, .729, .080}, {0.846, 1.124}},
      {"quintic", {.978, 1.019, 1.018, .853, .475, .049}, {0.853, 1.145}},
      {"you", {.978, 1.019, 1.018, .853, .475, .049}, {0.853, 1.145}},
      {"muon", {.696, .712, .699, .860, .471, .049}, {0.682, 1.202}},
      {"polar-express-dion", {.904, 1.017, .997, 1.141, .847, .097}, {0.859, 1.141}},
      {"deepseek-v4", {1.000, 1.000, 1.000, 1.000, 1.000, 1.002}, {1.0000, 1.0005}},
  };
  const double points[6] = {1, .1, .01, 2e-3, 1e-3, 1e-4};
  for (const Row& row : rows) {
    const auto set = coefficientSet(row.name);
    for (int i = 0; i < 6; ++i) {
      INFO(row.name << " at " << points[i]);
      CHECK(scalarMap(set, points[i]) == Approx(row.at[i]).margin(0.0011));
    }
    const Range range = rangeOf(row.name);
    INFO(row.name);
    CHECK(range.low == Approx(row.range.low).margin(0.0011));
    CHECK(range.high == Approx(row.range.high).margin(0.0011));
  }
}

TEST_CASE("math coefficients: every named set brings singular values near 1, and its name back") {
  const auto names = vmuon::coefficientNames();
  for (const char* name : {"polar-express", "quintic", "you", "muon", "cans", "aol", "deepseek-v4", "cubic5"}) {
    INFO(name);
    CHECK(std::count(names.begin(), names.end(), name) == 1);
  }
  for (const auto& name : names) {
    const auto set = coefficientSet(name);
    for (const double s : {1.0, 0.5, 0.2, 0.1, 0.05, 0.03}) {
      INFO(name << " at " << s);
      CHECK(scalarMap(set, s) > 0.6);
      CHECK(scalarMap(set, s) < 1.28);
    }
    CHECK_FALSE(set.restarts.empty());
    CHECK(set.restarts.back() < static_cast<int>(set.steps.size()));
  }
  CHECK(coefficientSet("deepseek-v4").steps.size() == 10);
  CHECK(coefficientSet("aol").steps.size() == 4);
}

TEST_CASE("math coefficients: custom sets from text") {
  const auto set = coefficientSet("3.5,-4.75,2; 2, -1.5, .5;1.5,-5e-1,0");
  REQUIRE(set.steps.size() == 3);
  CHECK(set.steps[0].b == -4.75);
  CHECK(set.steps[1].a == 2);
  CHECK(set.steps[1].c == 0.5);
  CHECK(set.steps[2].b == -0.5);
  CHECK(set.restarts == std::vector<int>{2});
  CHECK(set.restartsBefore(2));
  CHECK_FALSE(set.restartsBefore(1));
  CHECK(coefficientSet("2,-1.5,.5;2,-1.5,.5;2,-1.5,.5@1,2").restarts == std::vector<int>{1, 2});
  CHECK(coefficientSet("2,-1.5,.5;2,-1.5,.5;2,-1.5,.5@").restarts.empty());
}

TEST_CASE("math coefficients: what cannot be used is named") {
  CHECK_THAT(failure("polar-expres"), Catch::Contains("polar-expres\"") && Catch::Contains("polar-express,") &&
                                          Catch::Contains("quintic") && Catch::Contains("a,b,c"));
  CHECK_THAT(failure(""), Catch::Contains("polar-express"));
  CHECK_THAT(failure("1,2"), Catch::Contains("\"1,2\" has 2 numbers"));
  CHECK_THAT(failure("1,2,3;4,5,6,7"), Catch::Contains("\"4,5,6,7\" has 4 numbers"));
  CHECK_THAT(failure("1,2,3;"), Catch::Contains("has 1 numbers"));
  CHECK_THAT(failure("1,two,3"), Catch::Contains("\"two\" is not a number"));
  CHECK_THAT(failure("1,nan,3"), Catch::Contains("\"nan\" is not a number"));
  CHECK_THAT(failure("1,2,3;1,2,3@2"), Catch::Contains("restart 2 is not in 1 .. 1"));
  CHECK_THAT(failure("1,2,3;1,2,3@0"), Catch::Contains("restart 0"));
}
