// SPDX-License-Identifier: Apache-2.0
// What is done to one matrix in a step. The runtime moves gradients and weights and knows no more of the method than
// this interface; another method is another object.
//
// A step of a whole matrix is update(). Its parts can be used by themselves: prepare and apply work element by element
// and so on any range of the matrix (line B keeps them sharded), orthogonalisation and adapt need the whole matrix. A
// matrix is what is orthogonalised: one expert of a stack, one block of fused rows. Scales follow its shape.
#pragma once

#include <vmuon/vmuon.h>
#include <cstdint>
#include <string>
#include <vector>

#include "math/newton_schulz.h"

namespace vmuon {

// The factor of a vmuonScale_t on the learning rate, for a matrix of that shape. Weight decay uses the plain rate.
double learningRateScale(int32_t scale, int64_t rows, int64_t cols);

// What M is multiplied with to go from one convention of momentum to the other: with gradients G the sum M = mu M + G
// grows to 1 / (1 - mu) times the average M = mu M + (1 - mu) G.
double momentumConversion(bool fromEma, bool toEma, double mu);

struct StateTensor {
  const char* name;  // in checkpoints
  int64_t rows;
  int64_t cols;
};

struct MatrixUpdate {
  int64_t rows = 0;
  int64_t cols = 0;
  const vmuonGroup_t* group = nullptr;
  const float* grad = nullptr;  // of the whole batch, summed over ranks
  float gradScale = 1;          // from clipping
  float* state = nullptr;       // stateFloats() of them, zero before the first step
  float* master = nullptr;
  float* direction = nullptr;  // rows * cols of scratch; may be grad itself
};

class MatrixOptimizer {
 public:
  // The tensors of the state, one after the other in memory. The first one is the momentum, of the matrix's own shape.
  virtual std::vector<StateTensor> stateTensors(int64_t rows, int64_t cols) const = 0;
  int64_t stateFloats(int64_t rows, int64_t cols) const;

  // For any range of `count` elements: takes in the gradient and gives what is to be orthogonalised. direction may be
  // grad.
  void prepare(const vmuonGroup_t& group, const float* grad, float gradScale, float* momentum, float* direction,
               int64_t count) const;
  // For a whole orthogonalised matrix; `extra` is the state after the momentum.
  virtual void adapt(const vmuonGroup_t& group, float* direction, int64_t rows, int64_t cols, float* extra) const = 0;
  // For any range of `count` elements of a rows x cols matrix: weight decay, then the step.
  void apply(const vmuonGroup_t& group, int64_t rows, int64_t cols, const float* direction, float* master,
             int64_t count) const;

  // All of it.
  void update(NewtonSchulz& newtonSchulz, const MatrixUpdate& update) const;

 protected:
  ~MatrixOptimizer() = default;
};

// Of a vmuonMatrixOptimizer_t.
const MatrixOptimizer& matrixOptimizer(int32_t which);

}  // namespace vmuon
