// SPDX-License-Identifier: Apache-2.0
#include "math_reference.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace vmuon_test {
namespace {

// Makes the rows orthonormal, by Gram-Schmidt done twice.
void orthonormalizeRows(Matrix& a) {
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t j = 0; j < i; ++j) {
        double dot = 0;
        for (int64_t k = 0; k < a.cols; ++k) dot += a.at(i, k) * a.at(j, k);
        for (int64_t k = 0; k < a.cols; ++k) a.at(i, k) -= dot * a.at(j, k);
      }
    }
    double square = 0;
    for (int64_t k = 0; k < a.cols; ++k) square += a.at(i, k) * a.at(i, k);
    for (int64_t k = 0; k < a.cols; ++k) a.at(i, k) /= std::sqrt(square);
  }
}

void rotateRows(Matrix& a, int64_t p, int64_t q, double c, double s) {
  for (int64_t k = 0; k < a.cols; ++k) {
    const double x = a.at(p, k);
    const double y = a.at(q, k);
    a.at(p, k) = c * x - s * y;
    a.at(q, k) = s * x + c * y;
  }
}

}  // namespace

Matrix transpose(const Matrix& a) {
  Matrix t(a.cols, a.rows);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.cols; ++j) t.at(j, i) = a.at(i, j);
  }
  return t;
}

Matrix multiply(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.cols);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t k = 0; k < a.cols; ++k) {
      const double factor = a.at(i, k);
      for (int64_t j = 0; j < b.cols; ++j) c.at(i, j) += factor * b.at(k, j);
    }
  }
  return c;
}

Matrix scaled(const Matrix& a, double factor) {
  Matrix b = a;
  for (double& value : b.values) value *= factor;
  return b;
}

double norm(const Matrix& a) {
  double square = 0;
  for (const double value : a.values) square += value * value;
  return std::sqrt(square);
}

double relativeError(const Matrix& a, const Matrix& b) {
  double square = 0;
  for (size_t i = 0; i < a.values.size(); ++i) square += std::pow(a.values[i] - b.values[i], 2);
  return std::sqrt(square) / norm(b);
}

double orthogonalityError(const Matrix& a) {
  const Matrix gram = a.rows <= a.cols ? multiply(a, transpose(a)) : multiply(transpose(a), a);
  double worst = 0;
  for (int64_t i = 0; i < gram.rows; ++i) {
    for (int64_t j = 0; j < gram.cols; ++j) worst = std::max(worst, std::abs(gram.at(i, j) - (i == j ? 1 : 0)));
  }
  return worst;
}

std::vector<float> toFloat(const Matrix& a) {
  std::vector<float> values;
  for (const double value : a.values) values.push_back(static_cast<float>(value));
  return values;
}

Matrix toMatrix(const std::vector<float>& values, int64_t rows, int64_t cols) {
  Matrix a(rows, cols);
  std::copy(values.begin(), values.end(), a.values.begin());
  return a;
}

Matrix Svd::polar() const { return multiply(left, right); }

Matrix Svd::product() const {
  Matrix stretched = right;
  for (int64_t i = 0; i < right.rows; ++i) {
    for (int64_t j = 0; j < right.cols; ++j) stretched.at(i, j) *= singular[static_cast<size_t>(i)];
  }
  return multiply(left, stretched);
}

Svd svd(const Matrix& a) {
  if (a.rows > a.cols) {
    Svd t = svd(transpose(a));
    return {transpose(t.right), t.singular, transpose(t.left)};
  }
  // Rotates pairs of rows until all are orthogonal: rotation A = diag(singular) right.
  Matrix rows = a;
  Matrix rotation(a.rows, a.rows);
  for (int64_t i = 0; i < a.rows; ++i) rotation.at(i, i) = 1;
  bool rotated = true;
  for (int sweep = 0; rotated && sweep < 60; ++sweep) {
    rotated = false;
    for (int64_t p = 0; p < a.rows; ++p) {
      for (int64_t q = p + 1; q < a.rows; ++q) {
        double pp = 0;
        double qq = 0;
        double pq = 0;
        for (int64_t k = 0; k < a.cols; ++k) {
          pp += rows.at(p, k) * rows.at(p, k);
          qq += rows.at(q, k) * rows.at(q, k);
          pq += rows.at(p, k) * rows.at(q, k);
        }
        if (std::abs(pq) <= 1e-13 * std::sqrt(pp * qq)) continue;
        rotated = true;
        const double zeta = (qq - pp) / (2 * pq);
        const double tangent = std::copysign(1 / (std::abs(zeta) + std::sqrt(1 + zeta * zeta)), zeta);
        const double c = 1 / std::sqrt(1 + tangent * tangent);
        rotateRows(rows, p, q, c, c * tangent);
        rotateRows(rotation, p, q, c, c * tangent);
      }
    }
  }
  Svd result{transpose(rotation), {}, rows};
  for (int64_t i = 0; i < a.rows; ++i) {
    double square = 0;
    for (int64_t k = 0; k < a.cols; ++k) square += rows.at(i, k) * rows.at(i, k);
    result.singular.push_back(std::sqrt(square));
    for (int64_t k = 0; k < a.cols && square > 0; ++k) result.right.at(i, k) /= std::sqrt(square);
  }
  return result;
}

Matrix newtonSchulz(const Matrix& a, const vmuon::CoefficientSet& set) {
  if (a.rows > a.cols) return transpose(newtonSchulz(transpose(a), set));
  Matrix x = scaled(a, 1 / (norm(a) * set.normFactor));
  for (const vmuon::Step& step : set.steps) {
    const Matrix gram = multiply(x, transpose(x));
    Matrix factor = multiply(gram, gram);
    for (int64_t i = 0; i < gram.rows; ++i) {
      for (int64_t j = 0; j < gram.cols; ++j) {
        factor.at(i, j) = step.c * factor.at(i, j) + step.b * gram.at(i, j) + (i == j ? step.a : 0);
      }
    }
    x = multiply(factor, x);
  }
  return x;
}

double scalarMap(const vmuon::CoefficientSet& set, double s) {
  s /= set.normFactor;
  for (const vmuon::Step& step : set.steps) s = step.a * s + step.b * std::pow(s, 3) + step.c * std::pow(s, 5);
  return s;
}

Matrix gaussian(int64_t rows, int64_t cols, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal;
  Matrix a(rows, cols);
  for (double& value : a.values) value = normal(generator);
  return a;
}

Svd withSpectrum(int64_t rows, int64_t cols, const std::vector<double>& singular, uint64_t seed) {
  const auto rank = static_cast<int64_t>(singular.size());
  Matrix left = gaussian(rank, rows, 2 * seed);
  Matrix right = gaussian(rank, cols, 2 * seed + 1);
  orthonormalizeRows(left);
  orthonormalizeRows(right);
  return {transpose(left), singular, right};
}

}  // namespace vmuon_test
