// SPDX-License-Identifier: Apache-2.0
#include "train_gpt/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace gpt {
namespace {

float fromBfloat16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// To nearest even; NaN stays NaN.
uint16_t toBfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

[[noreturn]] void fail(vmuonOptimizer_t optimizer, vcollResult_t result) {
  throw std::runtime_error(std::string(vcollGetErrorString(result)) + ": " + vmuonGetLastError(optimizer));
}

vmuonOptimizer_t create(vcollComm_t comm, const vmuonConfig_t& config) {
  vmuonOptimizer_t optimizer = nullptr;
  const vcollResult_t result = vmuonCreate(&optimizer, comm, &config);
  if (result != vcollSuccess) fail(nullptr, result);
  return optimizer;
}

vmuonKind_t kindOf(Kind kind) {
  switch (kind) {
    case Kind::kMatrix:
      return vmuonMatrix;
    case Kind::kFusedRows:
      return vmuonFusedRows;
    case Kind::kElementwise:
      break;
  }
  return vmuonElementwise;
}

}  // namespace

void VmuonWeights::check(vcollResult_t result) const {
  if (result != vcollSuccess) fail(optimizer_.get(), result);
}

int32_t VmuonWeights::add(const vmuonParam_t& parameter) {
  int32_t number = 0;
  check(vmuonAddParam(optimizer_.get(), &parameter, &number));
  return number;
}

VmuonWeights::VmuonWeights(vcollComm_t comm, const Options& options)
    : optimizer_(create(comm, options.config)),
      convertValues_(options.dtype != vcollFloat32),
      convertGradients_(options.config.gradType != vcollFloat32),
      layers_(options.shape.layers + 2) {
  int32_t group = 0;
  check(vmuonAddGroup(optimizer_.get(), &options.group, &group));
  std::vector<size_t> sizes(layers_.size(), 0);
  for (Parameter& parameter : parametersOf(options.shape)) {
    vmuonParam_t param = VMUON_PARAM_INITIALIZER;
    param.name = parameter.name.c_str();
    param.kind = kindOf(parameter.kind);
    param.dtype = options.dtype;
    param.layer = parameter.layer;
    param.group = group;
    param.ndim = static_cast<int32_t>(parameter.shape.size());
    std::copy(parameter.shape.begin(), parameter.shape.end(), param.shape);
    param.nsplits = static_cast<int32_t>(parameter.splits.size());
    param.splits = parameter.splits.data();
    const int32_t number = add(param);
    const auto layer = static_cast<size_t>(parameter.layer);
    layers_[layer].push_back(entries_.size());
    const size_t scratch = sizes[layer];
    sizes[layer] += parameter.elements();
    entries_.push_back({std::move(parameter), number, scratch, nullptr, nullptr});
  }
  // The head is the token embedding. Nothing asks for it by this name here, but files and tables know it.
  vmuonParam_t head = VMUON_PARAM_INITIALIZER;
  head.name = "head";
  head.tiedTo = entries_.front().parameter.name.c_str();
  add(head);
  vmuonParam_t step = VMUON_PARAM_INITIALIZER;
  step.name = "trainer.step";
  step.kind = vmuonElementwise;
  step.dtype = vcollFloat32;
  step.group = group;
  step.frozen = 1;
  step.ndim = 1;
  step.shape[0] = 1;
  stepNumber_ = add(step);
  check(vmuonOpen(optimizer_.get()));
  for (const Entry& entry : entries_) {
    check(vmuonSetParam(optimizer_.get(), entry.number, initialValues(entry.parameter, options.seed).data()));
  }
  const float zero = 0;
  check(vmuonSetParam(optimizer_.get(), stepNumber_, &zero));

  const size_t largest = *std::max_element(sizes.begin() + 1, sizes.end());
  for (const bool isFirst : {true, false}) {
    Scratch& scratch = isFirst ? first_ : other_;
    const size_t elements = isFirst ? sizes[0] : largest;
    if (convertValues_) scratch.values.resize(elements);
    if (convertGradients_) scratch.gradients.resize(elements);
  }
}

void VmuonWeights::begin(Pass pass, int layer) {
  const bool backward = pass == Pass::kBackward;
  check((backward ? vmuonBeginBackward : vmuonBeginForward)(optimizer_.get(), layer));
  Scratch& scratch = scratchOf(layer);
  if (backward && convertGradients_) std::fill(scratch.gradients.begin(), scratch.gradients.end(), 0.0f);
  for (const size_t i : layers_[static_cast<size_t>(layer)]) {
    Entry& entry = entries_[i];
    const void* data = nullptr;
    check(vmuonParamData(optimizer_.get(), entry.number, &data));
    if (convertValues_) {
      float* values = &scratch.values[entry.scratch];
      std::transform(static_cast<const uint16_t*>(data),
                     static_cast<const uint16_t*>(data) + entry.parameter.elements(), values, fromBfloat16);
      entry.value = values;
    } else {
      entry.value = static_cast<const float*>(data);
    }
    if (!backward) continue;
    if (convertGradients_) {
      entry.gradient = &scratch.gradients[entry.scratch];
    } else {
      void* gradient = nullptr;
      check(vmuonGradData(optimizer_.get(), entry.number, &gradient));
      entry.gradient = static_cast<float*>(gradient);
    }
  }
}

void VmuonWeights::end(Pass pass, int layer) {
  const bool backward = pass == Pass::kBackward;
  for (const size_t i : layers_[static_cast<size_t>(layer)]) {
    Entry& entry = entries_[i];
    if (backward && convertGradients_) {
      void* gradient = nullptr;
      check(vmuonGradData(optimizer_.get(), entry.number, &gradient));
      std::transform(entry.gradient, entry.gradient + entry.parameter.elements(), static_cast<uint16_t*>(gradient),
                     toBfloat16);
    }
    entry.value = nullptr;
    entry.gradient = nullptr;
  }
  check((backward ? vmuonEndBackward : vmuonEndForward)(optimizer_.get(), layer));
}

vmuonStats_t VmuonWeights::step() {
  vmuonStats_t stats = VMUON_STATS_INITIALIZER;
  check(vmuonStep(optimizer_.get(), &stats));
  return stats;
}

void VmuonWeights::save(const std::string& directory, uint64_t step) {
  const auto value = static_cast<float>(step);
  check(vmuonSetParam(optimizer_.get(), stepNumber_, &value));
  check(vmuonSave(optimizer_.get(), directory.c_str()));
}

uint64_t VmuonWeights::load(const std::string& directory) {
  check(vmuonLoad(optimizer_.get(), directory.c_str()));
  float value = 0;
  check(vmuonGetParam(optimizer_.get(), stepNumber_, &value));
  return static_cast<uint64_t>(value);
}

size_t VmuonWeights::elements() const {
  size_t n = 0;
  for (const Entry& entry : entries_) n += entry.parameter.elements();
  return n;
}

std::string VmuonWeights::table() {
  const char* text = nullptr;
  check(vmuonDescribe(optimizer_.get(), &text));
  return text;
}

}  // namespace gpt
