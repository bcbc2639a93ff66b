// SPDX-License-Identifier: Apache-2.0
#include "plan/params.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/digest.h"

namespace vmuon {
namespace {

constexpr const char* kReservedName = "__metadata__";  // of safetensors files

// What is wrong with a parameter of its own, without its name; empty: nothing.
std::string checkShape(const ParamSpec& spec, uint64_t* elements) {
  const size_t ndim = spec.shape.size();
  if (ndim == 0 || ndim > VMUON_MAX_DIMS) return fmt::format("ndim is {}; allowed are 1 to {}", ndim, VMUON_MAX_DIMS);
  const std::string shape = shapeText(spec.shape);
  // 2^60 elements of any type have fewer than 2^63 bytes.
  constexpr uint64_t kMost = uint64_t{1} << 60;
  uint64_t product = 1;
  for (const uint64_t dim : spec.shape) {
    if (dim != 0 && product > kMost / dim) return fmt::format("shape {} has more than 2^60 elements", shape);
    product *= dim;
  }
  *elements = product;
  if (spec.kind == vmuonElementwise) return "";
  const size_t wanted = spec.kind == vmuonExperts ? 3 : 2;
  if (ndim != wanted) {
    const char* hint = "";
    if (ndim == 1) hint = ": a flattened parameter or a shard is no matrix, and vectors are elementwise";
    if (ndim == 3 && wanted == 2) hint = ": a stack of matrices has kind experts";
    if (ndim == 2 && wanted == 3) hint = " [experts, rows, columns]";
    return fmt::format("shape {} has {} dimension{}, but kind {} needs {}{}", shape, ndim, ndim == 1 ? "" : "s",
                       kindName(spec.kind), wanted, hint);
  }
  if (product == 0) {
    return fmt::format("shape {} has no elements; kind {} needs whole matrices, not an empty shard", shape,
                       kindName(spec.kind));
  }
  return "";
}

std::string checkSplits(const ParamSpec& spec) {
  if (spec.kind == vmuonFusedRows && spec.splits.empty())
    return "splits is empty; kind fused needs the rows of each block";
  if (spec.splits.empty()) return "";
  if (spec.kind != vmuonFusedRows && spec.kind != vmuonExperts) {
    return fmt::format("splits is [{}], but kind {} has none", fmt::join(spec.splits, ", "), kindName(spec.kind));
  }
  const uint64_t rows = spec.shape[spec.shape.size() - 2];
  uint64_t left = rows;
  bool fits = true;
  for (const uint64_t split : spec.splits) {
    if (split == 0) return fmt::format("splits is [{}]; a block needs rows", fmt::join(spec.splits, ", "));
    fits = fits && split <= left;
    if (fits) left -= split;
  }
  if (!fits || left != 0) {
    return fmt::format("splits is [{}], which does not add up to the {} rows of shape {}", fmt::join(spec.splits, ", "),
                       rows, shapeText(spec.shape));
  }
  return "";
}

std::string checkNumbers(const ParamSpec& spec, int32_t groups) {
  if (spec.kind < 0 || spec.kind >= vmuonNumKinds)
    return fmt::format("kind is {}; allowed are 0 to {}", spec.kind, vmuonNumKinds - 1);
  if (dtypeBytes(spec.dtype) == 0) {
    return fmt::format("dtype is {}; allowed are vcollFloat32 ({}) and vcollBfloat16 ({})", spec.dtype,
                       int{vcollFloat32}, int{vcollBfloat16});
  }
  if (spec.layer < 0) return fmt::format("layer is {}; layers count from 0", spec.layer);
  if (spec.group < 0 || spec.group >= groups) {
    return groups == 0 ? fmt::format("group is {}, but no group was added", spec.group)
                       : fmt::format("group is {}; there are 0 to {}", spec.group, groups - 1);
  }
  return "";
}

}  // namespace

uint64_t dtypeBytes(int32_t dtype) {
  if (dtype == vcollFloat32) return 4;
  return dtype == vcollBfloat16 ? 2 : 0;
}

const char* dtypeName(int32_t dtype) {
  if (dtype == vcollFloat32) return "fp32";
  return dtype == vcollBfloat16 ? "bf16" : "?";
}

const char* kindName(int32_t kind) {
  switch (kind) {
    case vmuonMatrix:
      return "matrix";
    case vmuonExperts:
      return "experts";
    case vmuonFusedRows:
      return "fused";
    case vmuonElementwise:
      return "elementwise";
    default:
      return "?";
  }
}

std::string shapeText(const std::vector<uint64_t>& shape) { return fmt::format("{}", fmt::join(shape, "x")); }

std::vector<MatrixBlock> blocksOf(const ParamSpec& spec) {
  std::vector<MatrixBlock> blocks;
  if (spec.kind == vmuonElementwise) return blocks;
  const bool experts = spec.kind == vmuonExperts;
  const uint64_t count = experts ? spec.shape[0] : 1;
  const uint64_t rows = spec.shape[experts ? 1 : 0];
  const uint64_t cols = spec.shape[experts ? 2 : 1];
  const std::vector<uint64_t> splits = spec.splits.empty() ? std::vector<uint64_t>{rows} : spec.splits;
  uint64_t offset = 0;
  for (uint64_t e = 0; e < count; ++e) {
    for (const uint64_t split : splits) {
      blocks.push_back({offset, split, cols, experts ? static_cast<int64_t>(e) : -1});
      offset += split * cols;
    }
  }
  return blocks;
}

std::string ParamRegistry::add(const ParamSpec& spec) {
  if (spec.name.empty()) return fmt::format("parameter {}: name is empty", size());
  const auto error = [&](const std::string& text) { return fmt::format("parameter \"{}\": {}", spec.name, text); };
  if (spec.name == kReservedName) return error("name is reserved in checkpoints");
  if (numbers_.count(spec.name) != 0) return error("name is used by an earlier parameter");

  Param param{spec, size(), 0};
  if (!spec.tiedTo.empty()) {
    const int32_t holder = find(spec.tiedTo);
    if (holder < 0) return error(fmt::format("tiedTo is \"{}\", which is no earlier parameter", spec.tiedTo));
    const Param& held = (*this)[holder];
    if (held.isAlias(holder)) {
      return error(fmt::format("tiedTo is \"{}\", which is itself tied to \"{}\"", spec.tiedTo, held.spec.tiedTo));
    }
    if (!spec.shape.empty() && spec.shape != held.spec.shape) {
      return error(fmt::format("shape is {}, but \"{}\" has {}", shapeText(spec.shape), spec.tiedTo,
                               shapeText(held.spec.shape)));
    }
    if (spec.frozen && !held.spec.frozen) {
      return error(fmt::format("frozen is 1, but \"{}\" learns; both share one storage", spec.tiedTo));
    }
    param = held;
    param.spec.name = spec.name;
    param.spec.tiedTo = spec.tiedTo;
    param.holder = holder;
  } else {
    std::string text = checkNumbers(spec, groups_);
    if (text.empty()) text = checkShape(spec, &param.elements);
    if (text.empty()) text = checkSplits(spec);
    if (!text.empty()) return error(text);
  }
  numbers_.emplace(spec.name, size());
  params_.push_back(std::move(param));
  return "";
}

std::string ParamRegistry::validate(bool allowNoMatrices) const {
  if (params_.empty()) return "no parameters were added";
  std::vector<bool> used(static_cast<size_t>(groups_), false);
  int32_t matrices = 0;
  int32_t frozen = 0;
  for (int32_t i = 0; i < size(); ++i) {
    const Param& param = (*this)[i];
    if (param.isAlias(i)) continue;
    used[static_cast<size_t>(param.spec.group)] = true;
    if (param.isTrainedMatrix())
      ++matrices;
    else if (param.spec.kind != vmuonElementwise)
      ++frozen;
  }
  const auto empty = std::find(used.begin(), used.end(), false);
  if (empty != used.end()) return fmt::format("group {} has no parameters", empty - used.begin());
  if (matrices == 0 && !allowNoMatrices) {
    return fmt::format("none of {} parameters is a matrix for Muon to train ({} matrices are frozen)", size(), frozen);
  }
  return "";
}

int32_t ParamRegistry::find(std::string_view name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? -1 : found->second;
}

uint64_t ParamRegistry::digest() const {
  Digest digest;
  digest.add(static_cast<uint64_t>(groups_));
  for (const Param& param : params_) {
    const ParamSpec& spec = param.spec;
    digest.add(spec.name);
    digest.add(spec.tiedTo);
    for (const int32_t number : {spec.kind, spec.dtype, spec.layer, spec.group, int32_t{spec.frozen}}) {
      digest.add(static_cast<uint64_t>(static_cast<uint32_t>(number)));
    }
    for (const std::vector<uint64_t>* list : {&spec.shape, &spec.splits}) {
      digest.add(list->size());
      for (const uint64_t word : *list) digest.add(word);
    }
  }
  return digest.value();
}

}  // namespace vmuon
