// SPDX-License-Identifier: Apache-2.0
// What the trainer says about its parameters, checked. Nothing is guessed from names.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "vmuon/vmuon.h"

namespace vmuon {

// vmuonParam_t with its own memory. kind and dtype are plain numbers, since callers of the C interface may pass any.
struct ParamSpec {
  std::string name;
  std::string tiedTo;  // empty: the parameter has its own storage
  int32_t kind = vmuonMatrix;
  int32_t dtype = vcollBfloat16;
  int32_t layer = 0;
  int32_t group = 0;
  bool frozen = false;
  std::vector<uint64_t> shape;
  // vmuonFusedRows: rows of each block; the sum is shape[0]. vmuonExperts may have them too, for the rows of one
  // expert.
  std::vector<uint64_t> splits;
};

// Rows of one parameter that are orthogonalised together.
struct MatrixBlock {
  uint64_t offset = 0;  // elements from the parameter's first
  uint64_t rows = 0;
  uint64_t cols = 0;
  int64_t expert = -1;

  uint64_t elements() const { return rows * cols; }
};

struct Param {
  ParamSpec spec;
  int32_t holder = 0;     // whose storage it is: its own number, or that of tiedTo
  uint64_t elements = 0;  // may be 0 if element-wise

  bool isAlias(int32_t number) const { return holder != number; }
  // Belongs to Muon and learns.
  bool isTrainedMatrix() const { return spec.kind != vmuonElementwise && !spec.frozen; }
};

uint64_t dtypeBytes(int32_t dtype);    // of vcollFloat32 and vcollBfloat16; 0: not a type of parameters
const char* dtypeName(int32_t dtype);  // "fp32", "bf16"
const char* kindName(int32_t kind);    // "matrix", "experts", "fused", "elementwise"
std::string shapeText(const std::vector<uint64_t>& shape);  // "8960x1536"

// The orthogonalisations of a parameter in the order of memory; none for element-wise ones. Frozen ones have them too.
std::vector<MatrixBlock> blocksOf(const ParamSpec& spec);

class ParamRegistry {
 public:
  // The number of the new group, from 0.
  int32_t addGroup() { return groups_++; }
  int32_t groups() const { return groups_; }

  // Takes the parameter and returns an empty text, or changes nothing and returns what is wrong: the parameter, the
  // field and its value. Its group must have been added before, the holder of a tied one too. A tied parameter takes
  // everything from its holder; a shape or `frozen` of its own that says otherwise is an error. Dimensions of 0 are for
  // element-wise parameters only: they hold nothing and cost nothing, while a matrix without elements is most often a
  // shard by mistake.
  std::string add(const ParamSpec& spec);

  // Before opening: an empty text, or why not. Groups without parameters are an error, and so is, unless allowed,
  // having no matrix that Muon would train. A group whose parameters are all frozen is fine.
  std::string validate(bool allowNoMatrices) const;

  const std::vector<Param>& params() const { return params_; }
  const Param& operator[](int32_t number) const { return params_[static_cast<size_t>(number)]; }
  int32_t size() const { return static_cast<int32_t>(params_.size()); }
  int32_t find(std::string_view name) const;  // -1: none
  // Of everything above, in the order in which it was added: numbers mean the same on all ranks that agree on it.
  uint64_t digest() const;

 private:
  std::vector<Param> params_;
  std::map<std::string, int32_t, std::less<>> numbers_;
  int32_t groups_ = 0;
};

// The usual rule, for trainers that want it (vmuonSuggestKind). Hidden weights of two dimensions are matrices, stacks
// of them whose name says so are experts. Everything else is element-wise: embeddings and positions, the output head
// and classifiers, routers, norms, biases, scalars, LoRA factors, convolutions, heads with one row. Fused rows are
// never suggested: nothing tells where the blocks begin.
vmuonKind_t suggestKind(const char* name, int32_t ndim, const uint64_t* shape);

}  // namespace vmuon
