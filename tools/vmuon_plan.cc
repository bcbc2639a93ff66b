// SPDX-License-Identifier: Apache-2.0
// vmuon-plan: who would own what, and how evenly, without training anything.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "math/coefficients.h"
#include "math/timing.h"
#include "plan/costs_file.h"
#include "plan/models.h"
#include "plan_report.h"

namespace vmuon {
namespace {

constexpr const char* kBalanced = "balanced";
constexpr const char* kElements = "elements";
constexpr const char* kRoundRobin = "round-robin";

struct Options {
  std::string model;
  int ranks = 0;
  int nodes = 1;
  std::string strategy = kBalanced;
  std::string costs = "flops";
  std::string costFile;
  std::string coefficients = kDefaultCoefficients;
  double byteCap = 1.1;
  uint64_t mergeElements = 5'000'000;
  ModelOptions size;
  bool table = false;
  bool allRanks = false;
  std::string json;
  std::string draw;
};

std::string footer() {
  std::string text = "models:";
  for (const std::string& name : modelNames()) text += " " + name;
  return text +
         "\nA file is a JSON list of {\"name\", \"shape\", \"layer\", \"kind\": matrix|experts|fused|elementwise, "
         "\"splits\",\n"
         "\"dtype\": bf16|fp32, \"frozen\", \"tied_to\"}. Without kind the usual rule by names is taken; --table shows "
         "it.\n"
         "With several nodes every node has a copy (HSDP), and columns, the ranks of one place on all nodes, are "
         "balanced\n"
         "first. Ratios are the busiest over the mean; \"worst layer\" is a layer's heaviest rank over its largest "
         "unit.";
}

// Reads what was measured before and measures what is missing.
std::unique_ptr<MeasuredCosts> measure(const Options& options, const UnitTable& table) {
  auto costs = std::make_unique<MeasuredCosts>();
  const CoefficientSet set = coefficientSet(options.coefficients);
  const CostKey key{cpuModel(), "openblas", options.coefficients};
  const auto say = [](const std::string& note) {
    if (!note.empty()) fmt::print(stderr, "vmuon-plan: {}\n", note);
  };
  if (!options.costFile.empty()) say(loadCosts(options.costFile, key, costs.get()));
  bool added = false;
  for (const auto& [rows, cols] : distinctShapes(table)) {
    if (costs->has(rows, cols)) continue;
    fmt::print(stderr, "measuring {}x{}\n", rows, cols);
    costs->times[{rows, cols}] = measureNewtonSchulz(static_cast<int64_t>(rows), static_cast<int64_t>(cols), set);
    added = true;
  }
  if (added && !options.costFile.empty()) say(saveCosts(options.costFile, key, *costs));
  return costs;
}

std::unique_ptr<CostTable> costsOf(const Options& options, const UnitTable& table, std::string* what) {
  if (options.costs == "measured") {
    *what = fmt::format("measured here, {}", cpuModel());
    return measure(options, table);
  }
  if (options.costs == "paper-toy") {
    *what = "paper-toy, relative to an MLP matrix of Qwen2.5-1.5B as 1 s";
    return std::make_unique<ToyCosts>();
  }
  *what = "operations at 50 GFLOP/s";
  return std::make_unique<FlopCosts>();
}

std::vector<Variant> variantsOf(const Options& options, const PlanRun& run, const CostTable& costs) {
  const std::vector<uint64_t> times = unitTimes(run.table, costs);
  const std::vector<uint64_t> sizes = unitTimes(run.table, ElementCosts());
  AssignOptions usual;
  usual.byteCap = options.byteCap;
  usual.balanceColumns = run.nodes > 1;
  AssignOptions other = usual;
  std::vector<Variant> variants{{kBalanced, assignOwners(run.table, times, run.grid, usual)}};
  other.byteCap = 0;
  variants.push_back({"  without byte cap", assignOwners(run.table, times, run.grid, other)});
  other = usual;
  other.spreadLayers = false;
  variants.push_back({"  without layer spreading", assignOwners(run.table, times, run.grid, other)});
  if (run.nodes > 1) {
    other = usual;
    other.balanceColumns = false;
    variants.push_back({"  without column balance", assignOwners(run.table, times, run.grid, other)});
  }
  variants.push_back(
      {kElements, withTimes(assignOwners(run.table, sizes, run.grid, usual), run.table, times, run.grid)});
  other = usual;
  other.strategy = AssignOptions::Strategy::kRoundRobin;
  variants.push_back({kRoundRobin, assignOwners(run.table, times, run.grid, other)});
  return variants;
}

std::string readModel(const Options& options, PlanRun* run) {
  ModelShapes model = makeModel(options.model, options.size);
  if (model.name.empty()) {
    const std::string error = readShapes(options.model, &model.params);
    if (!error.empty()) return fmt::format("{}, and it is none of the models in --help", error);
  }
  run->model = options.model;
  run->note = model.note;
  std::string error = registerModel(model, &run->params);
  if (error.empty()) error = run->params.validate(false);
  return error;
}

std::string plan(const Options& options) {
  PlanRun run;
  const std::string error = readModel(options, &run);
  if (!error.empty()) return error;
  if (options.ranks < options.nodes) return fmt::format("{} ranks cannot be on {} nodes", options.ranks, options.nodes);
  run.nodes = options.nodes;
  run.grid = RankGrid::even(options.ranks, options.nodes);
  UnitOptions unitOptions;
  unitOptions.ranks = options.ranks;
  unitOptions.mergeElements = options.mergeElements;
  run.table = makeUnits(run.params, unitOptions);
  const std::unique_ptr<CostTable> costs = costsOf(options, run.table, &run.costs);
  const std::vector<Variant> variants = variantsOf(options, run, *costs);
  run.strategy = options.strategy;
  for (const Variant& variant : variants) {
    if (variant.name == options.strategy) run.assignment = variant.assignment;
  }
  if (options.table) fmt::print("{}\n", describeParams(run.params, &run.table, &run.assignment.owner));
  printPlan(run, variants, options.allRanks);
  const std::string json = planJson(run);
  if (!options.json.empty() && !(std::ofstream(options.json) << json).flush())
    return fmt::format("cannot write {}", options.json);
  return options.draw.empty() ? "" : drawPlan(json, options.draw);
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Plans which rank owns which matrix, and prints the balance of time and bytes.", "vmuon-plan");
  app.footer(footer());
  app.add_option("model", options.model, "a model below, or a file of shapes")->required();
  app.add_option("--ranks", options.ranks, "ranks in all")->required()->check(CLI::Range(1, 1 << 20));
  app.add_option("--nodes", options.nodes, "nodes; default 1")->check(CLI::Range(1, 1 << 20));
  app.add_option("--strategy", options.strategy, "what the tables show; default balanced")
      ->check(CLI::IsMember({kBalanced, kElements, kRoundRobin}));
  app.add_option("--costs", options.costs, "times of matrices; default flops")
      ->check(CLI::IsMember({"measured", "flops", "paper-toy"}));
  app.add_option("--cost-file", options.costFile, "with measured: keeps times here")->envname("VMUON_COST_CACHE");
  app.add_option("--coefficients", options.coefficients, "with measured: of Newton-Schulz; default polar-express");
  app.add_option("--byte-cap", options.byteCap, "heaviest rank's bytes over the mean; 0: none; default 1.1")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--merge", options.mergeElements, "smaller matrices share their layer's unit; default 5000000");
  app.add_option("--divide", options.size.divide, "makes every dimension so many times smaller")
      ->check(CLI::PositiveNumber);
  app.add_option("--layers", options.size.layers, "at most so many blocks")->check(CLI::PositiveNumber);
  app.add_flag("--table", options.table, "prints all parameters too");
  app.add_flag("--all", options.allRanks, "prints every rank, also of more than 64");
  app.add_option("--json", options.json, "writes the plan");
  app.add_option("--draw", options.draw,
                 "draws the balance as SVG or PNG, by the name's end; needs python3-matplotlib");
  CLI11_PARSE(app, argc, argv);
  const std::string error = plan(options);
  if (error.empty()) return 0;
  fmt::print(stderr, "vmuon-plan: {}\n", error);
  return 1;
}

}  // namespace
}  // namespace vmuon

int main(int argc, char** argv) {
  try {
    return vmuon::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "vmuon-plan: {}\n", e.what());
    return 1;
  }
}
