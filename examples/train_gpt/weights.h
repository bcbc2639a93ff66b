// SPDX-License-Identifier: Apache-2.0
// The model's weights in the hands of vmuon: what is registered, and fp32 views of a layer while it is open.
#pragma once

#include <vmuon/vmuon.h>

#include <memory>
#include <string>
#include <vector>

#include "train_gpt/model.h"
#include "train_gpt/options.h"

namespace gpt {

struct DestroyOptimizer {
  void operator()(vmuonOptimizer_t optimizer) const noexcept { (void)vmuonDestroy(optimizer); }
};

class VmuonWeights : public Weights<float> {
 public:
  // [collective] Registers everything, opens the optimizer and sets the initial values.
  VmuonWeights(vcollComm_t comm, const Options& options);

  void begin(Pass pass, int layer) override;
  void end(Pass pass, int layer) override;
  const float* value(int parameter) override { return entries_[static_cast<size_t>(parameter)].value; }
  float* gradient(int parameter) override { return entries_[static_cast<size_t>(parameter)].gradient; }

  // [collective]
  vmuonStats_t step();
  void save(const std::string& directory, uint64_t step);
  // The step that was given to save.
  uint64_t load(const std::string& directory);

  size_t elements() const;
  std::string table();

 private:
  struct Entry {
    Parameter parameter;
    int32_t number;
    size_t scratch;  // where it is in the arrays of its layer
    const float* value;
    float* gradient;
  };
  // fp32 copies of a layer whose weights or gradients have another type.
  struct Scratch {
    std::vector<float> values;
    std::vector<float> gradients;
  };
  void check(vcollResult_t result) const;
  int32_t add(const vmuonParam_t& parameter);
  Scratch& scratchOf(int layer) { return layer == 0 ? first_ : other_; }

  std::unique_ptr<vmuonOptimizer, DestroyOptimizer> optimizer_;
  const bool convertValues_;
  const bool convertGradients_;
  std::vector<Entry> entries_;
  std::vector<std::vector<size_t>> layers_;  // numbers of entries
  int32_t stepNumber_ = 0;                   // parameter that carries the step through checkpoints
  Scratch first_;                            // layer 0 is open beside each of the others
  Scratch other_;
};

}  // namespace gpt
