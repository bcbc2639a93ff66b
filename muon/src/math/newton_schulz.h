// SPDX-License-Identifier: Apache-2.0
// Newton-Schulz: replaces a matrix by about the nearest one with all singular values 1, U V^T of its singular value
// decomposition U S V^T.
#pragma once

#include <cstdint>
#include <memory>

#include "math/coefficients.h"

namespace vmuon {

// Both forms compute the same polynomials. With m the smaller and n the larger dimension, the standard form multiplies
// m x n matrices in every step; the Gram form works on X X^T and touches X only to start, at restarts and to finish.
enum class Form {
  kAutomatic,  // Gram, but standard for square matrices, where it is as fast and more accurate
  kGram,
  kStandard
};

// One per thread. Keeps its workspace, which only grows: 4 m m + 512 m floats for the Gram form, 2 m m + 512 m for the
// standard form. Same input, same coefficients: the same bits.
class NewtonSchulz {
 public:
  explicit NewtonSchulz(CoefficientSet set, Form form = Form::kAutomatic);
  ~NewtonSchulz();
  NewtonSchulz(NewtonSchulz&&) noexcept;
  NewtonSchulz& operator=(NewtonSchulz&&) noexcept;

  // In place, row-major, any shape (tall ones are treated as their transpose); nothing to do if empty.
  // The result does not depend on the scale of x, from the smallest to the largest fp32 values. All zeros stay zeros.
  // If any value is NaN or infinite, all values become NaN: such gradients are found earlier (sumOfSquares) and the
  // step skipped.
  void orthogonalize(float* x, int64_t rows, int64_t cols);
  // Each of `count` matrices that follow each other in memory, as orthogonalize does: experts are normalised one by
  // one.
  void orthogonalizeBatch(float* x, int64_t count, int64_t rows, int64_t cols);

  const CoefficientSet& coefficients() const { return set_; }
  // Since construction: matrices that were not empty, and operations done on them (symmetric results count one
  // triangle).
  uint64_t calls() const { return calls_; }
  double flops() const { return flops_; }

 private:
  void reserve(int64_t floats);
  void iterateGram(float* x, int64_t rows, int64_t cols);
  void iterateStandard(float* x, int64_t rows, int64_t cols);

  CoefficientSet set_;
  Form form_;
  std::unique_ptr<float[]> workspace_;
  int64_t workspaceFloats_ = 0;
  uint64_t calls_ = 0;
  double flops_ = 0;
};

}  // namespace vmuon
