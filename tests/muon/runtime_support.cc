// SPDX-License-Identifier: Apache-2.0
#include "runtime_support.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <thread>

namespace vmuon_test {
namespace {

struct ToyParam {
  const char* name;
  int32_t kind;
  int32_t layer;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> splits;
  bool frozen = false;
  const char* tiedTo = nullptr;
  uint64_t elements() const {
    uint64_t n = 1;
    for (const uint64_t d : shape) n *= d;
    return n;
  }
  uint64_t matrices() const {
    if (frozen || tiedTo || kind == vmuonElementwise) return 0;
    return kind == vmuonExperts ? shape[0] : kind == vmuonFusedRows ? splits.size() : 1;
  }
};

const std::vector<ToyParam>& toyModel() {
  static const std::vector<ToyParam> model = {
      {"embed", vmuonElementwise, 0, {301, 48}, {}},    {"a.qkv", vmuonFusedRows, 1, {96, 48}, {48, 32, 16}},
      {"a.out", vmuonMatrix, 1, {48, 48}, {}},          {"a.norm", vmuonElementwise, 1, {48}, {}},
      {"a.frozen", vmuonMatrix, 1, {16, 48}, {}, true}, {"b.experts", vmuonExperts, 2, {3, 32, 48}, {}},
      {"b.up", vmuonMatrix, 2, {128, 48}, {}},          {"b.down", vmuonMatrix, 2, {48, 128}, {}},
      {"b.bias", vmuonElementwise, 2, {7}, {}},         {"c.row", vmuonMatrix, 3, {1, 48}, {}},
      {"c.scale", vmuonElementwise, 3, {1}, {}},        {"head", vmuonElementwise, 0, {301, 48}, {}, false, "embed"},
  };
  return model;
}

constexpr int kLayers = 4;

uint64_t hash(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// In (-1, 1), a multiple of 1/512.
float noise(uint64_t seed, uint64_t at) {
  return static_cast<float>(static_cast<int64_t>(hash(seed * 1000003 + at) % 1023) - 511) / 512.0f;
}

float widen(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t round16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

class Trainer {
 public:
  Trainer(const Run& run, int rank, vcollComm_t comm) : run_(run), rank_(rank), comm_(comm) {}
  ~Trainer() { vmuonDestroy(optimizer_); }

  std::string train(Outcome* outcome, std::mutex* mutex) {
    open();
    if (!run_.loadFrom.empty()) need(vmuonLoad(optimizer_, run_.loadFrom.c_str()), "vmuonLoad");
    std::vector<uint64_t> calls;
    vmuonStats_t stats = VMUON_STATS_INITIALIZER;
    for (int s = 0; s < run_.steps && error_.empty(); ++s) {
      step(run_.firstStep + s, s);
      need(vmuonStep(optimizer_, &stats), "vmuonStep");
      calls.push_back(stats.newtonSchulz);
    }
    if (!run_.saveTo.empty() && error_.empty()) {
      const vcollResult_t saved = vmuonSave(optimizer_, run_.saveTo.c_str());
      if (!run_.saveFails) {
        need(saved, "vmuonSave");
      } else {
        if (saved == vcollSuccess) error_ = "vmuonSave worked";
        const std::lock_guard lock(*mutex);
        if (rank_ == 0) outcome->saveError = vmuonGetLastError(optimizer_);
      }
    }
    std::vector<float> masters = getAll();
    checkCopies(masters);
    const std::lock_guard lock(*mutex);
    const auto index = static_cast<size_t>(rank_);
    outcome->stats[index] = stats;
    outcome->newtonSchulz.resize(calls.size(), 0);
    for (size_t i = 0; i < calls.size(); ++i) outcome->newtonSchulz[i] += calls[i];
    if (rank_ == 0) outcome->masters = std::move(masters);
    for (size_t p = 0; p < toyModel().size() && error_.empty(); ++p) {
      int32_t owner = -1;
      need(vmuonOwner(optimizer_, static_cast<int32_t>(p), 0, &owner), "vmuonOwner");
      outcome->owners[index].push_back(owner);
    }
    return error_;
  }

 private:
  void need(vcollResult_t result, const char* what) {
    if (result != vcollSuccess && error_.empty()) error_ = fmt::format("{}: {}", what, vmuonGetLastError(optimizer_));
  }

  void open() {
    need(vmuonCreate(&optimizer_, comm_, &run_.config), "vmuonCreate");
    if (!error_.empty()) return;
    need(vmuonAddGroup(optimizer_, &run_.group, nullptr), "vmuonAddGroup");
    for (const ToyParam& toy : toyModel()) {
      vmuonParam_t param = VMUON_PARAM_INITIALIZER;
      param.name = toy.name;
      param.tiedTo = toy.tiedTo;
      param.kind = toy.kind;
      param.layer = toy.layer;
      param.dtype = run_.dtype;
      param.frozen = toy.frozen;
      param.ndim = static_cast<int32_t>(toy.shape.size());
      std::copy(toy.shape.begin(), toy.shape.end(), param.shape);
      param.nsplits = static_cast<int32_t>(toy.splits.size());
      param.splits = toy.splits.data();
      need(vmuonAddParam(optimizer_, &param, nullptr), "vmuonAddParam");
    }
    need(vmuonOpen(optimizer_), "vmuonOpen");
    for (size_t p = 0; p < toyModel().size() && error_.empty(); ++p) {
      std::vector<float> values(toyModel()[p].elements());
      for (size_t i = 0; i < values.size(); ++i) values[i] = noise(toyModel()[p].tiedTo ? 0 : p, i);
      need(vmuonSetParam(optimizer_, static_cast<int32_t>(p), values.data()), "vmuonSetParam");
    }
  }

  float param(const void* data, size_t i) const {
    return run_.dtype == vcollFloat32 ? static_cast<const float*>(data)[i]
                                      : widen(static_cast<const uint16_t*>(data)[i]);
  }

  // A gradient that depends on the values, so that a wrong copy anywhere shows in the end.
  void addGradient(size_t p, int step, int micro) {
    const void* data = nullptr;
    void* grad = nullptr;
    need(vmuonParamData(optimizer_, static_cast<int32_t>(p), &data), "vmuonParamData");
    need(vmuonGradData(optimizer_, static_cast<int32_t>(p), &grad), "vmuonGradData");
    if (!error_.empty()) return;
    const auto ranks = static_cast<int>(run_.nodes.size());
    // Differs between ranks; the mean over an even number of them is 0.
    const float own = ranks % 2 == 0 ? (rank_ % 2 == 0 ? 0.125f : -0.125f) : 0.0f;
    const float share = 1.0f / static_cast<float>(run_.microBatches);
    for (size_t i = 0; i < toyModel()[p].elements(); ++i) {
      float g =
          noise(1000 + static_cast<uint64_t>(step) * 64 + p, i) + std::round(param(data, i) * 16.0f) / 64.0f + own;
      g = g * share + (run_.microBatches == 2 ? (micro == 0 ? 0.25f : -0.25f) : 0.0f);
      if (step == run_.nanAtStep && rank_ == ranks - 1 && p == 6 && i == 17)
        g = std::numeric_limits<float>::quiet_NaN();
      if (run_.config.gradType == vcollFloat32) {
        static_cast<float*>(grad)[i] += g;
      } else {
        auto* half = static_cast<uint16_t*>(grad);
        half[i] = round16(widen(half[i]) + g);
      }
    }
  }

  void step(int number, int index) {
    for (int micro = 0; micro < run_.microBatches && error_.empty(); ++micro) {
      for (int l = 0; l < kLayers; ++l) {
        const int layer = run_.reverseSecondForward && index == 1 ? (l + 2) % kLayers : l;
        need(vmuonBeginForward(optimizer_, layer), "vmuonBeginForward");
        need(vmuonEndForward(optimizer_, layer), "vmuonEndForward");
      }
      for (int layer = kLayers - 1; layer >= 0 && error_.empty(); --layer) {
        if (layer == run_.skipLayer) continue;
        need(vmuonBeginBackward(optimizer_, layer), "vmuonBeginBackward");
        for (size_t p = 0; p < toyModel().size(); ++p) {
          const ToyParam& toy = toyModel()[p];
          if (toy.layer == layer && !toy.frozen && !toy.tiedTo) addGradient(p, number, micro);
        }
        need(vmuonEndBackward(optimizer_, layer), "vmuonEndBackward");
      }
    }
  }

  std::vector<float> getAll() {
    std::vector<float> all;
    for (size_t p = 0; p < toyModel().size() && error_.empty(); ++p) {
      std::vector<float> values(toyModel()[p].elements());
      need(vmuonGetParam(optimizer_, static_cast<int32_t>(p), values.data()), "vmuonGetParam");
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  // What this rank computes with is the owner's rounding, bit for bit.
  void checkCopies(const std::vector<float>& masters) {
    for (int layer = 0; layer < kLayers && error_.empty(); ++layer) {
      need(vmuonBeginForward(optimizer_, layer), "vmuonBeginForward");
      size_t at = 0;
      for (size_t p = 0; p < toyModel().size(); ++p) {
        const ToyParam& toy = toyModel()[p];
        if (toy.layer == layer && error_.empty()) {
          const void* data = nullptr;
          need(vmuonParamData(optimizer_, static_cast<int32_t>(p), &data), "vmuonParamData");
          for (size_t i = 0; i < toy.elements() && error_.empty(); ++i) {
            const float want = run_.dtype == vcollFloat32 ? masters[at + i] : widen(round16(masters[at + i]));
            if (param(data, i) != want) {
              error_ = fmt::format("{}[{}]: this rank's copy has {}, the owner {}", toy.name, i, param(data, i), want);
            }
          }
        }
        at += toy.elements();
      }
      need(vmuonEndForward(optimizer_, layer), "vmuonEndForward");
    }
  }

  const Run& run_;
  int rank_;
  vcollComm_t comm_;
  vmuonOptimizer_t optimizer_ = nullptr;
  std::string error_;
};

}  // namespace

uint64_t toyMatrices() {
  uint64_t count = 0;
  for (const ToyParam& toy : toyModel()) count += toy.matrices();
  return count;
}

std::string onRanks(const std::vector<int>& nodes, const std::function<std::string(int, vcollComm_t)>& body) {
  vcollUniqueId id;
  if (vcollGetUniqueId(&id) != vcollSuccess) return vcollGetLastError(nullptr);
  std::vector<std::string> errors(nodes.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < nodes.size(); ++r) {
    threads.emplace_back([&, r] {
      const std::string host = std::to_string(nodes[r]);
      vcollConfig_t config = VCOLL_CONFIG_INITIALIZER;
      config.hostId = host.c_str();
      config.timeoutMs = 60000;
      vcollComm_t comm = nullptr;
      if (vcollCommInitRankConfig(&comm, static_cast<int>(nodes.size()), id, static_cast<int>(r), &config) !=
          vcollSuccess) {
        errors[r] = vcollGetLastError(nullptr);
        return;
      }
      errors[r] = body(static_cast<int>(r), comm);
      vcollCommDestroy(comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t r = 0; r < errors.size(); ++r) {
    if (!errors[r].empty()) return fmt::format("rank {}: {}", r, errors[r]);
  }
  return {};
}

Outcome train(const Run& run) {
  Outcome outcome;
  outcome.stats.resize(run.nodes.size());
  outcome.owners.resize(run.nodes.size());
  std::mutex mutex;
  outcome.error = onRanks(run.nodes, [&](int rank, vcollComm_t comm) {
    Trainer trainer(run, rank, comm);
    return trainer.train(&outcome, &mutex);
  });
  return outcome;
}

}  // namespace vmuon_test
