// SPDX-License-Identifier: Apache-2.0
// What users get wrong: an error that names it, on every rank, and no hang.
#include <catch2/catch.hpp>
#include <cstring>

#include "runtime_support.h"

using vmuon_test::onRanks;

namespace {

std::string last(vmuonOptimizer_t optimizer) { return vmuonGetLastError(optimizer); }

vmuonParam_t matrix(const char* name, uint64_t rows, uint64_t cols, int32_t layer = 0) {
  vmuonParam_t param = VMUON_PARAM_INITIALIZER;
  param.name = name;
  param.layer = layer;
  param.ndim = 2;
  param.shape[0] = rows;
  param.shape[1] = cols;
  return param;
}

// One rank with one group.
class Alone {
 public:
  explicit Alone(const std::function<std::string(vmuonOptimizer_t)>& body) {
    text_ = onRanks({0}, [&](int, vcollComm_t comm) -> std::string {
      vmuonOptimizer_t optimizer = nullptr;
      if (vmuonCreate(&optimizer, comm, nullptr) != vcollSuccess) return last(nullptr);
      const vmuonGroup_t group = VMUON_GROUP_INITIALIZER;
      std::string text = vmuonAddGroup(optimizer, &group, nullptr) == vcollSuccess ? body(optimizer) : last(optimizer);
      vmuonDestroy(optimizer);
      return text;
    });
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

#define FAILS(optimizer, call, wanted)                                                          \
  do {                                                                                          \
    const vcollResult_t failed = (call);                                                        \
    if (failed != (wanted)) return std::string(#call) + " gave " + vcollGetErrorString(failed); \
  } while (false)
#define NAMES(optimizer, part)                                        \
  do {                                                                \
    if (last(optimizer).find(part) == std::string::npos)              \
      return "no '" + std::string(part) + "' in: " + last(optimizer); \
  } while (false)

}  // namespace

TEST_CASE("calls at the wrong time are refused and change nothing", "[runtime][errors]") {
  const Alone run([](vmuonOptimizer_t o) -> std::string {
    const vmuonParam_t w = matrix("w", 4, 8);
    const void* data = nullptr;
    void* grad = nullptr;
    FAILS(o, vmuonAddParam(o, &w, nullptr), vcollSuccess);
    FAILS(o, vmuonStep(o, nullptr), vcollInvalidUsage);
    NAMES(o, "not open yet");
    FAILS(o, vmuonOpen(o), vcollSuccess);
    FAILS(o, vmuonOpen(o), vcollInvalidUsage);
    FAILS(o, vmuonAddParam(o, &w, nullptr), vcollInvalidUsage);
    FAILS(o, vmuonParamData(o, 0, &data), vcollInvalidUsage);
    NAMES(o, "'w' is not in use");
    FAILS(o, vmuonGradData(o, 0, &grad), vcollInvalidUsage);
    FAILS(o, vmuonEndForward(o, 0), vcollInvalidUsage);
    FAILS(o, vmuonEndBackward(o, 0), vcollInvalidUsage);
    FAILS(o, vmuonBeginForward(o, 3), vcollInvalidArgument);
    NAMES(o, "layer = 3");
    FAILS(o, vmuonBeginForward(o, 0), vcollSuccess);
    FAILS(o, vmuonStep(o, nullptr), vcollInvalidUsage);
    NAMES(o, "still in use");
    FAILS(o, vmuonSave(o, "/tmp"), vcollInvalidUsage);
    FAILS(o, vmuonParamData(o, 0, &data), vcollSuccess);
    FAILS(o, vmuonParamData(o, 1, &data), vcollInvalidArgument);
    NAMES(o, "param = 1");
    FAILS(o, vmuonEndForward(o, 0), vcollSuccess);
    FAILS(o, vmuonBeginBackward(o, 0), vcollSuccess);
    FAILS(o, vmuonBeginBackward(o, 0), vcollInvalidUsage);
    FAILS(o, vmuonEndBackward(o, 0), vcollSuccess);
    FAILS(o, vmuonStep(o, nullptr), vcollSuccess);
    FAILS(o, vmuonStep(o, nullptr), vcollSuccess);  // twice without a forward: nothing to do
    return {};
  });
  REQUIRE(run.text() == "");
}

TEST_CASE("arguments are checked and named", "[runtime][errors]") {
  const Alone run([](vmuonOptimizer_t o) -> std::string {
    vmuonGroup_t group = VMUON_GROUP_INITIALIZER;
    group.momentum = 1;
    FAILS(o, vmuonAddGroup(o, &group, nullptr), vcollInvalidArgument);
    NAMES(o, "group->momentum = 1");
    group = VMUON_GROUP_INITIALIZER;
    group.lr = -1;
    FAILS(o, vmuonAddGroup(o, &group, nullptr), vcollInvalidArgument);
    NAMES(o, "group->lr = -1");
    vmuonGroup_t raw;
    std::memset(&raw, 0, sizeof raw);
    FAILS(o, vmuonAddGroup(o, &raw, nullptr), vcollInvalidArgument);
    NAMES(o, "initializer");
    vmuonParam_t flat = matrix("flat", 8, 8);
    flat.ndim = 1;
    FAILS(o, vmuonAddParam(o, &flat, nullptr), vcollInvalidArgument);
    NAMES(o, "flat");
    vmuonParam_t w = matrix("w", 8, 8);
    FAILS(o, vmuonAddParam(o, &w, nullptr), vcollSuccess);
    FAILS(o, vmuonAddParam(o, &w, nullptr), vcollInvalidArgument);  // the same name
    FAILS(o, vmuonAddParam(o, nullptr, nullptr), vcollInvalidArgument);
    FAILS(o, vmuonAddGroup(o, nullptr, nullptr), vcollInvalidArgument);
    return {};
  });
  REQUIRE(run.text() == "");
  REQUIRE(vmuonStep(nullptr, nullptr) == vcollInvalidArgument);
  REQUIRE(vmuonDestroy(nullptr) == vcollSuccess);
}

TEST_CASE("a configuration with a wrong value is refused on creation", "[runtime][errors]") {
  const std::string text = onRanks({0}, [](int, vcollComm_t comm) -> std::string {
    const auto refused = [&](auto change, const char* part) {
      vmuonConfig_t config = VMUON_CONFIG_INITIALIZER;
      change(&config);
      vmuonOptimizer_t o = nullptr;
      if (vmuonCreate(&o, comm, &config) != vcollInvalidArgument || o != nullptr)
        return std::string(part) + " was accepted";
      return last(nullptr).find(part) != std::string::npos ? std::string()
                                                           : "no '" + std::string(part) + "' in: " + last(nullptr);
    };
    std::string wrong = refused([](vmuonConfig_t* c) { c->line = 4; }, "config->line = 4");
    if (wrong.empty()) wrong = refused([](vmuonConfig_t* c) { c->sharding = -1; }, "config->sharding = -1");
    if (wrong.empty()) wrong = refused([](vmuonConfig_t* c) { c->gradType = vcollInt8; }, "config->gradType = 0");
    if (wrong.empty()) wrong = refused([](vmuonConfig_t* c) { c->byteCap = 0.5; }, "config->byteCap = 0.5");
    if (wrong.empty()) wrong = refused([](vmuonConfig_t* c) { c->maxGradNorm = -1; }, "config->maxGradNorm = -1");
    if (wrong.empty()) wrong = refused([](vmuonConfig_t* c) { c->coefficients = "none"; }, "polar-express");
    if (wrong.empty()) wrong = refused([](vmuonConfig_t* c) { c->magic = 1; }, "initializer");
    return wrong;
  });
  REQUIRE(text == "");
}

TEST_CASE("a configuration that is wrong or different on one rank fails on all at once", "[runtime][errors]") {
  for (const int what : {0, 1}) {
    const std::string text = onRanks({0, 1}, [&](int rank, vcollComm_t comm) -> std::string {
      vmuonConfig_t config = VMUON_CONFIG_INITIALIZER;
      if (rank == 1) (what == 0 ? config.line : config.hsdp) = what == 0 ? 9 : 1;
      vmuonOptimizer_t o = nullptr;
      FAILS(o, vmuonCreate(&o, comm, &config), what == 0 ? vcollInvalidArgument : vcollMismatch);
      NAMES(nullptr, what == 0 ? "config->line = 9" : "config->hsdp");
      return o == nullptr ? "" : "an optimizer came out";
    });
    REQUIRE(text == "");
  }
}

TEST_CASE("ranks that disagree get the same error, and may go on without the optimizer", "[runtime][errors]") {
  const auto open = [](int rank, vcollComm_t comm, int what) -> std::string {
    vmuonConfig_t config = VMUON_CONFIG_INITIALIZER;
    if (what == 0 && rank == 1) config.maxGradNorm = 1;
    vmuonOptimizer_t o = nullptr;
    FAILS(o, vmuonCreate(&o, comm, &config), vcollSuccess);
    vmuonGroup_t group = VMUON_GROUP_INITIALIZER;
    if (what == 1 && rank == 1) group.lr = 0.5;
    FAILS(o, vmuonAddGroup(o, &group, nullptr), vcollSuccess);
    const vmuonParam_t w = matrix("w", what == 2 && rank == 1 ? 8 : 4, 8);
    FAILS(o, vmuonAddParam(o, &w, nullptr), vcollSuccess);
    if (what == 3 && rank == 0) {
      vmuonParam_t none = matrix("none", 4, 4);
      none.group = 0;
      none.kind = vmuonElementwise;
      FAILS(o, vmuonAddParam(o, &none, nullptr), vcollSuccess);
    }
    FAILS(o, vmuonOpen(o), vcollMismatch);
    NAMES(o, what < 2 ? "configuration or a group" : "list of parameters");
    NAMES(o, "rank 1");
    vmuonDestroy(o);
    // The caller's communicator is as it was.
    char mine = static_cast<char>(rank), all[2] = {9, 9};
    const size_t counts[2] = {1, 1};
    FAILS(o, vcollAllGatherV(&mine, 1, all, counts, nullptr, vcollUint8, comm, nullptr), vcollSuccess);
    return all[1] == 1 ? "" : "wrong data";
  };
  for (int what = 0; what < 4; ++what) {
    INFO("case " << what);
    REQUIRE(onRanks({0, 0}, [&](int rank, vcollComm_t comm) { return open(rank, comm, what); }) == "");
  }
}

TEST_CASE("no matrix at all is an error: Muon would silently be off (DeepSpeed 8438)", "[runtime][errors]") {
  const Alone run([](vmuonOptimizer_t o) -> std::string {
    vmuonParam_t w = matrix("w", 4, 8);
    w.kind = vmuonElementwise;
    FAILS(o, vmuonAddParam(o, &w, nullptr), vcollSuccess);
    FAILS(o, vmuonOpen(o), vcollInvalidArgument);
    return {};
  });
  REQUIRE(run.text() == "");
}

TEST_CASE("a gradient on one rank only counts everywhere (Muon 38)", "[runtime]") {
  std::vector<float> after[2];
  const std::string text = onRanks({0, 0}, [&](int rank, vcollComm_t comm) -> std::string {
    vmuonOptimizer_t o = nullptr;
    FAILS(o, vmuonCreate(&o, comm, nullptr), vcollSuccess);
    const vmuonGroup_t group = VMUON_GROUP_INITIALIZER;
    FAILS(o, vmuonAddGroup(o, &group, nullptr), vcollSuccess);
    for (const char* name : {"asked", "never"}) {
      const vmuonParam_t w = matrix(name, 8, 8);
      FAILS(o, vmuonAddParam(o, &w, nullptr), vcollSuccess);
    }
    FAILS(o, vmuonOpen(o), vcollSuccess);
    FAILS(o, vmuonBeginBackward(o, 0), vcollSuccess);
    if (rank == 1) {
      void* grad = nullptr;
      FAILS(o, vmuonGradData(o, 0, &grad), vcollSuccess);
      static_cast<float*>(grad)[3] = 1;
    }
    FAILS(o, vmuonEndBackward(o, 0), vcollSuccess);
    vmuonStats_t stats = VMUON_STATS_INITIALIZER;
    FAILS(o, vmuonStep(o, &stats), vcollSuccess);
    if (stats.gradNorm != 0.5) return "norm " + std::to_string(stats.gradNorm);
    std::vector<float> all;
    for (int32_t p = 0; p < 2; ++p) {
      std::vector<float> values(64);
      FAILS(o, vmuonGetParam(o, p, values.data()), vcollSuccess);
      all.insert(all.end(), values.begin(), values.end());
    }
    after[rank] = all;
    vmuonDestroy(o);
    return {};
  });
  REQUIRE(text == "");
  REQUIRE(after[0] == after[1]);
  REQUIRE(after[0][3] != 0);   // updated
  REQUIRE(after[0][64] == 0);  // no gradient anywhere: left alone
}
