// SPDX-License-Identifier: Apache-2.0
// Slow double-precision counterparts of libvmuon's math, written from the definitions, and matrices to try it on.
#pragma once

#include <cstdint>
#include <vector>

#include "math/coefficients.h"

namespace vmuon_test {

struct Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<double> values;

  Matrix() = default;
  Matrix(int64_t r, int64_t c) : rows(r), cols(c), values(static_cast<size_t>(r * c)) {}
  double& at(int64_t i, int64_t j) { return values[static_cast<size_t>(i * cols + j)]; }
  double at(int64_t i, int64_t j) const { return values[static_cast<size_t>(i * cols + j)]; }
};

Matrix transpose(const Matrix& a);
Matrix multiply(const Matrix& a, const Matrix& b);
Matrix scaled(const Matrix& a, double factor);
double norm(const Matrix& a);
// Frobenius norm of a - b over that of b.
double relativeError(const Matrix& a, const Matrix& b);
// Largest |(A A^T - I)(i, j)|, or of A^T A for tall matrices.
double orthogonalityError(const Matrix& a);

std::vector<float> toFloat(const Matrix& a);
Matrix toMatrix(const std::vector<float>& values, int64_t rows, int64_t cols);

// A = left diag(singular) right: left has orthonormal columns, right orthonormal rows. One-sided Jacobi, any shape.
struct Svd {
  Matrix left;
  std::vector<double> singular;
  Matrix right;
  Matrix polar() const;    // left right
  Matrix product() const;  // A
};
Svd svd(const Matrix& a);

// The standard iteration, as published: norm, then X = a X + b X X^T X + c (X X^T)^2 X for each step.
Matrix newtonSchulz(const Matrix& a, const vmuon::CoefficientSet& set);
// What the set makes of a singular value s of a matrix of norm 1.
double scalarMap(const vmuon::CoefficientSet& set, double s);

Matrix gaussian(int64_t rows, int64_t cols, uint64_t seed);
// left diag(singular) right with random orthonormal factors; min(rows, cols) singular values.
Svd withSpectrum(int64_t rows, int64_t cols, const std::vector<double>& singular, uint64_t seed);

}  // namespace vmuon_test
