// SPDX-License-Identifier: Apache-2.0
// Newton-Schulz on unusual input, and what it counts. Numbers in the names: rows of the list of other libraries' bug
// reports.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <thread>

#include "math/newton_schulz.h"
#include "math/timing.h"
#include "math_reference.h"

namespace {

using namespace vmuon_test;
using vmuon::coefficientSet;
using vmuon::Form;
using vmuon::NewtonSchulz;

std::vector<float> run(std::vector<float> x, int64_t rows, int64_t cols) {
  NewtonSchulz ns(coefficientSet("polar-express"));
  ns.orthogonalize(x.data(), rows, cols);
  return x;
}

bool sameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
           return x == y && std::signbit(x) == std::signbit(y);
         });
}

}  // namespace

TEST_CASE("math Newton-Schulz: the scale of the input does not matter (#2, #3, #35)") {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{32, 96}, {48, 48}, {80, 20}}) {
    const std::vector<float> g = toFloat(gaussian(rows, cols, 6));
    const std::vector<float> wanted = run(g, rows, cols);
    CHECK(relativeError(toMatrix(wanted, rows, cols),
                        newtonSchulz(toMatrix(g, rows, cols), coefficientSet("polar-express"))) < 2e-4);
    for (const int exponent : {-100, -40, -3, 1, 16, 50, 120}) {
      std::vector<float> x = g;
      for (float& value : x) value = std::ldexp(value, exponent);
      INFO(rows << " x " << cols << " times 2^" << exponent);
      CHECK(sameBits(run(x, rows, cols), wanted));
    }
    for (const double factor : {1e-30, 1e-20, 1e-15, 1e-12, 1e-9, 1e4, 1e5, 1e10, 1e15, 1e20, 1e30}) {
      const Matrix scaledInput = scaled(toMatrix(g, rows, cols), factor);
      INFO(rows << " x " << cols << " times " << factor);
      CHECK(relativeError(toMatrix(run(toFloat(scaledInput), rows, cols), rows, cols), toMatrix(wanted, rows, cols)) <
            1e-4);
    }
  }
}

TEST_CASE("math Newton-Schulz: the ends of the fp32 range") {
  // Subnormal numbers have few bits, the largest ones a norm beyond fp32; neither gives zeros, NaN or infinity.
  for (const float size : {std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max()}) {
    std::vector<float> x(4 * 8, 0.0f);
    for (size_t i = 0; i < 4; ++i) x[i * 8 + i] = i % 2 == 0 ? size : -size;
    const std::vector<float> y = run(x, 4, 8);
    for (size_t i = 0; i < y.size(); ++i) {
      const bool diagonal = i / 8 == i % 8;
      INFO(size << ", element " << i << ": " << y[i]);
      CHECK(std::abs(std::abs(y[i]) - (diagonal ? 1.0f : 0.0f)) < 0.16f);
      CHECK((!diagonal || std::signbit(y[i]) == std::signbit(x[i])));
    }
  }
}

TEST_CASE("math Newton-Schulz: zero gives exact zero (#4)") {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{16, 64}, {16, 16}, {64, 16}, {1, 5}}) {
    for (const float zero : {0.0f, -0.0f}) {
      const std::vector<float> x(static_cast<size_t>(rows * cols), zero);
      CHECK(sameBits(run(x, rows, cols), std::vector<float>(x.size(), 0.0f)));
    }
  }
}

TEST_CASE("math Newton-Schulz: one NaN or infinity makes everything NaN, and leaves nothing behind") {
  NewtonSchulz ns(coefficientSet("polar-express"));
  const std::vector<float> g = toFloat(gaussian(20, 50, 2));
  const std::vector<float> wanted = run(g, 20, 50);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const size_t at : {size_t{0}, size_t{517}, g.size() - 1}) {
      std::vector<float> x = g;
      x[at] = bad;
      ns.orthogonalize(x.data(), 20, 50);
      CHECK(std::all_of(x.begin(), x.end(), [](float value) { return std::isnan(value); }));
      x = g;
      ns.orthogonalize(x.data(), 20, 50);
      CHECK(sameBits(x, wanted));
    }
  }
}

TEST_CASE("math Newton-Schulz: one row or column is normalised (#27)") {
  const double atOne = scalarMap(coefficientSet("polar-express"), 1);
  CHECK(atOne == Approx(1.019).margin(0.001));
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 2048}, {2048, 1}, {1, 1}, {1, 3}}) {
    const Matrix g = gaussian(rows, cols, 12);
    const Matrix x = toMatrix(run(toFloat(g), rows, cols), rows, cols);
    INFO(rows << " x " << cols);
    CHECK(relativeError(x, scaled(g, atOne / norm(g))) < 1e-5);
  }
}

TEST_CASE("math Newton-Schulz: an empty matrix is left alone (#22)") {
  NewtonSchulz ns(coefficientSet("polar-express"));
  float guard = 42;
  ns.orthogonalize(&guard, 0, 7);
  ns.orthogonalize(&guard, 7, 0);
  ns.orthogonalize(nullptr, 0, 0);
  ns.orthogonalizeBatch(&guard, 0, 3, 3);
  ns.orthogonalizeBatch(&guard, 3, 0, 3);
  CHECK(guard == 42);
  CHECK(ns.calls() == 0);
  CHECK(ns.flops() == 0);
}

TEST_CASE("math Newton-Schulz: the same bits whatever came before, wherever the matrix lies, on any thread (#28)") {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{70, 210}, {90, 90}, {300, 33}}) {
    const auto count = static_cast<size_t>(rows * cols);
    const std::vector<float> g = toFloat(gaussian(rows, cols, 13));
    const std::vector<float> wanted = run(g, rows, cols);
    NewtonSchulz used(coefficientSet("polar-express"));
    std::vector<float> other = toFloat(gaussian(128, 200, 14));
    used.orthogonalize(other.data(), 128, 200);
    std::vector<float> nan(100, NAN);
    used.orthogonalize(nan.data(), 10, 10);
    for (const size_t offset : {size_t{0}, size_t{1}, size_t{3}, size_t{7}}) {
      std::vector<float> padded(count + offset + 1, 99.0f);
      std::copy(g.begin(), g.end(), padded.begin() + static_cast<std::ptrdiff_t>(offset));
      used.orthogonalize(padded.data() + offset, rows, cols);
      INFO(rows << " x " << cols << ", offset " << offset);
      CHECK(sameBits({padded.begin() + static_cast<std::ptrdiff_t>(offset), padded.end() - 1}, wanted));
      CHECK(padded.back() == 99.0f);
    }
    std::vector<float> elsewhere;
    std::thread([&] { elsewhere = run(g, rows, cols); }).join();
    CHECK(sameBits(elsewhere, wanted));
  }
}

TEST_CASE("math Newton-Schulz: counts calls and operations") {
  constexpr double kM = 256;
  constexpr double kN = 512;
  const auto flopsOf = [](int64_t rows, int64_t cols, Form form) {
    NewtonSchulz ns(coefficientSet("polar-express"), form);
    std::vector<float> x = toFloat(gaussian(rows, cols, 1));
    ns.orthogonalize(x.data(), rows, cols);
    CHECK(ns.calls() == 1);
    return ns.flops();
  };
  // The published counts, with symmetric products at half, without the diagonal's share (below 1 in m).
  const double gram = 6 * kM * kM * kN + 14 * kM * kM * kM;
  const double standard = 15 * kM * kM * kN + 5 * kM * kM * kM;
  CHECK(flopsOf(256, 512, Form::kGram) == Approx(gram).epsilon(1 / kM));
  CHECK(flopsOf(512, 256, Form::kGram) == Approx(gram).epsilon(1 / kM));
  CHECK(flopsOf(256, 512, Form::kStandard) == Approx(standard).epsilon(1 / kM));
  CHECK(flopsOf(256, 512, Form::kAutomatic) == flopsOf(256, 512, Form::kGram));
  CHECK(flopsOf(256, 256, Form::kAutomatic) == flopsOf(256, 256, Form::kStandard));
}

TEST_CASE("math timing: larger matrices take longer, and the caller's random numbers stay the same (#10)") {
  const auto set = coefficientSet("polar-express");
  std::srand(5);
  const int first = std::rand();
  const int second = std::rand();
  std::srand(5);
  CHECK(std::rand() == first);
  const double small = vmuon::measureNewtonSchulz(32, 64, set);
  const double large = vmuon::measureNewtonSchulz(256, 1024, set);
  CHECK(std::rand() == second);
  CHECK(small > 0);
  CHECK(large > 4 * small);
  CHECK(vmuon::measureNewtonSchulz(0, 64, set) == 0);
}
