// SPDX-License-Identifier: Apache-2.0
// The usual rule by names. A suggestion for trainers: nothing else in the library looks at names.
#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "plan/params.h"

namespace vmuon {
namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool endsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

template <size_t N>
bool isOneOf(std::string_view text, const std::array<std::string_view, N>& list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// "Model.Layers.3.mlp.gate.weight" -> {"model", "layers", "3", "mlp", "gate", "weight"}
std::vector<std::string> wordsOf(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (c == '.' || c == '/' || c == ':') {
      words.emplace_back();
    } else {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return words;
}

bool isNumber(std::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool isElementwiseName(const std::vector<std::string>& words, uint64_t rows, uint64_t cols) {
  constexpr std::array<std::string_view, 8> kAnywhere{"wte",       "wpe",        "lm_head", "router",
                                                      "cls_token", "mask_token", "a_log",   "shared_expert_gate"};
  for (const std::string& word : words) {
    if (isOneOf(word, kAnywhere) || contains(word, "embed") || contains(word, "position") || endsWith(word, "bias"))
      return true;
    if (word.rfind("lora_", 0) == 0 || endsWith(word, "_head") || endsWith(word, "_emb")) return true;
  }
  // The module is the last word that does not name one of its tensors.
  constexpr std::array<std::string_view, 5> kTensors{"weight", "kernel", "scale", "w", "default"};
  size_t last = words.size() - 1;
  while (last > 0 && isOneOf(words[last], kTensors)) --last;
  const std::string& module = words[last];
  if (contains(module, "norm") || module == "ln" || module.rfind("ln_", 0) == 0 || contains(module, "conv"))
    return true;
  // A router has far fewer rows than the gate of a gated MLP, which some models call the same.
  if (module == "gate" && 4 * rows <= cols) return true;
  constexpr std::array<std::string_view, 9> kOutputs{
      "head", "heads", "output", "output_layer", "output_projection", "classifier", "score", "logits", "pooler"};
  const bool inBlock = std::any_of(words.begin(), words.end(), [](const std::string& word) { return isNumber(word); });
  return !inBlock && isOneOf(module, kOutputs);
}

}  // namespace

vmuonKind_t suggestKind(const char* name, int32_t ndim, const uint64_t* shape) {
  if (name == nullptr || shape == nullptr || ndim < 2 || ndim > 3) return vmuonElementwise;
  const uint64_t rows = shape[ndim - 2];
  const uint64_t cols = shape[ndim - 1];
  if (rows < 2 || cols < 2 || shape[0] == 0) return vmuonElementwise;
  const std::vector<std::string> words = wordsOf(name);
  if (isElementwiseName(words, rows, cols)) return vmuonElementwise;
  if (ndim == 2) return vmuonMatrix;
  const bool experts =
      std::any_of(words.begin(), words.end(), [](const auto& word) { return contains(word, "expert"); });
  return experts ? vmuonExperts : vmuonElementwise;
}

}  // namespace vmuon
