// SPDX-License-Identifier: Apache-2.0
// Accuracy of Newton-Schulz. Numbers in the names: rows of the list of other libraries' bug reports.
#include "math/newton_schulz.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "math_reference.h"

namespace {

using namespace vmuon_test;
using vmuon::coefficientSet;
using vmuon::Form;
using vmuon::NewtonSchulz;

Matrix orthogonalized(const Matrix& a, const vmuon::CoefficientSet& set, Form form = Form::kAutomatic) {
  NewtonSchulz ns(set, form);
  std::vector<float> x = toFloat(a);
  ns.orthogonalize(x.data(), a.rows, a.cols);
  return toMatrix(x, a.rows, a.cols);
}

Matrix orthogonalized(const Matrix& a) { return orthogonalized(a, coefficientSet("polar-express")); }

// What a spectrum becomes, in the basis of the input's singular vectors: the diagonal should be the scalar map, the
// rest 0.
struct InBasis {
  std::vector<double> diagonal;
  double offDiagonal = 0;  // largest
};

InBasis inBasis(const Svd& input, const Matrix& output) {
  const Matrix core = multiply(multiply(transpose(input.left), output), transpose(input.right));
  InBasis result;
  for (int64_t i = 0; i < core.rows; ++i) {
    for (int64_t j = 0; j < core.cols; ++j) {
      if (i == j) {
        result.diagonal.push_back(core.at(i, i));
      } else {
        result.offDiagonal = std::max(result.offDiagonal, std::abs(core.at(i, j)));
      }
    }
  }
  return result;
}

std::vector<double> logspace(double first, double last, int64_t count) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(std::pow(10.0, first + (last - first) * static_cast<double>(i) / static_cast<double>(count - 1)));
  }
  return values;
}

struct Spectrum {
  std::string name;
  std::vector<double> values;
};

// Of `m` values each. Newton-Schulz treats all singular vectors alike, so seeds vary the spectrum.
std::vector<Spectrum> spectra(int64_t m, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  const auto make = [&](const char* name, auto value) {
    Spectrum spectrum{name, {}};
    for (int64_t i = 0; i < m; ++i)
      spectrum.values.push_back(value(static_cast<double>(i) / static_cast<double>(m), i));
    return spectrum;
  };
  std::vector<Spectrum> list;
  list.push_back(make("uniform", [&](double, int64_t) { return 0.25 + 0.75 * uniform(generator); }));
  list.push_back(make("linear down to 0", [&](double t, int64_t) { return 0.5 * t; }));
  const double alpha = 0.3 + 0.4 * uniform(generator);
  list.push_back(make("power law", [&](double, int64_t i) { return std::pow(static_cast<double>(i + 1), -alpha); }));
  const double beta = 2 + 6 * uniform(generator);
  list.push_back(make("exponential", [&](double t, int64_t) { return std::exp(-beta * t); }));
  list.push_back(make("heavy tail", [&](double, int64_t i) { return uniform(generator) * (i % 10 == 3 ? 1e-3 : 1); }));
  for (const double last : {-3.0, -5.0, -7.0, -9.0}) {
    list.push_back({"logspace to 1e" + std::to_string(static_cast<int>(last)), logspace(0, last, m)});
  }
  list.push_back(make("half zeros", [&](double t, int64_t) { return t < 0.5 ? uniform(generator) : 0.0; }));
  list.push_back(make("rank 10", [&](double, int64_t i) { return i < 10 ? 1 - 0.05 * static_cast<double>(i) : 0.0; }));
  list.push_back(make("rank 2", [&](double, int64_t i) { return i < 2 ? 1.0 : 0.0; }));
  list.push_back(make("rank 1", [&](double, int64_t i) { return i < 1 ? 1.0 : 0.0; }));
  list.push_back(make("two large, tail 1e-4 to 1e-7",
                      [&](double t, int64_t i) { return i < 2 ? 1.0 : std::pow(10.0, -4 - 3 * t); }));
  std::gamma_distribution<double> gamma(3, 0.5);
  list.push_back(make("gamma", [&](double, int64_t) { return gamma(generator); }));
  return list;
}

bool allFinite(const Matrix& a) {
  return std::all_of(a.values.begin(), a.values.end(), [](double value) { return std::isfinite(value); });
}

}  // namespace

TEST_CASE("math Newton-Schulz: distance to the exact polar factor is what is published for each set") {
  // Relative Frobenius error for well-conditioned input.
  struct Band {
    const char* name;
    double low;
    double high;
  };
  const Band bands[] = {{"polar-express", 0.07, 0.11}, {"quintic", 0.010, 0.022}, {"muon", 0.13, 0.23}};
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{64, 256}, {128, 512}, {320, 100}}) {
    const Matrix a = gaussian(rows, cols, 11);
    const Matrix polar = svd(a).polar();
    REQUIRE(orthogonalityError(polar) < 1e-10);  // of the reference itself
    for (const Band& band : bands) {
      const Matrix x = orthogonalized(a, coefficientSet(band.name));
      INFO(rows << " x " << cols << ", " << band.name);
      CHECK(relativeError(x, polar) > band.low);
      CHECK(relativeError(x, polar) < band.high);
    }
    CHECK(relativeError(orthogonalized(a, coefficientSet("deepseek-v4")), polar) < 1e-3);
  }
}

TEST_CASE("math Newton-Schulz: output is orthogonal within 0.15") {
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{128, 256}, {128, 512}, {64, 256}, {256, 1024}, {512, 128}}) {
    const Matrix a = gaussian(rows, cols, 5);
    for (const char* name : {"polar-express", "quintic"}) {
      INFO(rows << " x " << cols << ", " << name);
      CHECK(orthogonalityError(orthogonalized(a, coefficientSet(name))) < 0.15);
    }
  }
}

TEST_CASE("math Newton-Schulz: both forms equal the double-precision iteration, any shape (#8)") {
  const std::pair<int64_t, int64_t> shapes[] = {{1, 2},     {3, 2},    {5, 4},    {2, 4},   {15, 4},
                                                {4, 4},     {7, 13},   {30, 31},  {64, 64}, {65, 129},
                                                {100, 333}, {257, 40}, {40, 600}, {600, 40}};
  for (const auto& [rows, cols] : shapes) {
    for (const char* name : {"polar-express", "quintic", "muon", "cans", "aol", "deepseek-v4", "cubic5"}) {
      const auto set = coefficientSet(name);
      // Square Gaussian matrices have tiny singular values, which is another test's subject.
      const int64_t m = std::min(rows, cols);
      const Matrix a = m < 2 ? gaussian(rows, cols, 3) : withSpectrum(rows, cols, logspace(0, -1.5, m), 3).product();
      const Matrix wanted = newtonSchulz(a, set);
      // Without a safety factor the polynomials of "cans" are steep at 1, where a single row lies.
      const double tolerance = m == 1 && set.name == "cans" ? 1e-2 : 2e-4;
      INFO(rows << " x " << cols << ", " << name);
      CHECK(relativeError(orthogonalized(a, set, Form::kGram), wanted) < tolerance);
      CHECK(relativeError(orthogonalized(a, set, Form::kStandard), wanted) < tolerance);
      CHECK(relativeError(orthogonalized(a, set, Form::kAutomatic), wanted) < tolerance);
    }
  }
}

TEST_CASE("math Newton-Schulz: Gram equals standard to 1e-5 wide and 2e-4 square (#11)") {
  const auto set = coefficientSet("polar-express");
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{128, 512}, {96, 576}, {512, 100}}) {
    const Matrix a = gaussian(rows, cols, 21);
    INFO(rows << " x " << cols);
    CHECK(relativeError(orthogonalized(a, set, Form::kGram), orthogonalized(a, set, Form::kStandard)) < 1e-5);
  }
  for (const int64_t m : {64, 200}) {
    const Matrix a = gaussian(m, m, 21);
    INFO(m);
    CHECK(relativeError(orthogonalized(a, set, Form::kGram), orthogonalized(a, set, Form::kStandard)) < 2e-4);
  }
}

TEST_CASE("math Newton-Schulz: every spectrum goes through the scalar map and keeps its singular vectors") {
  const auto set = coefficientSet("polar-express");
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{64, 256}, {96, 96}, {192, 48}}) {
      for (const Spectrum& spectrum : spectra(std::min(rows, cols), seed)) {
        const Svd input = withSpectrum(rows, cols, spectrum.values, seed);
        const Matrix a = input.product();
        const Matrix x = orthogonalized(a, set);
        INFO(spectrum.name << ", " << rows << " x " << cols << ", seed " << seed);
        REQUIRE(allFinite(x));
        const InBasis result = inBasis(input, x);
        double worst = 0;
        double largest = 0;
        for (size_t i = 0; i < spectrum.values.size(); ++i) {
          worst = std::max(worst, std::abs(result.diagonal[i] - scalarMap(set, spectrum.values[i] / norm(a))));
          largest = std::max(largest, std::abs(result.diagonal[i]));
        }
        // fp32 input holds singular values to about 1e-7 of the largest, and the map's slope at 0 is 804.
        CHECK(worst < 1e-3);
        CHECK(largest < 1.13);
        CHECK(result.offDiagonal < 1e-3);
      }
    }
  }
}

TEST_CASE("math Newton-Schulz: without a restart the Gram form loses digits on wide spectra") {
  const auto with = coefficientSet("polar-express");
  auto without = with;
  without.restarts.clear();
  double worstWith = 0;
  double worstWithout = 0;
  for (const Spectrum& spectrum : spectra(96, 4)) {
    const Matrix a = withSpectrum(96, 384, spectrum.values, 4).product();
    const Matrix wanted = newtonSchulz(toMatrix(toFloat(a), 96, 384), with);
    worstWith = std::max(worstWith, relativeError(orthogonalized(a, with, Form::kGram), wanted));
    const Matrix x = orthogonalized(a, without, Form::kGram);
    worstWithout = std::max(worstWithout, allFinite(x) ? relativeError(x, wanted) : 1e9);
  }
  CHECK(worstWith < 1e-3);
  CHECK(worstWithout > 3e-3);
}

TEST_CASE("math Newton-Schulz: a tall matrix is its transpose") {
  const auto set = coefficientSet("polar-express");
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{512, 128}, {130, 33}, {9, 1}}) {
    const Matrix a = gaussian(rows, cols, 8);
    INFO(rows << " x " << cols);
    CHECK(relativeError(orthogonalized(a), transpose(orthogonalized(transpose(a)))) < 2e-5);
    CHECK(relativeError(orthogonalized(a, set, Form::kStandard),
                        transpose(orthogonalized(transpose(a), set, Form::kStandard))) < 2e-5);
  }
}

TEST_CASE("math Newton-Schulz: a stack of experts is orthogonalised one by one, not as one matrix (#50)") {
  constexpr int64_t kExperts = 5;
  constexpr int64_t kRows = 24;
  constexpr int64_t kCols = 40;
  std::vector<float> stack;
  std::vector<Matrix> experts;
  for (int64_t e = 0; e < kExperts; ++e) {
    // Very different sizes: normalised together, the small ones would stay small.
    experts.push_back(
        scaled(gaussian(kRows, kCols, static_cast<uint64_t>(e)), std::pow(10.0, -2.0 * static_cast<double>(e))));
    const auto values = toFloat(experts.back());
    stack.insert(stack.end(), values.begin(), values.end());
  }
  const Matrix whole = orthogonalized(toMatrix(stack, kExperts * kRows, kCols));
  NewtonSchulz ns(coefficientSet("polar-express"));
  ns.orthogonalizeBatch(stack.data(), kExperts, kRows, kCols);
  CHECK(ns.calls() == kExperts);
  for (int64_t e = 0; e < kExperts; ++e) {
    const auto begin = stack.begin() + e * kRows * kCols;
    const std::vector<float> slice(begin, begin + kRows * kCols);
    const Matrix alone = orthogonalized(experts[static_cast<size_t>(e)]);
    INFO("expert " << e);
    CHECK(slice == toFloat(alone));
    CHECK(relativeError(alone, svd(experts[static_cast<size_t>(e)]).polar()) < 0.15);
    Matrix fromWhole(kRows, kCols);
    std::copy_n(whole.values.begin() + e * kRows * kCols, kRows * kCols, fromWhole.values.begin());
    // The largest expert alone survives being normalised together with the others.
    if (e > 0) CHECK(relativeError(fromWhole, alone) > 0.2);
  }
}

TEST_CASE("math Newton-Schulz: orthogonalising shards of rows is far from orthogonalising the matrix (#28, #49)") {
  constexpr int64_t kRows = 128;
  constexpr int64_t kCols = 512;
  // Rows that have something in common, as gradients do.
  Matrix a = gaussian(kRows, kCols, 1);
  const Matrix common = gaussian(1, kCols, 2);
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kCols; ++j) a.at(i, j) += common.at(0, j);
  }
  const Matrix right = orthogonalized(a);
  CHECK(relativeError(right, newtonSchulz(a, coefficientSet("polar-express"))) < 5e-2);
  for (const int64_t shards : {2, 4, 8}) {
    const int64_t rows = kRows / shards;
    Matrix wrong(kRows, kCols);
    for (int64_t s = 0; s < shards; ++s) {
      Matrix shard(rows, kCols);
      std::copy_n(a.values.begin() + s * rows * kCols, rows * kCols, shard.values.begin());
      const Matrix part = orthogonalized(shard);
      std::copy(part.values.begin(), part.values.end(), wrong.values.begin() + s * rows * kCols);
    }
    INFO(shards << " shards");
    CHECK(relativeError(wrong, right) > 5e-2);
  }
}
