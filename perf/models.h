// SPDX-License-Identifier: Apache-2.0
// Shapes of the weight matrices of four public models, for --dist model:NAME.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vcoll::perf {

// Facts of the published configurations. Experts are 0 for dense models.
struct ModelShape {
  const char* name;
  uint64_t layers;
  uint64_t hidden;
  uint64_t intermediate;  // of the dense (or shared) feed-forward part
  uint64_t heads;
  uint64_t kvHeads;
  uint64_t headDim;
  uint64_t experts;
  uint64_t expertIntermediate;
};

inline constexpr ModelShape kModels[] = {
    {"qwen2.5-1.5b", 28, 1536, 8960, 12, 2, 128, 0, 0},
    {"qwen2.5-7b", 28, 3584, 18944, 28, 4, 128, 0, 0},
    {"qwen2.5-32b", 64, 5120, 27648, 40, 8, 128, 0, 0},
    {"qwen1.5-moe-a2.7b", 24, 2048, 5632, 16, 16, 128, 60, 1408},
};

// nullptr when there is no model of that name.
inline const ModelShape* findModel(std::string_view name) {
  for (const ModelShape& model : kModels) {
    if (name == model.name) return &model;
  }
  return nullptr;
}

struct Matrix {
  std::string name;
  uint64_t rows;
  uint64_t columns;
  uint64_t elements() const { return rows * columns; }
};

// The matrices of one layer in the order of the forward pass: seven in a dense model; a mixture of experts adds its
// router, the gate of the shared expert and three matrices per expert.
inline std::vector<Matrix> layerMatrices(const ModelShape& model) {
  const uint64_t h = model.hidden;
  const uint64_t query = model.heads * model.headDim;
  const uint64_t key = model.kvHeads * model.headDim;
  std::vector<Matrix> matrices = {{"q", query, h}, {"k", key, h}, {"v", key, h}, {"o", h, query}};
  const auto addFeedForward = [&](const std::string& prefix, uint64_t inner) {
    matrices.push_back({prefix + "gate", inner, h});
    matrices.push_back({prefix + "up", inner, h});
    matrices.push_back({prefix + "down", h, inner});
  };
  if (model.experts == 0) {
    addFeedForward("", model.intermediate);
    return matrices;
  }
  matrices.push_back({"router", model.experts, h});
  matrices.push_back({"shared_gate", 1, h});
  addFeedForward("shared.", model.intermediate);
  for (uint64_t e = 0; e < model.experts; ++e) {
    addFeedForward("expert" + std::to_string(e) + ".", model.expertIntermediate);
  }
  return matrices;
}

}  // namespace vcoll::perf
