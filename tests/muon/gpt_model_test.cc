// SPDX-License-Identifier: Apache-2.0
// The model of examples/train_gpt: its gradient against finite differences in double, its attention's causality, and
// what a trainer relies on: the order of layers, and losses that do not depend on what else is in the batch.
#include "train_gpt/model.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "train_gpt/mix.h"

namespace {

using gpt::Kind;
using gpt::Parameter;
using gpt::Pass;
using gpt::Shape;

constexpr Shape kShape = {5, 2, 8, 2};  // context, layers, width, heads

// Everything in memory. Notes what is opened and closed, and what is asked for while its layer is closed.
template <typename T>
class Memory : public gpt::Weights<T> {
 public:
  explicit Memory(const Shape& shape) : parameters(gpt::parametersOf(shape)), open_(shape.layers + 2) {
    for (const Parameter& p : parameters) {
      // Gains that are all 1 and small embeddings would hide mistakes.
      std::vector<float> initial = gpt::initialValues(p, 7);
      if (p.kind == Kind::kElementwise) {
        Parameter wider = p;
        wider.spread = 0.5f;
        initial = gpt::initialValues(wider, 7);
      }
      values.emplace_back(initial.begin(), initial.end());
      gradients.emplace_back(p.elements(), T{0});
    }
  }
  void begin(Pass pass, int layer) override { turn(pass, layer, true); }
  void end(Pass pass, int layer) override { turn(pass, layer, false); }
  const T* value(int parameter) override {
    if (!isOpen(parameter)) astray = true;
    return values[static_cast<size_t>(parameter)].data();
  }
  T* gradient(int parameter) override {
    if (!isOpen(parameter) || pass_ != Pass::kBackward) astray = true;
    return gradients[static_cast<size_t>(parameter)].data();
  }

  std::vector<Parameter> parameters;
  std::vector<std::vector<T>> values;
  std::vector<std::vector<T>> gradients;
  std::string events;   // "+2" opens layer 2, "-2" closes it
  bool astray = false;  // something was asked for at the wrong time

 private:
  void turn(Pass pass, int layer, bool opens) {
    pass_ = pass;
    if (open_[static_cast<size_t>(layer)] == opens) astray = true;
    open_[static_cast<size_t>(layer)] = opens;
    events += (opens ? '+' : '-') + std::to_string(layer);
  }
  bool isOpen(int parameter) const {
    return open_[static_cast<size_t>(parameters[static_cast<size_t>(parameter)].layer)];
  }
  std::vector<bool> open_;
  Pass pass_ = Pass::kForward;
};

std::vector<uint8_t> textOf(size_t bytes) {
  std::vector<uint8_t> text(bytes);
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<uint8_t>(gpt::mix(i / 2 * 3) % 256);  // some twice in a row
  return text;
}

template <typename T>
std::vector<double> lossesOf(Memory<T>& weights, const Shape& shape, const std::vector<uint8_t>& text) {
  std::vector<double> losses(text.size() / (shape.context + 1));
  gpt::Model<T>(shape, losses.size()).forward(weights, text.data(), losses.data());
  return losses;
}

double sumOf(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

}  // namespace

TEST_CASE("gpt: the gradient is that of finite differences") {
  constexpr size_t kSequences = 2;
  constexpr double kStep = 1e-5, kTolerance = 2e-9;
  const std::vector<uint8_t> text = textOf(kSequences * (kShape.context + 1));
  Memory<double> weights(kShape);
  gpt::Model<double> model(kShape, kSequences);
  std::vector<double> losses(kSequences);
  model.forward(weights, text.data(), losses.data());
  const double scale = 1.5, before = 0.25;
  for (std::vector<double>& gradient : weights.gradients) gradient.assign(gradient.size(), before);  // is added to
  model.backward(weights, scale);
  REQUIRE_FALSE(weights.astray);

  for (size_t p = 0; p < weights.parameters.size(); ++p) {
    CAPTURE(weights.parameters[p].name);
    double largest = 0, worst = 0;
    for (size_t i = 0; i < weights.values[p].size(); ++i) {
      double& value = weights.values[p][i];
      const double old = value;
      value = old + kStep;
      model.forward(weights, text.data(), losses.data());
      const double above = sumOf(losses);
      value = old - kStep;
      model.forward(weights, text.data(), losses.data());
      value = old;
      const double wanted = scale * (above - sumOf(losses)) / (2 * kStep);
      largest = std::max(largest, std::fabs(wanted));
      worst = std::max(worst, std::fabs(weights.gradients[p][i] - before - wanted));
    }
    CAPTURE(largest, worst);
    CHECK(largest > 1e-3);
    CHECK(worst < kTolerance);
  }
}

TEST_CASE("gpt: the probabilities of the next byte add up to one, so nothing sees what comes later") {
  // The loss of the last byte is what one more byte of context adds to the sum of losses, if those before it stay.
  Shape shorter = kShape;
  --shorter.context;
  Memory<double> weights(kShape);
  Memory<double> same(shorter);
  same.values = weights.values;  // it has one position less to look at
  std::vector<uint8_t> text = textOf(kShape.context + 1);
  const double first =
      lossesOf(same, shorter, {text.begin(), text.end() - 1})[0] * static_cast<double>(shorter.context);
  double sum = 0;
  for (int next = 0; next < 256; ++next) {
    text.back() = static_cast<uint8_t>(next);
    sum += std::exp(first - lossesOf(weights, kShape, text)[0] * static_cast<double>(kShape.context));
  }
  CHECK(std::fabs(sum - 1) < 1e-12);
  // And what came earlier is seen.
  const double before = lossesOf(weights, kShape, text)[0];
  ++text.front();
  CHECK(lossesOf(weights, kShape, text)[0] != before);
}

TEST_CASE("gpt: the head keeps layer 0 open in both directions") {
  Memory<float> weights(kShape);
  const std::vector<uint8_t> text = textOf(kShape.context + 1);
  gpt::Model<float> model(kShape, 1);
  double loss = 0;
  model.forward(weights, text.data(), &loss);
  CHECK(weights.events == "+0+1-1+2-2+3-3-0");
  weights.events.clear();
  model.backward(weights, 1);
  CHECK(weights.events == "+0+3-3+2-2+1-1-0");
  CHECK_FALSE(weights.astray);
}

TEST_CASE("gpt: a sequence's loss is the same bits in every batch") {
  const Shape shape = {48, 2, 96, 3};
  constexpr size_t kSequences = 5;
  const std::vector<uint8_t> text = textOf(kSequences * (shape.context + 1));
  Memory<float> weights(shape);
  const std::vector<double> together = lossesOf(weights, shape, text);
  for (size_t i = 0; i < kSequences; ++i) {
    const auto begin = text.begin() + static_cast<ptrdiff_t>(i * (shape.context + 1));
    const double alone = lossesOf(weights, shape, {begin, begin + static_cast<ptrdiff_t>(shape.context + 1)})[0];
    CAPTURE(i);
    CHECK(alone == together[i]);
  }
  // In double it is nearly the same number, and that of a model that knows nothing is ln 256.
  Memory<double> exact(shape);
  CHECK(sumOf(lossesOf(exact, shape, text)) == Approx(sumOf(together)).epsilon(1e-5));
  for (const Parameter& p : exact.parameters) {
    const auto number = static_cast<size_t>(&p - exact.parameters.data());
    if (p.name == "embed.tokens") exact.values[number].assign(p.elements(), 0);
  }
  CHECK(lossesOf(exact, shape, text)[0] == Approx(std::log(256)).epsilon(1e-12));
}

TEST_CASE("gpt: initial values depend on name and position, and are spread as asked") {
  const std::vector<Parameter> parameters = gpt::parametersOf(Shape{});
  for (const Parameter& p : parameters) {
    CAPTURE(p.name);
    const std::vector<float> values = gpt::initialValues(p, 3);
    REQUIRE(values.size() == p.elements());
    CHECK(values == gpt::initialValues(p, 3));
    double sum = 0, squares = 0;
    size_t outside = 0;
    for (const float value : values) {
      if (std::fabs(value - p.center) > p.spread) ++outside;
      sum += static_cast<double>(value - p.center);
      squares += static_cast<double>(value - p.center) * static_cast<double>(value - p.center);
    }
    CHECK(outside == 0);
    const auto n = static_cast<double>(values.size()), spread = static_cast<double>(p.spread);
    CHECK(std::fabs(sum / n) <= 5 * spread / std::sqrt(n));
    if (p.spread > 0) {
      CHECK(squares / n == Approx(spread * spread / 3).epsilon(0.05));
      CHECK(values != gpt::initialValues(p, 4));
    }
  }
  // Equal shapes, other names.
  CHECK(gpt::initialValues(parameters[3], 3) != gpt::initialValues(parameters[9], 3));
}
