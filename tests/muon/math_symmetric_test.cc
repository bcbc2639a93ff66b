// SPDX-License-Identifier: Apache-2.0
#include "math/symmetric.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "math_reference.h"

namespace {

using namespace vmuon_test;

// Square matrices have padded rows. Padding is NaN: reading it shows.
std::vector<float> pad(const Matrix& a) {
  const int64_t stride = vmuon::squareStride(a.cols);
  std::vector<float> values(static_cast<size_t>(a.rows * stride), NAN);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.cols; ++j) values[static_cast<size_t>(i * stride + j)] = static_cast<float>(a.at(i, j));
  }
  return values;
}

Matrix unpad(const std::vector<float>& values, int64_t m) {
  Matrix a(m, m);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < m; ++j) a.at(i, j) = values[static_cast<size_t>(i * vmuon::squareStride(m) + j)];
  }
  return a;
}

bool bitwiseSymmetric(const Matrix& a) {
  const int64_t m = a.rows;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      if (a.at(i, j) != a.at(j, i)) return false;
    }
  }
  return true;
}

// Sizes below, at and above the blocks, tiles and panels inside, and no multiples of them.
constexpr int64_t kSizes[] = {1, 2, 3, 15, 16, 17, 48, 63, 64, 65, 96, 127, 130, 200, 257};

}  // namespace

TEST_CASE("math symmetric: alpha A B + beta C of polynomials of one matrix, for any size") {
  for (const int64_t m : kSizes) {
    const Matrix g = scaled(gaussian(m, m + 3, static_cast<uint64_t>(m)), 1 / std::sqrt(static_cast<double>(m)));
    const Matrix a = multiply(g, transpose(g));
    const Matrix b = multiply(a, a);
    const std::vector<float> af = pad(a);
    const std::vector<float> bf = pad(b);
    for (const double beta : {0.0, -2.5}) {
      Matrix wanted = scaled(multiply(a, b), 0.75);
      for (size_t i = 0; i < wanted.values.size(); ++i) wanted.values[i] += beta * b.values[i];
      std::vector<float> out(af.size(), NAN);
      vmuon::symmetricProduct(m, 0.75f, af.data(), bf.data(), static_cast<float>(beta), beta == 0 ? nullptr : bf.data(),
                              out.data());
      INFO("m = " << m << ", beta = " << beta);
      CHECK(relativeError(unpad(out, m), wanted) < 2e-6);
      CHECK(bitwiseSymmetric(unpad(out, m)));
    }
  }
}

TEST_CASE("math symmetric: squares") {
  for (const int64_t m : kSizes) {
    const Matrix g = gaussian(m, m, 5);
    const Matrix a = multiply(g, transpose(g));
    const std::vector<float> af = pad(a);
    Matrix wanted = scaled(multiply(a, a), -0.5);
    for (size_t i = 0; i < wanted.values.size(); ++i) wanted.values[i] += 3 * a.values[i];
    std::vector<float> out(af.size(), NAN);
    vmuon::symmetricProduct(m, -0.5f, af.data(), af.data(), 3, af.data(), out.data());
    INFO("m = " << m);
    CHECK(relativeError(unpad(out, m), wanted) < 2e-6);
    CHECK(bitwiseSymmetric(unpad(out, m)));
  }
}

TEST_CASE("math symmetric: X X^T and X^T X for any shape") {
  for (const int64_t m : kSizes) {
    for (const int64_t n : {int64_t{1}, m, m + 5, int64_t{530}}) {
      for (const bool transposed : {false, true}) {
        const Matrix x = transposed ? gaussian(n, m, 3) : gaussian(m, n, 3);
        const Matrix wanted = transposed ? multiply(transpose(x), x) : multiply(x, transpose(x));
        const std::vector<float> xf = toFloat(x);
        std::vector<float> out(static_cast<size_t>(m * vmuon::squareStride(m)), NAN);
        vmuon::gram(xf.data(), x.rows, x.cols, transposed, out.data());
        INFO("m = " << m << ", n = " << n << ", transposed = " << transposed);
        CHECK(relativeError(unpad(out, m), wanted) < 2e-6);
        CHECK(bitwiseSymmetric(unpad(out, m)));
      }
    }
  }
}

TEST_CASE("math symmetric: B X and X B in place, below and above one panel") {
  for (const int64_t m : {1, 5, 64, 70}) {
    const Matrix g = gaussian(m, m, 9);
    const Matrix b = multiply(g, transpose(g));
    const std::vector<float> bf = pad(b);
    std::vector<float> scratch(static_cast<size_t>(vmuon::multiplyScratch(m)));
    for (const int64_t n : {1, 70, 511, 512, 513, 1100}) {
      for (const bool transposed : {false, true}) {
        const Matrix x = transposed ? gaussian(n, m, 4) : gaussian(m, n, 4);
        const Matrix wanted = transposed ? multiply(x, b) : multiply(b, x);
        std::vector<float> xf = toFloat(x);
        vmuon::multiplyInPlace(bf.data(), xf.data(), x.rows, x.cols, transposed, scratch.data());
        INFO("m = " << m << ", n = " << n << ", transposed = " << transposed);
        CHECK(relativeError(toMatrix(xf, x.rows, x.cols), wanted) < 2e-6);
      }
    }
  }
}
