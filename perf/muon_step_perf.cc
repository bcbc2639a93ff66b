// SPDX-License-Identifier: Apache-2.0
// One optimizer step over the shapes of a published model, trained in four ways in one run: A AdamW in shards, B the
// momentum gathered and orthogonalised on every rank, C owners with one collective per owner, D owners with vcoll's
// collectives.
#include <fmt/format.h>

#include <vmuon/vmuon.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "perf/bridge.h"
#include "perf/session.h"
#include "plan/models.h"

namespace vcoll::perf {
namespace {

using Clock = std::chrono::steady_clock;

double msSince(Clock::time_point begun) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
}

struct Options {
  std::string model = "qwen2.5-1.5b";
  uint64_t scale = 4;
  int layers = 2;
  std::string lines = "abcd";
  int zero = 2;
  bool hsdp = false;
  bool syncPublish = false;
  std::string gradType = "fp32";
  int nodes = 0;
  int iterations = 5;
  int warmup = 2;
  std::string json;
};

// Times in ms, of the slowest rank; bytes of the rank that has most.
struct Figures {
  double step = 0;       // forward, backward and vmuonStep, without any computing of the model
  double optimizer = 0;  // vmuonStep alone
  double newtonSchulz = 0;
  double gather = 0;
  double reduce = 0;
  double publish = 0;
  double calls = 0;  // Newton-Schulz, over all ranks
  double gatherBytes = 0;
  double reduceBytes = 0;
  double stateBytes = 0;
  double copyBytes = 0;
  double communication() const { return gather + reduce + publish; }
};

class Line {
 public:
  Line(const Session& session, const Options& options, const vmuon::ModelShapes& model, char letter)
      : session_(session), model_(model), bytes_(options.gradType == "fp32" ? 4 : 2) {
    vmuonConfig_t config = VMUON_CONFIG_INITIALIZER;
    config.line = letter - 'a';
    config.sharding = options.zero == 2 ? vmuonZero2 : vmuonZero3;
    config.hsdp = options.hsdp;
    config.asyncPublish = !options.syncPublish;
    config.gradType = bytes_ == 4 ? vcollFloat32 : vcollBfloat16;
    // Scaled models keep the published ones' division into units.
    config.mergeElements = std::max<uint64_t>(5'000'000 / (options.scale * options.scale), 1);
    need(vmuonCreate(&optimizer_, session.comm(), &config), "vmuonCreate");
    const vmuonGroup_t group = VMUON_GROUP_INITIALIZER;
    need(vmuonAddGroup(optimizer_, &group, nullptr), "vmuonAddGroup");
    for (const vmuon::ParamSpec& spec : model.params) {
      vmuonParam_t param = VMUON_PARAM_INITIALIZER;
      param.name = spec.name.c_str();
      param.tiedTo = spec.tiedTo.empty() ? nullptr : spec.tiedTo.c_str();
      param.kind = spec.kind;
      param.dtype = spec.dtype;
      param.layer = spec.layer;
      param.ndim = static_cast<int32_t>(spec.shape.size());
      std::copy(spec.shape.begin(), spec.shape.end(), param.shape);
      param.nsplits = static_cast<int32_t>(spec.splits.size());
      param.splits = spec.splits.data();
      need(vmuonAddParam(optimizer_, &param, nullptr), "vmuonAddParam");
      layers_ = std::max(layers_, spec.layer + 1);
    }
    need(vmuonOpen(optimizer_), "vmuonOpen");
    // Any gradient will do; sizes decide the time. Values differ, so that matrices have full rank.
    size_t most = 0;
    for (const vmuon::ParamSpec& spec : model.params) most = std::max(most, elements(spec));
    gradient_.resize(most * bytes_);
    uint64_t seed = 1;
    for (size_t i = 0; i < most; ++i) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      const float value = static_cast<float>(static_cast<int64_t>(seed >> 40) - (1 << 23)) * 1e-7f;
      if (bytes_ == 4)
        std::memcpy(&gradient_[i * 4], &value, 4);
      else
        std::memcpy(&gradient_[i * 2], reinterpret_cast<const char*>(&value) + 2, 2);
    }
  }
  ~Line() { vmuonDestroy(optimizer_); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  Figures run(int warmup, int iterations) {
    std::map<std::string, std::vector<double>> samples;
    Figures figures;
    for (int i = 0; i < warmup + iterations; ++i) {
      session_.member().barrier();
      const Clock::time_point begun = Clock::now();
      vmuonStats_t stats = VMUON_STATS_INITIALIZER;
      const double filling = pass();
      const Clock::time_point stepping = Clock::now();
      need(vmuonStep(optimizer_, &stats), "vmuonStep");
      const double optimizer = msSince(stepping);
      const double step = msSince(begun) - filling;
      if (i < warmup) continue;
      const auto slowest = [&](const char* name, double mine) {
        const std::vector<double> all = session_.member().gather(mine);
        samples[name].push_back(*std::max_element(all.begin(), all.end()));
      };
      slowest("step", step);
      slowest("optimizer", optimizer);
      slowest("newtonSchulz", stats.newtonSchulzTime * 1e3);
      slowest("gather", stats.gatherTime * 1e3);
      slowest("reduce", stats.reduceTime * 1e3);
      slowest("publish", stats.publishWait * 1e3);
      slowest("gatherBytes", static_cast<double>(stats.gatherBytes));
      slowest("reduceBytes", static_cast<double>(stats.reduceBytes));
      slowest("stateBytes", static_cast<double>(stats.stateBytes));
      slowest("copyBytes", static_cast<double>(stats.copyBytes));
      figures.calls = static_cast<double>(session_.member().sum(stats.newtonSchulz));
    }
    figures.step = median(samples["step"]);
    figures.optimizer = median(samples["optimizer"]);
    figures.newtonSchulz = median(samples["newtonSchulz"]);
    figures.gather = median(samples["gather"]);
    figures.reduce = median(samples["reduce"]);
    figures.publish = median(samples["publish"]);
    figures.gatherBytes = median(samples["gatherBytes"]);
    figures.reduceBytes = median(samples["reduceBytes"]);
    figures.stateBytes = median(samples["stateBytes"]);
    figures.copyBytes = median(samples["copyBytes"]);
    return figures;
  }

  // The same bytes from and to the same owners by bare plan calls on windows, in ms.
  double bare(int warmup, int iterations) {
    struct Layer {
      vcollPlan_t gather = nullptr;
      vcollPlan_t reduce = nullptr;
      size_t at = 0;
    };
    std::vector<Layer> layers;
    size_t bytes = 0;
    for (int32_t l = 0; l < layers_; ++l) {
      std::vector<vcollSegment_t> params, grads;
      uint64_t at = 0, gradAt = 0;
      for (size_t p = 0; p < model_.params.size(); ++p) {
        const vmuon::ParamSpec& spec = model_.params[p];
        if (spec.layer != l || !spec.tiedTo.empty() || elements(spec) == 0) continue;
        const uint64_t experts = spec.kind == vmuonExperts ? spec.shape[0] : 1;
        for (uint64_t e = 0; e < experts; ++e) {
          int32_t owner = 0;
          need(vmuonOwner(optimizer_, static_cast<int32_t>(p), e, &owner), "vmuonOwner");
          const uint64_t count = elements(spec) / experts;
          params.push_back({owner, 0, at, count * 2});
          grads.push_back({owner, 0, gradAt, count * bytes_});
          at += count * 2;
          gradAt += count * bytes_;
        }
      }
      if (params.empty()) continue;
      Layer layer;
      layer.at = bytes;
      session_.require(
          vcollPlanCreate(session_.comm(), params.data(), params.size(), vcollUint8, nullptr, &layer.gather),
          "vcollPlanCreate");
      session_.require(vcollPlanCreate(session_.comm(), grads.data(), grads.size(),
                                       bytes_ == 4 ? vcollFloat32 : vcollBfloat16, nullptr, &layer.reduce),
                       "vcollPlanCreate");
      layers.push_back(layer);
      bytes = std::max(bytes, static_cast<size_t>(std::max(at, gradAt)));
      layers.back().at = 0;
    }
    void* memory = nullptr;
    vcollWindow_t window = nullptr;
    session_.require(vcollMemAlloc(&memory, bytes), "vcollMemAlloc");
    session_.require(vcollWindowRegister(session_.comm(), memory, bytes, &window), "vcollWindowRegister");
    std::vector<double> times;
    for (int i = 0; i < warmup + iterations; ++i) {
      session_.member().barrier();
      const Clock::time_point begun = Clock::now();
      for (const Layer& layer : layers) {
        session_.require(vcollPlanAllGatherV(layer.gather, window, layer.at, nullptr), "vcollPlanAllGatherV");
      }
      for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
        session_.require(
            vcollPlanReduceScatterV(layer->reduce, window, layer->at, window, layer->at, vcollAvg, nullptr),
            "vcollPlanReduceScatterV");
      }
      const std::vector<double> all = session_.member().gather(msSince(begun));
      if (i >= warmup) times.push_back(*std::max_element(all.begin(), all.end()));
    }
    for (const Layer& layer : layers) {
      vcollPlanDestroy(layer.gather);
      vcollPlanDestroy(layer.reduce);
    }
    session_.require(vcollWindowDeregister(session_.comm(), window), "vcollWindowDeregister");
    session_.require(vcollMemFree(memory), "vcollMemFree");
    return median(times);
  }

 private:
  static size_t elements(const vmuon::ParamSpec& spec) {
    size_t n = 1;
    for (const uint64_t d : spec.shape) n *= d;
    return n;
  }

  void need(vcollResult_t result, const char* what) const {
    if (result == vcollSuccess) return;
    session_.member().world().fail(kExitLibrary, fmt::format("{}: {}", what, vmuonGetLastError(optimizer_)));
  }

  // Forward and backward without the model's computing; returns the time that writing gradients took.
  double pass() {
    for (int32_t l = 0; l < layers_; ++l) {
      need(vmuonBeginForward(optimizer_, l), "vmuonBeginForward");
      need(vmuonEndForward(optimizer_, l), "vmuonEndForward");
    }
    double filling = 0;
    for (int32_t l = layers_ - 1; l >= 0; --l) {
      need(vmuonBeginBackward(optimizer_, l), "vmuonBeginBackward");
      const Clock::time_point begun = Clock::now();
      for (size_t p = 0; p < model_.params.size(); ++p) {
        const vmuon::ParamSpec& spec = model_.params[p];
        if (spec.layer != l || !spec.tiedTo.empty() || elements(spec) == 0) continue;
        void* grad = nullptr;
        need(vmuonGradData(optimizer_, static_cast<int32_t>(p), &grad), "vmuonGradData");
        std::memcpy(grad, gradient_.data(), elements(spec) * bytes_);
      }
      filling += msSince(begun);
      need(vmuonEndBackward(optimizer_, l), "vmuonEndBackward");
    }
    return filling;
  }

  const Session& session_;
  const vmuon::ModelShapes& model_;
  size_t bytes_;  // of a gradient
  int32_t layers_ = 0;
  vmuonOptimizer_t optimizer_ = nullptr;
  std::vector<char> gradient_;
};

nlohmann::json toJson(const Figures& f) {
  return {{"step_ms", f.step},           {"optimizer_ms", f.optimizer},   {"newton_schulz_ms", f.newtonSchulz},
          {"gather_ms", f.gather},       {"reduce_ms", f.reduce},         {"publish_ms", f.publish},
          {"newton_schulz", f.calls},    {"gather_bytes", f.gatherBytes}, {"reduce_bytes", f.reduceBytes},
          {"state_bytes", f.stateBytes}, {"copy_bytes", f.copyBytes}};
}

std::string parse(int argc, char** argv, Options* o, int* code) {
  CLI::App app("muon_step_perf: one optimizer step over a model's shapes, in the ways A to D");
  app.add_option("--model", o->model, "shapes: " + fmt::format("{}", fmt::join(vmuon::modelNames(), ", ")))
      ->capture_default_str();
  app.add_option("--scale", o->scale, "every dimension is divided by this")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--layers", o->layers, "blocks of the model; 0: all")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  app.add_option("--lines", o->lines, "which, e.g. bd")->capture_default_str();
  app.add_option("--zero", o->zero, "2 or 3")->check(CLI::IsMember({2, 3}))->capture_default_str();
  app.add_flag("--hsdp", o->hsdp, "a copy in every node, PublishStream between nodes");
  app.add_flag("--sync-publish", o->syncPublish, "vmuonStep waits for publishes");
  app.add_option("--grad-type", o->gradType, "fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  app.add_option("--nodes", o->nodes, "pretend so many nodes; 0: as they are")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  app.add_option("-n,--iters", o->iterations, "timed steps")->check(CLI::Range(1, 100000))->capture_default_str();
  app.add_option("-w,--warmup_iters", o->warmup, "steps before")->check(CLI::Range(1, 100000))->capture_default_str();
  app.add_option("-J,--output_file", o->json, "JSON goes to this file");
  app.footer(
      "Times are medians of the slowest rank, in ms; nothing of the model is computed. step: gathering all layers "
      "forward,\n"
      "reducing all gradients backward, vmuonStep. comm: waits for gathers, reductions and publishes. x own: comm over "
      "the time of\n"
      "the same bytes in bare plan calls. x bytes: bytes received and sent over 2(N-1)/N P (ZeRO-2) or 3(N-1)/N P "
      "(ZeRO-3).");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    *code = kExitSuccess;
    return app.help();
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  if (o->lines.empty() || o->lines.find_first_not_of("abcd") != std::string::npos)
    return "--lines: '" + o->lines + "' has letters other than a to d";
  if (vmuon::makeModel(o->model).name.empty()) {
    return fmt::format("--model: '{}' is none of {}", o->model, fmt::join(vmuon::modelNames(), ", "));
  }
  return {};
}

int muonStepPerf(int argc, char** argv) {
  World world(makeBridge(&argc, &argv), 1);
  const Member member(world, 0);
  Options options;
  int code = kExitUsage;
  const std::string wrong = parse(argc, argv, &options, &code);
  if (!wrong.empty()) {
    if (member.first()) fmt::print(code == kExitSuccess ? stdout : stderr, "{}\n", wrong);
    return code;
  }
  Session session(member, {0, options.nodes});
  const vmuon::ModelShapes model = vmuon::makeModel(options.model, {options.scale, options.layers});
  double params = 0;
  for (const vmuon::ParamSpec& spec : model.params) {
    double n = spec.tiedTo.empty() ? 1 : 0;
    for (const uint64_t d : spec.shape) n *= static_cast<double>(d);
    params += n;
  }
  const double share = options.hsdp ? member.ranks() / session.nodes() : member.ranks();
  if (member.first()) {
    fmt::print("# {} / {}, {} blocks, {:.1f} M parameters, {} ranks on {} nodes, ZeRO-{}{}\n", model.name,
               options.scale, options.layers, params / 1e6, member.ranks(), session.nodes(), options.zero,
               options.hsdp ? ", HSDP" : "");
    fmt::print("# line {:>9} {:>9} {:>9} {:>6} {:>8} {:>8} {:>8} {:>8} {:>6} {:>8} {:>9} {:>9}\n", "step", "optimizer",
               "NS", "calls", "gather", "reduce", "publish", "comm", "x own", "x bytes", "state MB", "copies MB");
  }
  nlohmann::json json = {{"model", options.model}, {"scale", options.scale}, {"ranks", member.ranks()}, {"lines", {}}};
  std::map<char, Figures> results;
  for (const char letter : options.lines) {
    Line line(session, options, model, letter);
    const Figures f = line.run(options.warmup, options.iterations);
    const double own = letter == 'd' ? line.bare(options.warmup, options.iterations) : 0;
    results[letter] = f;
    const double paramBytes = params * 2, gradBytes = params * (options.gradType == "fp32" ? 4 : 2);
    const double identity =
        (share - 1) / share * paramBytes * (options.zero - 1) + (member.ranks() - 1.0) / member.ranks() * gradBytes;
    json["lines"][std::string(1, letter)] = toJson(f);
    if (own > 0) json["lines"]["d"]["bare_ms"] = own;
    if (!member.first()) continue;
    fmt::print(
        "  {}    {:>9.1f} {:>9.1f} {:>9.1f} {:>6.0f} {:>8.1f} {:>8.1f} {:>8.1f} {:>8.1f} {:>6} {:>8.3f} {:>9.1f} "
        "{:>9.1f}\n",
        static_cast<char>(letter - 32), f.step, f.optimizer, f.newtonSchulz, f.calls, f.gather, f.reduce, f.publish,
        f.communication(), own > 0 ? fmt::format("{:.2f}", f.communication() / own) : "-",
        identity > 0 ? (f.gatherBytes + f.reduceBytes) / identity : 0, f.stateBytes / 1e6, f.copyBytes / 1e6);
    std::fflush(stdout);
  }
  if (member.first()) {
    const auto have = [&](char l) { return results.count(l) != 0; };
    if (have('b') && have('d'))
      fmt::print("# optimizer step: B / D = {:.2f}\n", results['b'].optimizer / results['d'].optimizer);
    if (have('c') && have('d')) {
      fmt::print("# communication: D / C = {:.2f}; step: D / C = {:.2f}\n",
                 results['d'].communication() / results['c'].communication(), results['d'].step / results['c'].step);
    }
    if (!options.json.empty()) {
      std::ofstream out(options.json);
      out << json.dump(1) << "\n";
      if (!out.flush()) {
        fmt::print(stderr, "-J: cannot write '{}'\n", options.json);
        return kExitUsage;
      }
    }
  }
  return kExitSuccess;
}

}  // namespace
}  // namespace vcoll::perf

int main(int argc, char** argv) { return vcoll::perf::muonStepPerf(argc, argv); }
