// SPDX-License-Identifier: Apache-2.0
#include "train_gpt/model.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>

#include "train_gpt/mix.h"

namespace gpt {
namespace {

// Parameters by number: the two embeddings, then every block's, then the final norm's gain.
constexpr int kTokens = 0, kPositions = 1, kFirstBlock = 2;
enum BlockParameter { kNorm1, kQkv, kProjection, kNorm2, kUp, kDown, kBlockParameters };

int numberOf(size_t block, BlockParameter parameter) {
  return kFirstBlock + static_cast<int>(block) * kBlockParameters + parameter;
}

void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, float alpha, const float* a, int lda,
          const float* b, int ldb, float beta, float* c, int ldc) {
  cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, double alpha, const double* a, int lda,
          const double* b, int ldb, double beta, double* c, int ldc) {
  cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

// One matrix inside an array of rows that are `stride` apart.
template <typename T>
struct Matrix {
  T* data;
  size_t stride;
};

// c[m, n] = alpha op(a) op(b) + beta c, where op transposes or not and the inner dimension is k.
template <typename T>
void multiply(bool transposeA, bool transposeB, size_t m, size_t n, size_t k, T alpha, Matrix<const T> a,
              Matrix<const T> b, T beta, Matrix<T> c) {
  gemm(transposeA ? CblasTrans : CblasNoTrans, transposeB ? CblasTrans : CblasNoTrans, static_cast<int>(m),
       static_cast<int>(n), static_cast<int>(k), alpha, a.data, static_cast<int>(a.stride), b.data,
       static_cast<int>(b.stride), beta, c.data, static_cast<int>(c.stride));
}

// y[rows, out] = x[rows, in] w^T, or added to y.
template <typename T>
void linear(size_t rows, size_t in, size_t out, const T* x, const T* w, bool add, T* y) {
  multiply<T>(false, true, rows, out, in, 1, {x, in}, {w, in}, add ? T{1} : T{0}, {y, out});
}

// From dy: dw += dy^T x and dx = dy w.
template <typename T>
void linearBackward(size_t rows, size_t in, size_t out, const T* x, const T* w, const T* dy, T* dw, T* dx) {
  multiply<T>(true, false, out, in, rows, 1, {dy, out}, {x, in}, 1, {dw, in});
  multiply<T>(false, false, rows, in, out, 1, {dy, out}, {w, in}, 0, {dx, in});
}

template <typename T>
void normalize(size_t rows, size_t width, const T* x, const T* gain, T* scale, T* y) {
  constexpr T kEpsilon = T(1e-5);
  for (size_t r = 0; r < rows; ++r, x += width, y += width) {
    T sum = 0;
    for (size_t i = 0; i < width; ++i) sum += x[i] * x[i];
    scale[r] = 1 / std::sqrt(sum / static_cast<T>(width) + kEpsilon);
    for (size_t i = 0; i < width; ++i) y[i] = x[i] * scale[r] * gain[i];
  }
}

// dx is added to.
template <typename T>
void normalizeBackward(size_t rows, size_t width, const T* x, const T* gain, const T* scale, const T* dy, T* dGain,
                       T* dx) {
  for (size_t r = 0; r < rows; ++r, x += width, dy += width, dx += width) {
    T along = 0;  // of the gradient, along x
    for (size_t i = 0; i < width; ++i) {
      dGain[i] += dy[i] * x[i] * scale[r];
      along += dy[i] * gain[i] * x[i];
    }
    along *= scale[r] * scale[r] / static_cast<T>(width);
    for (size_t i = 0; i < width; ++i) dx[i] += scale[r] * (dy[i] * gain[i] - along * x[i]);
  }
}

// x becomes GELU(x), by the usual approximation with tanh; slope gets the derivative.
template <typename T>
void gelu(size_t n, T* x, T* slope) {
  constexpr T kFactor = T(1.5957691216057308), kCubic = T(0.044715);  // 2 sqrt(2 / pi)
  for (size_t i = 0; i < n; ++i) {
    const T square = x[i] * x[i];
    const T s = 1 / (1 + std::exp(-kFactor * x[i] * (1 + kCubic * square)));
    slope[i] = s + x[i] * s * (1 - s) * kFactor * (1 + 3 * kCubic * square);
    x[i] *= s;
  }
}

// row becomes its softmax; returns the logarithm of the sum of exponentials.
template <typename T>
T softmax(size_t n, T* row) {
  const T largest = *std::max_element(row, row + n);
  T sum = 0;
  for (size_t i = 0; i < n; ++i) sum += row[i] = std::exp(row[i] - largest);
  const T factor = 1 / sum;
  for (size_t i = 0; i < n; ++i) row[i] *= factor;
  return largest + std::log(sum);
}

}  // namespace

size_t Parameter::elements() const {
  size_t n = 1;
  for (const uint64_t d : shape) n *= d;
  return n;
}

std::vector<Parameter> parametersOf(const Shape& shape) {
  const uint64_t width = shape.width;
  // The variance of what a matrix gives is a third of that of its input; less where it is added to the stream.
  const float spread = 1 / std::sqrt(static_cast<float>(width));
  const float added = spread / std::sqrt(2 * static_cast<float>(shape.layers));
  std::vector<Parameter> all;
  all.push_back({"embed.tokens", Kind::kElementwise, 0, {kVocabulary, width}, {}, 0, 0.03f});
  all.push_back({"embed.positions", Kind::kElementwise, 0, {shape.context, width}, {}, 0, 0.03f});
  for (size_t b = 0; b < shape.layers; ++b) {
    const std::string prefix = "block" + std::to_string(b) + ".";
    const int layer = static_cast<int>(b) + 1;
    all.push_back({prefix + "norm1.gain", Kind::kElementwise, layer, {width}, {}, 1, 0});
    all.push_back(
        {prefix + "attention.qkv", Kind::kFusedRows, layer, {3 * width, width}, {width, width, width}, 0, spread});
    all.push_back({prefix + "attention.projection", Kind::kMatrix, layer, {width, width}, {}, 0, added});
    all.push_back({prefix + "norm2.gain", Kind::kElementwise, layer, {width}, {}, 1, 0});
    all.push_back({prefix + "mlp.up", Kind::kMatrix, layer, {4 * width, width}, {}, 0, spread});
    all.push_back({prefix + "mlp.down", Kind::kMatrix, layer, {width, 4 * width}, {}, 0, added / 2});
  }
  all.push_back({"norm.gain", Kind::kElementwise, static_cast<int>(shape.layers) + 1, {width}, {}, 1, 0});
  return all;
}

std::vector<float> initialValues(const Parameter& parameter, uint64_t seed) {
  const uint64_t stream = mix(mix(seed), parameter.name);
  std::vector<float> values(parameter.elements());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto draw = static_cast<float>(mix(stream + i) >> 40) / 8388608.0f - 1.0f;  // 24 bits, in [-1, 1)
    values[i] = parameter.center + parameter.spread * draw;
  }
  return values;
}

template <typename T>
Model<T>::Model(const Shape& shape, size_t sequences)
    : rows_(shape.context),
      width_(shape.width),
      heads_(shape.heads),
      blocks_(shape.layers),
      sequences_(sequences),
      tokens_(sequences * (rows_ + 1)),
      stream_(sequences * rows_ * width_),
      last_(stream_.size()),
      lastScale_(sequences * rows_),
      lastNorm_(stream_.size()),
      logits_(sequences * rows_ * kVocabulary),
      dRows_(rows_ * width_),
      dQkv_(3 * rows_ * width_),
      dAttention_(rows_ * rows_),
      dHidden_(4 * rows_ * width_) {
  savedElements_ = rows_ * (16 * width_ + 2 + heads_ * rows_);
  saved_.resize(blocks_ * sequences_ * savedElements_);
}

template <typename T>
typename Model<T>::Saved Model<T>::saved(size_t block, size_t sequence) {
  T* at = &saved_[(block * sequences_ + sequence) * savedElements_];
  const auto take = [&at](size_t elements) {
    T* taken = at;
    at += elements;
    return taken;
  };
  const size_t plane = rows_ * width_;
  Saved s;
  s.in = take(plane);
  s.scale1 = take(rows_);
  s.norm1 = take(plane);
  s.qkv = take(3 * plane);
  s.attention = take(heads_ * rows_ * rows_);
  s.mixed = take(plane);
  s.middle = take(plane);
  s.scale2 = take(rows_);
  s.norm2 = take(plane);
  s.slope = take(4 * plane);
  s.hidden = take(4 * plane);
  return s;
}

template <typename T>
void Model<T>::attend(const Saved& s) {
  const size_t size = width_ / heads_, stride = 3 * width_;
  const T scale = 1 / std::sqrt(static_cast<T>(size));
  for (size_t h = 0; h < heads_; ++h) {
    const T *q = s.qkv + h * size, *k = q + width_, *v = k + width_;
    T* weights = s.attention + h * rows_ * rows_;
    multiply<T>(false, true, rows_, rows_, size, scale, {q, stride}, {k, stride}, 0, {weights, rows_});
    for (size_t r = 0; r < rows_; ++r) {
      T* row = weights + r * rows_;
      softmax(r + 1, row);
      std::fill(row + r + 1, row + rows_, T{0});  // what comes later is not seen
    }
    multiply<T>(false, false, rows_, size, rows_, 1, {weights, rows_}, {v, stride}, 0, {s.mixed + h * size, width_});
  }
}

// From dRows_, the gradient of s.mixed, to dQkv_.
template <typename T>
void Model<T>::attendBackward(const Saved& s) {
  const size_t size = width_ / heads_, stride = 3 * width_;
  const T scale = 1 / std::sqrt(static_cast<T>(size));
  for (size_t h = 0; h < heads_; ++h) {
    const T *q = s.qkv + h * size, *k = q + width_, *v = k + width_;
    T *dq = &dQkv_[h * size], *dk = dq + width_, *dv = dk + width_;
    const T* weights = s.attention + h * rows_ * rows_;
    const Matrix<const T> dMixed{&dRows_[h * size], width_};
    multiply<T>(true, false, rows_, size, rows_, 1, {weights, rows_}, dMixed, 0, {dv, stride});
    multiply<T>(false, true, rows_, rows_, size, 1, dMixed, {v, stride}, 0, {dAttention_.data(), rows_});
    for (size_t r = 0; r < rows_; ++r) {
      const T* p = weights + r * rows_;
      T* d = &dAttention_[r * rows_];
      T mean = 0;
      for (size_t i = 0; i <= r; ++i) mean += p[i] * d[i];
      for (size_t i = 0; i < rows_; ++i) d[i] = p[i] * (d[i] - mean);
    }
    const Matrix<const T> dScores{dAttention_.data(), rows_};
    multiply<T>(false, false, rows_, size, rows_, scale, dScores, {k, stride}, 0, {dq, stride});
    multiply<T>(true, false, rows_, size, rows_, scale, dScores, {q, stride}, 0, {dk, stride});
  }
}

template <typename T>
void Model<T>::forwardBlock(Weights<T>& weights, size_t block) {
  const auto value = [&](BlockParameter p) { return weights.value(numberOf(block, p)); };
  const size_t plane = rows_ * width_;
  for (size_t i = 0; i < sequences_; ++i) {
    const Saved s = saved(block, i);
    T* x = stream(i);
    std::copy_n(x, plane, s.in);
    normalize(rows_, width_, x, value(kNorm1), s.scale1, s.norm1);
    linear(rows_, width_, 3 * width_, s.norm1, value(kQkv), false, s.qkv);
    attend(s);
    linear(rows_, width_, width_, s.mixed, value(kProjection), true, x);
    std::copy_n(x, plane, s.middle);
    normalize(rows_, width_, x, value(kNorm2), s.scale2, s.norm2);
    linear(rows_, width_, 4 * width_, s.norm2, value(kUp), false, s.hidden);
    gelu(4 * plane, s.hidden, s.slope);
    linear(rows_, 4 * width_, width_, s.hidden, value(kDown), true, x);
  }
}

template <typename T>
void Model<T>::backwardBlock(Weights<T>& weights, size_t block) {
  const auto value = [&](BlockParameter p) { return weights.value(numberOf(block, p)); };
  const auto gradient = [&](BlockParameter p) { return weights.gradient(numberOf(block, p)); };
  for (size_t i = 0; i < sequences_; ++i) {
    const Saved s = saved(block, i);
    T* dx = stream(i);
    linearBackward(rows_, 4 * width_, width_, s.hidden, value(kDown), dx, gradient(kDown), dHidden_.data());
    for (size_t j = 0; j < dHidden_.size(); ++j) dHidden_[j] *= s.slope[j];
    linearBackward(rows_, width_, 4 * width_, s.norm2, value(kUp), dHidden_.data(), gradient(kUp), dRows_.data());
    normalizeBackward(rows_, width_, s.middle, value(kNorm2), s.scale2, dRows_.data(), gradient(kNorm2), dx);
    linearBackward(rows_, width_, width_, s.mixed, value(kProjection), dx, gradient(kProjection), dRows_.data());
    attendBackward(s);
    linearBackward(rows_, width_, 3 * width_, s.norm1, value(kQkv), dQkv_.data(), gradient(kQkv), dRows_.data());
    normalizeBackward(rows_, width_, s.in, value(kNorm1), s.scale1, dRows_.data(), gradient(kNorm1), dx);
  }
}

// The loss of a sequence from lastNorm_; leaves its gradient with respect to the logits, times the context, in logits_.
template <typename T>
double Model<T>::head(const T* embedding, size_t sequence) {
  T* logits = &logits_[sequence * rows_ * kVocabulary];
  linear(rows_, width_, kVocabulary, &lastNorm_[sequence * rows_ * width_], embedding, false, logits);
  double loss = 0;
  for (size_t r = 0; r < rows_; ++r, logits += kVocabulary) {
    const uint8_t next = tokens(sequence)[r + 1];
    const T wanted = logits[next];
    loss += static_cast<double>(softmax(kVocabulary, logits) - wanted);
    logits[next] -= 1;
  }
  return loss / static_cast<double>(rows_);
}

template <typename T>
void Model<T>::forward(Weights<T>& weights, const uint8_t* text, double* losses) {
  std::copy_n(text, tokens_.size(), tokens_.begin());
  weights.begin(Pass::kForward, 0);
  const T *embedding = weights.value(kTokens), *positions = weights.value(kPositions);
  for (size_t i = 0; i < sequences_; ++i) {
    for (size_t r = 0; r < rows_; ++r) {
      const T *token = embedding + tokens(i)[r] * width_, *position = positions + r * width_;
      T* x = stream(i) + r * width_;
      for (size_t j = 0; j < width_; ++j) x[j] = token[j] + position[j];
    }
  }
  for (size_t b = 0; b < blocks_; ++b) {
    const int layer = static_cast<int>(b) + 1;
    weights.begin(Pass::kForward, layer);
    forwardBlock(weights, b);
    weights.end(Pass::kForward, layer);
  }
  const int last = static_cast<int>(blocks_) + 1;
  weights.begin(Pass::kForward, last);
  last_ = stream_;
  const T* gain = weights.value(numberOf(blocks_, kNorm1));
  normalize(sequences_ * rows_, width_, last_.data(), gain, lastScale_.data(), lastNorm_.data());
  weights.end(Pass::kForward, last);
  for (size_t i = 0; i < sequences_; ++i) losses[i] = head(embedding, i);
  weights.end(Pass::kForward, 0);
}

template <typename T>
void Model<T>::backward(Weights<T>& weights, double scale) {
  weights.begin(Pass::kBackward, 0);
  const T* embedding = weights.value(kTokens);
  T *dEmbedding = weights.gradient(kTokens), *dPositions = weights.gradient(kPositions);
  const T factor = static_cast<T>(scale / static_cast<double>(rows_));
  for (T& d : logits_) d *= factor;
  // lastNorm_ becomes its own gradient.
  for (size_t i = 0; i < sequences_; ++i) {
    T* norm = &lastNorm_[i * rows_ * width_];
    linearBackward(rows_, width_, kVocabulary, norm, embedding, &logits_[i * rows_ * kVocabulary], dEmbedding, norm);
  }
  const int last = static_cast<int>(blocks_) + 1;
  weights.begin(Pass::kBackward, last);
  std::fill(stream_.begin(), stream_.end(), T{0});
  const int gain = numberOf(blocks_, kNorm1);
  normalizeBackward(sequences_ * rows_, width_, last_.data(), weights.value(gain), lastScale_.data(), lastNorm_.data(),
                    weights.gradient(gain), stream_.data());
  weights.end(Pass::kBackward, last);
  for (size_t b = blocks_; b-- > 0;) {
    const int layer = static_cast<int>(b) + 1;
    weights.begin(Pass::kBackward, layer);
    backwardBlock(weights, b);
    weights.end(Pass::kBackward, layer);
  }
  for (size_t i = 0; i < sequences_; ++i) {
    for (size_t r = 0; r < rows_; ++r) {
      const T* dx = stream(i) + r * width_;
      T *token = dEmbedding + tokens(i)[r] * width_, *position = dPositions + r * width_;
      for (size_t j = 0; j < width_; ++j) {
        token[j] += dx[j];
        position[j] += dx[j];
      }
    }
  }
  weights.end(Pass::kBackward, 0);
}

template class Model<float>;
template class Model<double>;

}  // namespace gpt
