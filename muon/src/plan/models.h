// SPDX-License-Identifier: Apache-2.0
// Shapes of published models, to plan and to measure with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/params.h"

namespace vmuon {

struct ModelOptions {
  uint64_t divide = 1;  // every dimension but the number of experts, rounded down to at least 1
  int32_t layers = 0;   // at most so many blocks of each kind; 0: all
};

struct ModelShapes {
  std::string name;
  std::string note;  // what is approximated; empty: all shapes are published
  // Group 0. Layer 0 is what comes before the first block, the last one what comes after the last block.
  std::vector<ParamSpec> params;
};

std::vector<std::string> modelNames();
// Empty name: there is no such model.
ModelShapes makeModel(std::string_view name, const ModelOptions& options = {});

// Adds group 0 and all parameters; the first error or an empty text.
std::string registerModel(const ModelShapes& model, ParamRegistry* registry);

}  // namespace vmuon
