// SPDX-License-Identifier: Apache-2.0
// Registration: what is refused, with which words, and what is suggested. Numbers in brackets are rows of the list of
// public bug reports in docs/muon.md.
#include "plan/params.h"

#include <catch2/catch.hpp>

#include "plan_support.h"

namespace vmuon {
namespace {

using Catch::Matchers::Contains;
using namespace test;

ParamRegistry oneGroup() {
  ParamRegistry registry;
  registry.addGroup();
  return registry;
}

void requireRefused(const ParamSpec& bad, const std::vector<std::string>& words) {
  ParamRegistry registry = registryOf({matrix("first", 4, 4)});
  const uint64_t before = registry.digest();
  const std::string text = registry.add(bad);
  for (const std::string& word : words) CHECK_THAT(text, Contains(word));
  REQUIRE(registry.size() == 1);
  REQUIRE(registry.find(bad.name.empty() ? "?" : bad.name) == (bad.name == "first" ? 0 : -1));
  REQUIRE(registry.digest() == before);
}

vmuonKind_t suggest(const char* name, const std::vector<uint64_t>& shape) {
  return suggestKind(name, static_cast<int32_t>(shape.size()), shape.data());
}

}  // namespace

TEST_CASE("plan params: what is wrong is named", "[plan]") {
  requireRefused(matrix("", 4, 4), {"name is empty"});
  requireRefused(matrix("first", 4, 4), {"\"first\"", "name", "earlier"});
  requireRefused(matrix("__metadata__", 4, 4), {"__metadata__", "reserved"});
  requireRefused(spec("w", vmuonElementwise, {}), {"\"w\"", "ndim is 0"});
  requireRefused(spec("w", vmuonElementwise, {1, 1, 1, 1, 1, 1, 1, 1, 1}), {"\"w\"", "ndim is 9"});
  requireRefused(spec("w", 4, {4, 4}), {"\"w\"", "kind is 4"});
  requireRefused(spec("w", -1, {4, 4}), {"\"w\"", "kind is -1"});
  requireRefused(spec("w", vmuonMatrix, {3, 4, 4}), {"\"w\"", "3x4x4", "experts"});
  requireRefused(spec("w", vmuonExperts, {4, 4}), {"\"w\"", "4x4", "needs 3"});
  requireRefused(spec("w", vmuonFusedRows, {4, 4}), {"\"w\"", "splits is empty"});
  requireRefused(matrix("w", uint64_t{1} << 40, uint64_t{1} << 30), {"\"w\"", "2^60"});
  ParamSpec bad = matrix("w", 4, 4);
  bad.dtype = vcollFloat16;
  requireRefused(bad, {"\"w\"", "dtype is 6"});
  bad = matrix("w", 4, 4);
  bad.layer = -1;
  requireRefused(bad, {"\"w\"", "layer is -1"});
  bad = matrix("w", 4, 4);
  bad.group = 1;
  requireRefused(bad, {"\"w\"", "group is 1", "0 to 0"});
  bad.group = -1;
  requireRefused(bad, {"\"w\"", "group is -1"});
  ParamRegistry none;
  CHECK_THAT(none.add(matrix("w", 4, 4)), Contains("no group was added"));
}

TEST_CASE("plan params: a flattened matrix is refused [19, 32]", "[plan]") {
  requireRefused(spec("w", vmuonMatrix, {4096}), {"\"w\"", "4096", "1 dimension,", "flattened"});
  // The shape a lazily partitioned parameter shows.
  requireRefused(spec("w", vmuonMatrix, {0}), {"\"w\"", "1 dimension,"});
  requireRefused(spec("w", vmuonMatrix, {0, 128}), {"\"w\"", "0x128", "no elements"});
  requireRefused(spec("w", vmuonExperts, {8, 0, 128}), {"\"w\"", "8x0x128", "no elements"});
}

TEST_CASE("plan params: blocks of fused rows add up [44]", "[plan]") {
  ParamSpec fused = spec("qkv", vmuonFusedRows, {12, 8});
  const std::vector<std::vector<uint64_t>> wrong{{4, 4}, {4, 4, 5}, {4, 4, 4, 0}, {UINT64_MAX, 13}, {13}};
  for (const std::vector<uint64_t>& splits : wrong) {
    fused.splits = splits;
    requireRefused(fused, {"\"qkv\"", "splits is [", fmt::format("{}", splits.back())});
  }
  fused.splits = {4, 4, 5};
  requireRefused(fused, {"[4, 4, 5]", "12 rows"});
  ParamSpec plain = matrix("w", 12, 8);
  plain.splits = {12};
  requireRefused(plain, {"\"w\"", "splits is [12]", "matrix has none"});

  // Four blocks, as gated attention has.
  ParamRegistry registry = oneGroup();
  fused.splits = {4, 2, 2, 4};
  REQUIRE(registry.add(fused) == "");
  const std::vector<MatrixBlock> blocks = blocksOf(registry[0].spec);
  REQUIRE(blocks.size() == 4);
  REQUIRE(blocks[2].offset == 6 * 8);
  REQUIRE(blocks[2].rows == 2);
  REQUIRE(blocks[3].elements() == 4 * 8);
}

TEST_CASE("plan params: experts are matrices of their own [50]", "[plan]") {
  ParamSpec experts = spec("experts.gate_up", vmuonExperts, {3, 8, 5});
  experts.splits = {6, 2};
  ParamRegistry registry = registryOf({experts, spec("experts.down", vmuonExperts, {3, 5, 8})});
  const std::vector<MatrixBlock> blocks = blocksOf(registry[0].spec);
  REQUIRE(blocks.size() == 6);
  REQUIRE(blocks[3].expert == 1);
  REQUIRE(blocks[3].offset == 40 + 30);
  REQUIRE(blocks[3].rows == 2);
  REQUIRE(blocksOf(registry[1].spec).size() == 3);
  experts.name = "other";
  experts.splits = {3, 2};  // counts the rows of one expert, not of the stack
  REQUIRE_THAT(registry.add(experts), Contains("8 rows"));
}

TEST_CASE("plan params: tied parameters share storage", "[plan]") {
  ParamRegistry registry = registryOf({spec("embed", vmuonElementwise, {100, 8}, 3)});
  ParamSpec head = spec("head", vmuonMatrix, {}, 7);  // nothing but the name is read
  head.tiedTo = "embed";
  head.dtype = 99;
  REQUIRE(registry.add(head) == "");
  REQUIRE(registry[1].holder == 0);
  REQUIRE(registry[1].isAlias(1));
  REQUIRE(registry[1].spec.layer == 3);
  REQUIRE(registry[1].spec.kind == vmuonElementwise);
  REQUIRE(registry[1].elements == 800);

  const auto refused = [&](const std::string& tiedTo, const std::vector<uint64_t>& shape, bool isFrozen) {
    ParamSpec bad = spec("bad", vmuonElementwise, shape);
    bad.tiedTo = tiedTo;
    bad.frozen = isFrozen;
    return registry.add(bad);
  };
  CHECK_THAT(refused("embedd", {}, false), Contains("\"bad\"") && Contains("tiedTo is \"embedd\""));
  CHECK_THAT(refused("bad", {}, false), Contains("tiedTo is \"bad\""));
  CHECK_THAT(refused("head", {}, false), Contains("itself tied to \"embed\""));
  CHECK_THAT(refused("embed", {8, 100}, false), Contains("8x100") && Contains("100x8"));
  CHECK_THAT(refused("embed", {100, 8}, true), Contains("frozen is 1"));
  REQUIRE(registry.size() == 2);
}

TEST_CASE("plan params: what opening refuses [26, 32, 37]", "[plan]") {
  ParamRegistry none = oneGroup();
  CHECK_THAT(none.validate(true), Contains("no parameters"));

  ParamRegistry empty = registryOf({matrix("w", 4, 4)});
  REQUIRE(empty.validate(false) == "");
  REQUIRE(empty.addGroup() == 1);
  CHECK_THAT(empty.validate(false), Contains("group 1 has no parameters"));
  ParamSpec tied = spec("again", vmuonMatrix, {});
  tied.tiedTo = "w";
  tied.group = 1;  // of the holder, group 0
  REQUIRE(empty.add(tied) == "");
  CHECK_THAT(empty.validate(false), Contains("group 1 has no parameters"));

  ParamRegistry vectors = registryOf({vector("norm", 8), frozen(matrix("w", 4, 4))});
  CHECK_THAT(vectors.validate(false), Contains("none of 2") && Contains("1 matrices are frozen"));
  REQUIRE(vectors.validate(true) == "");  // AdamW for everything

  ParamRegistry all = registryOf({matrix("w", 4, 4)});
  all.addGroup();
  ParamSpec still = frozen(matrix("still", 4, 4));
  still.group = 1;
  REQUIRE(all.add(still) == "");
  REQUIRE(all.validate(false) == "");
}

TEST_CASE("plan params: element-wise parameters may be empty [37]", "[plan]") {
  const ParamRegistry registry =
      registryOf({vector("empty", 0), spec("none", vmuonElementwise, {3, 0, 5}), matrix("w", 4, 4)});
  REQUIRE(registry[0].elements == 0);
  for (const Split split : {Split::kOwners, Split::kEven}) {
    const UnitTable table = unitsOf(registry, 4, 100, split);
    requireWhole(registry, table);
    REQUIRE(table.piecesOf[0].first == table.piecesOf[0].second);
    for (const Unit& unit : table.units) REQUIRE(unit.elements > 0);
  }
}

TEST_CASE("plan params: the digest sees every field and the order", "[plan]") {
  const std::vector<ParamSpec> specs{matrix("a", 4, 6), vector("b", 4, 1)};
  const uint64_t digest = registryOf(specs).digest();
  REQUIRE(digest == registryOf(specs).digest());
  REQUIRE(digest != registryOf({specs[1], specs[0]}).digest());
  std::vector<uint64_t> others;
  const auto changed = [&](const auto& change) {
    std::vector<ParamSpec> other = specs;
    change(other[0]);
    others.push_back(registryOf(other).digest());
  };
  changed([](ParamSpec& s) { s.name = "c"; });
  changed([](ParamSpec& s) { s.kind = vmuonElementwise; });
  changed([](ParamSpec& s) { s.dtype = vcollFloat32; });
  changed([](ParamSpec& s) { s.layer = 1; });
  changed([](ParamSpec& s) { s.frozen = true; });
  changed([](ParamSpec& s) { s.shape = {6, 4}; });
  changed([](ParamSpec& s) {
    s.kind = vmuonFusedRows;
    s.splits = {2, 2};
  });
  others.push_back(digest);
  std::sort(others.begin(), others.end());
  REQUIRE(std::adjacent_find(others.begin(), others.end()) == others.end());
}

TEST_CASE("plan params: suggested kinds [27, 37, 45]", "[plan]") {
  const std::vector<uint64_t> shape{512, 512};
  for (const char* name : {"model.layers.3.self_attn.q_proj.weight", "transformer.h.0.attn.c_attn.weight",
                           "model.layers.0.mlp.down_proj.weight", "encoder.layer.0.output.dense.weight",
                           "model.layers.0.mlp.shared_expert.up_proj.weight", "layers.0.mlp.gate.weight",
                           "visual.blocks.1.attn.qkv.weight", "model.layers.0.self_attn.qkv_proj.weight",
                           "layers.1.mlp.gate_up_proj.weight", "action.layers.0.input_layernorm.dense.weight", "w"}) {
    INFO(name);
    REQUIRE(suggest(name, shape) == vmuonMatrix);
  }
  for (const char* name : {"model.embed_tokens.weight",
                           "transformer.wte.weight",
                           "transformer.wpe.weight",
                           "pos_embed",
                           "tok_emb.weight",
                           "vision.position_embedding.weight",
                           "lm_head.weight",
                           "head.weight",
                           "output.weight",
                           "model.output.weight",
                           "output_layer.weight",
                           "classifier.weight",
                           "score.weight",
                           "value_head.weight",
                           "model.norm.weight",
                           "h.0.ln_1.weight",
                           "layers.0.self_attn.q_norm.weight",
                           "layers.0.mlp.router.weight",
                           "layers.0.mlp.shared_expert_gate.weight",
                           "layers.0.q_proj.lora_A.default.weight",
                           "layers.0.q_proj.lora_B.weight",
                           "mtp.embed_tokens.weight",
                           "experts.gate_up_proj_bias",
                           "relative_attention_bias.weight",
                           "layers.0.conv1d.weight",
                           "layers.0.A_log",
                           "LM_HEAD.weight"}) {
    INFO(name);
    REQUIRE(suggest(name, shape) == vmuonElementwise);
  }
  REQUIRE(suggest("layers.0.mlp.gate.weight", {60, 2048}) == vmuonElementwise);  // a router
  REQUIRE(suggest("layers.0.mlp.experts.gate_proj", {60, 128, 256}) == vmuonExperts);
  REQUIRE(suggest("layers.0.mlp.experts.scales", {60, 1, 256}) == vmuonElementwise);
  REQUIRE(suggest("layers.0.conv1d.weight", {64, 1, 4}) == vmuonElementwise);
  REQUIRE(suggest("layers.0.filters", {64, 8, 4}) == vmuonElementwise);
  REQUIRE(suggest("patch.weight", {64, 3, 14, 14}) == vmuonElementwise);
  REQUIRE(suggest("w", {1, 512}) == vmuonElementwise);
  REQUIRE(suggest("w", {512, 1}) == vmuonElementwise);
  REQUIRE(suggest("w", {512}) == vmuonElementwise);
  REQUIRE(suggest("w", {0, 512}) == vmuonElementwise);
  REQUIRE(suggestKind("w", 0, shape.data()) == vmuonElementwise);
  REQUIRE(suggestKind(nullptr, 2, shape.data()) == vmuonElementwise);
  REQUIRE(suggestKind("w", 2, nullptr) == vmuonElementwise);
}

TEST_CASE("plan params: the table shows kind, shape, unit and owner", "[plan]") {
  std::vector<ParamSpec> specs{matrix("layers.0.q", 40, 20, 1), spec("embed", vmuonElementwise, {300, 20}),
                               vector("norm", 20, 1)};
  specs.push_back(spec("qkv", vmuonFusedRows, {60, 20}, 1));
  specs.back().splits = {20, 40};
  specs.push_back(frozen(matrix("still", 10, 10, 1)));
  specs.push_back(spec("head", vmuonMatrix, {}));
  specs.back().tiedTo = "embed";
  const ParamRegistry registry = registryOf(specs);
  CHECK_THAT(describeParams(registry, nullptr, nullptr), Contains("layers.0.q  matrix") && Contains("40x20"));
  const UnitTable table = unitsOf(registry, 2, 1000);
  const std::vector<int32_t> owners(table.units.size(), 1);
  const std::string text = describeParams(registry, &table, &owners);
  INFO(text);
  CHECK_THAT(text, Contains("fused 20+40") && Contains("tied to embed") && Contains("matrix, frozen"));
  CHECK_THAT(text, Contains("0..1 (2)"));  // the units of the embedding
  CHECK_THAT(text, Contains("orthogonalisations per step: 3"));
  CHECK_THAT(text, Contains("elementwise: 2 parameters, 6020 elements"));
}

}  // namespace vmuon
