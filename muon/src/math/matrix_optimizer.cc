// SPDX-License-Identifier: Apache-2.0
#include "math/matrix_optimizer.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "math/gradient_norm.h"

namespace vmuon {
namespace {

class Muon final : public MatrixOptimizer {
 public:
  std::vector<StateTensor> stateTensors(int64_t rows, int64_t cols) const override {
    return {{"momentum", rows, cols}};
  }
  void adapt(const vmuonGroup_t&, float*, int64_t, int64_t, float*) const override {}
};

// NorMuon: rows (neurons) whose updates have been large are turned down and the others up; the norm of the whole update
// stays Muon's. No bias correction: it would be one factor for all rows.
class NorMuon final : public MatrixOptimizer {
 public:
  std::vector<StateTensor> stateTensors(int64_t rows, int64_t cols) const override {
    return {{"momentum", rows, cols}, {"second_moment", rows, 1}};
  }

  void adapt(const vmuonGroup_t& group, float* direction, int64_t rows, int64_t cols, float* extra) const override {
    constexpr double kSmallest = 1e-8;
    double before = 0;
    double after = 0;
    for (int64_t row = 0; row < rows; ++row) {
      float* values = direction + row * cols;
      const double square = sumOfSquares(values, cols);
      const double moment = group.beta2 * extra[row] + (1 - group.beta2) * square / static_cast<double>(cols);
      extra[row] = static_cast<float>(moment);
      const double factor = 1 / std::max(std::sqrt(moment), kSmallest);
      for (int64_t col = 0; col < cols; ++col) values[col] = static_cast<float>(values[col] * factor);
      before += square;
      after += square * factor * factor;
    }
    if (after == 0) return;
    const auto restore = static_cast<float>(std::sqrt(before / after));
    for (int64_t i = 0; i < rows * cols; ++i) direction[i] *= restore;
  }
};

}  // namespace

double learningRateScale(int32_t scale, int64_t rows, int64_t cols) {
  const auto m = static_cast<double>(rows);
  const auto n = static_cast<double>(cols);
  switch (scale) {
    case vmuonScaleMatchAdamW:
      return 0.2 * std::sqrt(std::max(m, n));
    case vmuonScaleOriginal:
      return std::sqrt(std::max(1.0, m / n));
    case vmuonScaleSpectral:
      return std::sqrt(m / n);
    case vmuonScaleNone:
      return 1;
    default:
      throw std::invalid_argument("scale " + std::to_string(scale) + " is not one of vmuonScale_t");
  }
}

double momentumConversion(bool fromEma, bool toEma, double mu) {
  if (fromEma == toEma) return 1;
  return toEma ? 1 - mu : 1 / (1 - mu);
}

int64_t MatrixOptimizer::stateFloats(int64_t rows, int64_t cols) const {
  int64_t floats = 0;
  for (const StateTensor& tensor : stateTensors(rows, cols)) floats += tensor.rows * tensor.cols;
  return floats;
}

void MatrixOptimizer::prepare(const vmuonGroup_t& group, const float* grad, float gradScale, float* momentum,
                              float* direction, int64_t count) const {
  const auto mu = static_cast<float>(group.momentum);
  // Sum: M = mu M + G, U = G + mu M. Average: M = mu M + (1 - mu) G, U = (1 - mu) G + mu M.
  const float share = group.emaMomentum ? static_cast<float>(1 - group.momentum) : 1.0f;
  if (group.nesterov) {
    for (int64_t i = 0; i < count; ++i) {
      const float added = share * (gradScale * grad[i]);
      momentum[i] = mu * momentum[i] + added;
      direction[i] = mu * momentum[i] + added;
    }
  } else {
    for (int64_t i = 0; i < count; ++i) {
      momentum[i] = mu * momentum[i] + share * (gradScale * grad[i]);
      direction[i] = momentum[i];
    }
  }
}

void MatrixOptimizer::apply(const vmuonGroup_t& group, int64_t rows, int64_t cols, const float* direction,
                            float* master, int64_t count) const {
  const auto keep = static_cast<float>(1 - group.lr * group.weightDecay);
  const auto step = static_cast<float>(group.lr * learningRateScale(group.scale, rows, cols));
  for (int64_t i = 0; i < count; ++i) master[i] = keep * master[i] - step * direction[i];
}

void MatrixOptimizer::update(NewtonSchulz& newtonSchulz, const MatrixUpdate& u) const {
  const int64_t count = u.rows * u.cols;
  prepare(*u.group, u.grad, u.gradScale, u.state, u.direction, count);
  newtonSchulz.orthogonalize(u.direction, u.rows, u.cols);
  adapt(*u.group, u.direction, u.rows, u.cols, u.state + count);
  apply(*u.group, u.rows, u.cols, u.direction, u.master, count);
}

const MatrixOptimizer& matrixOptimizer(int32_t which) {
  static constexpr Muon muon;
  static constexpr NorMuon norMuon;
  switch (which) {
    case vmuonOptMuon:
      return muon;
    case vmuonOptNorMuon:
      return norMuon;
    default:
      throw std::invalid_argument("matrix optimizer " + std::to_string(which) +
                                  " is not one of vmuonMatrixOptimizer_t");
  }
}

}  // namespace vmuon
