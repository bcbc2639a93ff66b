// SPDX-License-Identifier: Apache-2.0
#include "math/newton_schulz.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "math/gradient_norm.h"
#include "math/symmetric.h"

namespace vmuon {
namespace {

void addToDiagonal(float* a, int64_t m, double value) {
  const auto add = static_cast<float>(value);
  for (int64_t i = 0; i < m; ++i) a[i * (squareStride(m) + 1)] += add;
}

}  // namespace

NewtonSchulz::NewtonSchulz(CoefficientSet set, Form form) : set_(std::move(set)), form_(form) { useOneBlasThread(); }
NewtonSchulz::~NewtonSchulz() = default;
NewtonSchulz::NewtonSchulz(NewtonSchulz&&) noexcept = default;
NewtonSchulz& NewtonSchulz::operator=(NewtonSchulz&&) noexcept = default;

void NewtonSchulz::reserve(int64_t floats) {
  if (floats <= workspaceFloats_) return;
  workspace_.reset();  // before the new one is taken: never both
  workspaceFloats_ = 0;
  workspace_.reset(new float[static_cast<size_t>(floats)]);
  workspaceFloats_ = floats;
}

void NewtonSchulz::orthogonalize(float* x, int64_t rows, int64_t cols) {
  const int64_t count = rows * cols;
  if (rows <= 0 || cols <= 0) return;
  ++calls_;
  const double norm = std::sqrt(sumOfSquares(x, count));
  if (!std::isfinite(norm)) {
    std::fill(x, x + count, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  if (norm == 0) {
    std::fill(x, x + count, 0.0f);  // no negative zeros
    return;
  }
  const double factor = 1 / (norm * set_.normFactor);  // in double: may lie outside fp32
  for (int64_t i = 0; i < count; ++i) x[i] = static_cast<float>(x[i] * factor);
  if (form_ == Form::kStandard || (form_ == Form::kAutomatic && rows == cols)) {
    iterateStandard(x, rows, cols);
  } else {
    iterateGram(x, rows, cols);
  }
}

void NewtonSchulz::orthogonalizeBatch(float* x, int64_t count, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < count; ++i) orthogonalize(x + i * rows * cols, rows, cols);
}

// With R = X X^T every step is X <- (a I + b R + c R R) X. Q gathers these factors, R follows as Q' R Q', and only at a
// restart and at the end X is multiplied.
void NewtonSchulz::iterateGram(float* x, int64_t rows, int64_t cols) {
  const bool tall = rows > cols;
  const int64_t m = std::min(rows, cols);
  const int64_t n = std::max(rows, cols);
  const int64_t square = m * squareStride(m);
  reserve(4 * square + multiplyScratch(m));
  float* r = workspace_.get();
  float* w = r + square;
  float* q = w + square;
  float* t = q + square;
  float* scratch = t + square;
  const auto product = [&](double alpha, const float* a, const float* b, double beta, const float* c, float* out) {
    symmetricProduct(m, static_cast<float>(alpha), a, b, static_cast<float>(beta), c, out);
    flops_ += symmetricProductFlops(m);
  };
  const auto startFromX = [&] {
    gram(x, rows, cols, tall, r);
    flops_ += gramFlops(m, n);
  };
  const auto multiplyX = [&] {
    multiplyInPlace(q, x, rows, cols, tall, scratch);
    flops_ += multiplyFlops(m, n);
  };

  startFromX();
  const int steps = static_cast<int>(set_.steps.size());
  for (int i = 0; i < steps; ++i) {
    const Step& step = set_.steps[static_cast<size_t>(i)];
    const bool restart = i > 0 && set_.restartsBefore(i);
    if (restart) {
      multiplyX();
      startFromX();
    }
    product(step.c, r, r, step.b, r, w);
    addToDiagonal(w, m, step.a);  // W = a I + b R + c R R
    if (i == 0 || restart) {
      std::copy(w, w + square, q);
    } else {
      product(1, q, w, 0, nullptr, t);
      std::swap(q, t);  // Q = Q W
    }
    if (i + 1 < steps && !set_.restartsBefore(i + 1)) {
      // R = W R W as R (W W): a square and a product are cheaper than two products.
      product(1, w, w, 0, nullptr, t);
      product(1, r, t, 0, nullptr, w);
      std::swap(r, w);
    }
  }
  multiplyX();
}

void NewtonSchulz::iterateStandard(float* x, int64_t rows, int64_t cols) {
  const bool tall = rows > cols;
  const int64_t m = std::min(rows, cols);
  const int64_t n = std::max(rows, cols);
  const int64_t square = m * squareStride(m);
  reserve(2 * square + multiplyScratch(m));
  float* a = workspace_.get();
  float* b = a + square;
  for (const Step& step : set_.steps) {
    gram(x, rows, cols, tall, a);
    symmetricProduct(m, static_cast<float>(step.c), a, a, static_cast<float>(step.b), a, b);  // b A + c A A
    addToDiagonal(b, m, step.a);
    multiplyInPlace(b, x, rows, cols, tall, b + square);
    flops_ += gramFlops(m, n) + symmetricProductFlops(m) + multiplyFlops(m, n);
  }
}

}  // namespace vmuon
