// SPDX-License-Identifier: Apache-2.0
#include "plan/models.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace vmuon {
namespace {

// A row of transformer blocks of one width.
struct Tower {
  std::string prefix;  // "model." -> "model.layers.3.mlp.up_proj.weight"
  int32_t layers = 0;
  uint64_t hidden = 0;
  uint64_t q = 0;   // rows of the query projection: heads times their width
  uint64_t kv = 0;  // of the key and value projections
  uint64_t inter = 0;
  bool qkvBias = false;
  bool fusedGateUp = false;
};

class Builder {
 public:
  Builder(std::string_view name, const ModelOptions& options) : options_(options) { model_.name = name; }

  ModelShapes take() { return std::move(model_); }
  void note(std::string text) { model_.note = std::move(text); }
  void nextLayer() { ++layer_; }

  int32_t layersOf(int32_t layers) const { return options_.layers > 0 ? std::min(layers, options_.layers) : layers; }

  void add(std::string name, vmuonKind_t kind, std::vector<uint64_t> shape, std::vector<uint64_t> splits = {}) {
    ParamSpec spec;
    spec.name = std::move(name);
    spec.kind = kind;
    spec.layer = layer_;
    for (size_t i = 0; i < shape.size(); ++i) {
      // The number of experts stays.
      spec.shape.push_back(kind == vmuonExperts && i == 0 ? shape[i] : scaled(shape[i]));
    }
    for (const uint64_t split : splits) spec.splits.push_back(scaled(split));
    if (!splits.empty()) {  // rounding down must not leave rows over
      spec.shape[0] = 0;
      for (const uint64_t split : spec.splits) spec.shape[0] += split;
    }
    model_.params.push_back(std::move(spec));
  }

  void matrix(const std::string& name, uint64_t rows, uint64_t cols) {
    add(name + ".weight", vmuonMatrix, {rows, cols});
  }
  void vector(const std::string& name, uint64_t size) { add(name, vmuonElementwise, {size}); }
  void linear(const std::string& name, uint64_t rows, uint64_t cols) {
    matrix(name, rows, cols);
    vector(name + ".bias", rows);
  }
  void embedding(const std::string& name, uint64_t rows, uint64_t cols) {
    add(name + ".weight", vmuonElementwise, {rows, cols});
  }
  void tie(const std::string& name, const std::string& holder) {
    add(name, vmuonElementwise, {});
    model_.params.back().tiedTo = holder;
  }

  void attention(const Tower& tower, const std::string& block) {
    const auto project = [&](const char* name, uint64_t rows) {
      const std::string full = fmt::format("{}self_attn.{}_proj", block, name);
      if (tower.qkvBias)
        linear(full, rows, tower.hidden);
      else
        matrix(full, rows, tower.hidden);
    };
    project("q", tower.q);
    project("k", tower.kv);
    project("v", tower.kv);
    matrix(block + "self_attn.o_proj", tower.hidden, tower.q);
  }

  void gatedMlp(const std::string& name, uint64_t inter, uint64_t hidden, bool fused) {
    if (fused) {
      add(name + ".gate_up_proj.weight", vmuonFusedRows, {2 * inter, hidden}, {inter, inter});
    } else {
      matrix(name + ".gate_proj", inter, hidden);
      matrix(name + ".up_proj", inter, hidden);
    }
    matrix(name + ".down_proj", hidden, inter);
  }

  static std::string blockName(const Tower& tower, int32_t block) {
    return fmt::format("{}layers.{}.", tower.prefix, block);
  }

  // Attention, gated MLP and two norms per block, one layer each.
  void blocks(const Tower& tower) {
    for (int32_t i = 0; i < layersOf(tower.layers); ++i, nextLayer()) {
      const std::string block = blockName(tower, i);
      attention(tower, block);
      gatedMlp(block + "mlp", tower.inter, tower.hidden, tower.fusedGateUp);
      vector(block + "input_layernorm.weight", tower.hidden);
      vector(block + "post_attention_layernorm.weight", tower.hidden);
    }
  }

 private:
  uint64_t scaled(uint64_t dim) const { return std::max<uint64_t>(1, dim / std::max<uint64_t>(1, options_.divide)); }

  ModelOptions options_;
  ModelShapes model_;
  int32_t layer_ = 0;
};

void head(Builder& b, const Tower& tower, uint64_t vocab, bool tied) {
  b.vector(tower.prefix + "norm.weight", tower.hidden);
  if (tied)
    b.tie("lm_head.weight", tower.prefix + "embed_tokens.weight");
  else
    b.embedding("lm_head", vocab, tower.hidden);
}

void dense(Builder& b, const Tower& tower, uint64_t vocab, bool tied) {
  b.embedding(tower.prefix + "embed_tokens", vocab, tower.hidden);
  b.nextLayer();
  b.blocks(tower);
  head(b, tower, vocab, tied);
}

void qwenMoe(Builder& b) {
  constexpr uint64_t kVocab = 151936;
  constexpr uint64_t kExperts = 60;
  constexpr uint64_t kExpertInter = 1408;
  const Tower tower{"model.", 24, 2048, 2048, 2048, 5632, true, false};
  b.embedding("model.embed_tokens", kVocab, tower.hidden);
  b.nextLayer();
  for (int32_t i = 0; i < b.layersOf(tower.layers); ++i, b.nextLayer()) {
    const std::string block = Builder::blockName(tower, i);
    b.attention(tower, block);
    b.matrix(block + "mlp.gate", kExperts, tower.hidden);
    b.matrix(block + "mlp.shared_expert_gate", 1, tower.hidden);
    b.gatedMlp(block + "mlp.shared_expert", tower.inter, tower.hidden, false);
    b.add(block + "mlp.experts.gate_proj", vmuonExperts, {kExperts, kExpertInter, tower.hidden});
    b.add(block + "mlp.experts.up_proj", vmuonExperts, {kExperts, kExpertInter, tower.hidden});
    b.add(block + "mlp.experts.down_proj", vmuonExperts, {kExperts, tower.hidden, kExpertInter});
    b.vector(block + "input_layernorm.weight", tower.hidden);
    b.vector(block + "post_attention_layernorm.weight", tower.hidden);
  }
  head(b, tower, kVocab, false);
}

void wallOss(Builder& b) {
  b.note(
      "vision dimensions from memory of a public configuration; the action expert (about 0.2 B) is a guess from "
      "totals");
  constexpr uint64_t kVision = 1280;
  constexpr uint64_t kVisionInter = 3420;
  const Tower llm{"model.", 36, 2048, 2048, 256, 11008, true, true};
  const Tower action{"action.", 36, 768, 2048, 256, 1024, true, true};
  b.add("visual.patch_embed.proj.weight", vmuonElementwise, {kVision, 3, 2, 14, 14});
  b.nextLayer();
  for (int32_t i = 0; i < b.layersOf(32); ++i, b.nextLayer()) {
    const std::string block = fmt::format("visual.blocks.{}.", i);
    b.add(block + "attn.qkv.weight", vmuonFusedRows, {3 * kVision, kVision}, {kVision, kVision, kVision});
    b.vector(block + "attn.qkv.bias", 3 * kVision);
    b.linear(block + "attn.proj", kVision, kVision);
    b.linear(block + "mlp.gate_proj", kVisionInter, kVision);
    b.linear(block + "mlp.up_proj", kVisionInter, kVision);
    b.linear(block + "mlp.down_proj", kVision, kVisionInter);
    b.vector(block + "norm1.weight", kVision);
    b.vector(block + "norm2.weight", kVision);
  }
  b.vector("visual.merger.ln_q.weight", kVision);
  b.linear("visual.merger.mlp.0", 4 * kVision, 4 * kVision);
  b.linear("visual.merger.mlp.2", llm.hidden, 4 * kVision);
  b.nextLayer();
  dense(b, llm, 151936, true);
  b.nextLayer();
  b.blocks(action);
  b.vector("action.norm.weight", action.hidden);
}

void pi05(Builder& b) {
  b.note("biases and small projections of the vision tower and the action expert are approximate");
  constexpr uint64_t kVision = 1152;
  constexpr uint64_t kVisionInter = 4304;
  constexpr uint64_t kActions = 32;
  const Tower llm{"model.", 18, 2048, 2048, 256, 16384, false, true};
  const Tower action{"action.", 18, 1024, 2048, 256, 4096, false, true};
  b.add("vision.patch_embedding.weight", vmuonElementwise, {kVision, 3, 14, 14});
  b.vector("vision.patch_embedding.bias", kVision);
  b.embedding("vision.position_embedding", 256, kVision);
  b.nextLayer();
  for (int32_t i = 0; i < b.layersOf(27); ++i, b.nextLayer()) {
    const std::string block = fmt::format("vision.layers.{}.", i);
    for (const char* name : {"q", "k", "v", "out"})
      b.linear(fmt::format("{}self_attn.{}_proj", block, name), kVision, kVision);
    b.linear(block + "mlp.fc1", kVisionInter, kVision);
    b.linear(block + "mlp.fc2", kVision, kVisionInter);
    for (const char* name : {"layer_norm1.weight", "layer_norm1.bias", "layer_norm2.weight", "layer_norm2.bias"}) {
      b.vector(block + name, kVision);
    }
  }
  b.vector("vision.post_layernorm.weight", kVision);
  b.vector("vision.post_layernorm.bias", kVision);
  b.linear("multi_modal_projector", llm.hidden, kVision);
  b.nextLayer();
  dense(b, llm, 257152, true);
  b.nextLayer();
  b.linear("action.time_mlp_in", action.hidden, action.hidden);
  b.linear("action.time_mlp_out", action.hidden, action.hidden);
  b.add("action.in_proj.weight", vmuonElementwise, {action.hidden, kActions});
  b.vector("action.in_proj.bias", action.hidden);
  b.nextLayer();
  for (int32_t i = 0; i < b.layersOf(action.layers); ++i, b.nextLayer()) {
    const std::string block = Builder::blockName(action, i);
    b.attention(action, block);
    b.gatedMlp(block + "mlp", action.inter, action.hidden, action.fusedGateUp);
    b.linear(block + "input_layernorm.dense", 3 * action.hidden, action.hidden);
    b.linear(block + "post_attention_layernorm.dense", 3 * action.hidden, action.hidden);
  }
  b.linear("action.norm.dense", 3 * action.hidden, action.hidden);
  b.add("action.out_proj.weight", vmuonElementwise, {kActions, action.hidden});
  b.vector("action.out_proj.bias", kActions);
}

using Maker = void (*)(Builder&);
struct Known {
  const char* name;
  Maker make;
};

constexpr Known kModels[] = {
    {"qwen2.5-1.5b",
     [](Builder& b) {
       dense(b, {"model.", 28, 1536, 1536, 256, 8960, true, false}, 151936, true);
     }},
    {"qwen2.5-7b",
     [](Builder& b) {
       dense(b, {"model.", 28, 3584, 3584, 512, 18944, true, false}, 152064, false);
     }},
    {"qwen2.5-32b",
     [](Builder& b) {
       dense(b, {"model.", 64, 5120, 5120, 1024, 27648, true, false}, 152064, false);
     }},
    {"qwen1.5-moe", qwenMoe},
    {"wall-oss-0.5", wallOss},
    {"pi0.5", pi05},
};

}  // namespace

std::vector<std::string> modelNames() {
  std::vector<std::string> names;
  for (const Known& known : kModels) names.emplace_back(known.name);
  return names;
}

ModelShapes makeModel(std::string_view name, const ModelOptions& options) {
  for (const Known& known : kModels) {
    if (name != known.name) continue;
    Builder builder(name, options);
    known.make(builder);
    return builder.take();
  }
  return {};
}

std::string registerModel(const ModelShapes& model, ParamRegistry* registry) {
  if (registry->groups() == 0) registry->addGroup();
  for (const ParamSpec& spec : model.params) {
    const std::string error = registry->add(spec);
    if (!error.empty()) return error;
  }
  return "";
}

}  // namespace vmuon
