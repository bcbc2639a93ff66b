// SPDX-License-Identifier: Apache-2.0
// A GPT over bytes with its backward pass written out, all products by BLAS: token and position embeddings, pre-norm
// blocks (RMSNorm, causal attention, RMSNorm, MLP with GELU), a final RMSNorm, and the token embedding again as head.
//
// It knows its weights by number only and asks for them layer by layer (Weights), so that a layer's weights need to be
// in memory only while that layer is at work. Layer 0 holds the embeddings, 1 to L the blocks, L + 1 the final norm.
// The head shares layer 0's storage: layer 0 is open from the lookup to the head in forward, and from the head to the
// lookup in backward, where both add to the same gradient.
//
// Every sequence is computed by itself, with products of the same shapes whatever the number of sequences: its loss is
// the same bit for bit wherever it is computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gpt {

constexpr size_t kVocabulary = 256;

struct Shape {
  size_t context = 64;  // bytes of a sequence
  size_t layers = 4;
  size_t width = 128;
  size_t heads = 4;
};

enum class Kind { kMatrix, kFusedRows, kElementwise };

// Weight matrices are [outputs, inputs].
struct Parameter {
  std::string name;
  Kind kind;
  int layer;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> splits;  // kFusedRows: rows of each block
  float center;                  // initial values are uniform in center +- spread
  float spread;

  size_t elements() const;
};

// By number.
std::vector<Parameter> parametersOf(const Shape& shape);
// They depend on the seed, the name and the position only.
std::vector<float> initialValues(const Parameter& parameter, uint64_t seed);

enum class Pass { kForward, kBackward };

template <typename T>
class Weights {
 public:
  virtual ~Weights() = default;
  virtual void begin(Pass pass, int layer) = 0;
  virtual void end(Pass pass, int layer) = 0;
  // Between begin and end of the parameter's layer.
  virtual const T* value(int parameter) = 0;
  // Likewise, in backward; added to.
  virtual T* gradient(int parameter) = 0;
};

// float or double.
template <typename T>
class Model {
 public:
  // sequences: of one micro-batch. shape.heads divides shape.width.
  Model(const Shape& shape, size_t sequences);

  // text: sequences times context + 1 bytes; every byte but the first is predicted from those before it. losses: the
  // mean over each sequence, in nats.
  void forward(Weights<T>& weights, const uint8_t* text, double* losses);
  // Of the last forward: adds the gradient of scale times the sum of its losses.
  void backward(Weights<T>& weights, double scale);

 private:
  // What forward leaves of a block and a sequence for backward.
  struct Saved {
    T* in;         // [context, width]
    T* scale1;     // [context]: 1 / root mean square
    T* norm1;      // [context, width]
    T* qkv;        // [context, 3 width]
    T* attention;  // [heads, context, context]
    T* mixed;      // [context, width]: before the projection
    T* middle;     // [context, width]: after attention was added
    T* scale2;
    T* norm2;
    T* slope;   // [context, 4 width]: GELU's derivative
    T* hidden;  // [context, 4 width]: after GELU
  };
  Saved saved(size_t block, size_t sequence);
  T* stream(size_t sequence) { return &stream_[sequence * rows_ * width_]; }
  const uint8_t* tokens(size_t sequence) const { return &tokens_[sequence * (rows_ + 1)]; }
  void attend(const Saved& s);
  void attendBackward(const Saved& s);
  void forwardBlock(Weights<T>& weights, size_t block);
  void backwardBlock(Weights<T>& weights, size_t block);
  double head(const T* embedding, size_t sequence);

  const size_t rows_;  // the context
  const size_t width_;
  const size_t heads_;
  const size_t blocks_;
  const size_t sequences_;
  size_t savedElements_ = 0;  // of one block and sequence
  std::vector<uint8_t> tokens_;
  std::vector<T> saved_;
  std::vector<T> stream_;     // [sequences, context, width]: the residual stream; in backward its gradient
  std::vector<T> last_;       // the stream before the final norm
  std::vector<T> lastScale_;  // [sequences, context]
  std::vector<T> lastNorm_;   // [sequences, context, width]
  std::vector<T> logits_;     // [sequences, context, vocabulary]: then probabilities, less 1 at what came
  // Gradients of one sequence in a block.
  std::vector<T> dRows_;       // [context, width]
  std::vector<T> dQkv_;        // [context, 3 width]
  std::vector<T> dAttention_;  // [context, context]
  std::vector<T> dHidden_;     // [context, 4 width]
};

}  // namespace gpt
