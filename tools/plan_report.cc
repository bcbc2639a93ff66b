// SPDX-License-Identifier: Apache-2.0
#include "plan_report.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

extern char** environ;

namespace vmuon {
namespace {

using Json = nlohmann::json;

constexpr double kMiB = 1024.0 * 1024.0;
constexpr size_t kFewRanks = 64;  // printed one by one

double mib(uint64_t bytes) { return static_cast<double>(bytes) / kMiB; }
double milliseconds(uint64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-6; }

void printModel(const PlanRun& run) {
  uint64_t elements = 0;
  uint64_t bytes = 0;
  for (const Unit& unit : run.table.units) {
    elements += unit.elements;
    bytes += unit.bytes;
  }
  fmt::print("{}: {} parameters, {} elements, {:.1f} MiB, {} orthogonalisations per step\n", run.model,
             run.params.size(), elements, mib(bytes), run.table.blocks());
  if (!run.note.empty()) fmt::print("  approximate: {}\n", run.note);
  std::map<int32_t, uint64_t> perLayer;
  uint64_t units = 0;
  for (const Unit& unit : run.table.units) {
    if (unit.fixedOwner < 0) {
      ++perLayer[unit.layer];
      ++units;
    }
  }
  std::map<uint64_t, int> layersWith;
  for (const auto& [layer, count] : perLayer) ++layersWith[count];
  fmt::print("{} units, and {} shares of parameters split over all ranks;", units, run.table.units.size() - units);
  for (const auto& [count, layers] : layersWith) fmt::print(" {} layer{} of {}", layers, layers == 1 ? "" : "s", count);
  fmt::print("\n{} ranks on {} node{}; times: {}\n", run.grid.ranks(), run.nodes, run.nodes == 1 ? "" : "s", run.costs);
}

void printLoad(int number, const Load& load, double meanTime, double meanBytes) {
  fmt::print("  {:>6}  {:>12.3f}  {:>6.3f}  {:>11.1f}  {:>6.3f}  {:>11.1f}  {:>8}  {:>6}  {:>8}\n", number,
             milliseconds(load.time), meanTime > 0 ? static_cast<double>(load.time) / meanTime : 1.0, mib(load.bytes),
             meanBytes > 0 ? static_cast<double>(load.bytes) / meanBytes : 1.0, mib(load.split), load.blocks,
             load.units, load.tensors);
}

void printLoads(const char* what, const std::vector<Load>& loads, bool all) {
  fmt::print("\n  {:>6}  {:>12}  {:>6}  {:>11}  {:>6}  {:>11}  {:>8}  {:>6}  {:>8}\n", what, "time ms", "/mean", "MiB",
             "/mean", "split MiB", "matrices", "units", "tensors");
  double time = 0;
  double bytes = 0;
  for (const Load& load : loads) {
    time += static_cast<double>(load.time);
    bytes += static_cast<double>(load.bytes);
  }
  time /= static_cast<double>(loads.size());
  bytes /= static_cast<double>(loads.size());
  for (size_t i = 0; i < loads.size(); ++i) {
    if (all || i < kFewRanks) printLoad(static_cast<int>(i), loads[i], time, bytes);
  }
  if (!all && loads.size() > kFewRanks) fmt::print("  ... {} more; --all prints them\n", loads.size() - kFewRanks);
}

Json loadJson(const Load& load) {
  return {{"seconds", static_cast<double>(load.time) * 1e-9},
          {"bytes", load.bytes},
          {"split_bytes", load.split},
          {"matrices", load.blocks},
          {"units", load.units},
          {"tensors", load.tensors}};
}

std::string plotScript() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const std::filesystem::path& path : {folder / "plot_balance.py", folder / "../share/vcoll/plot_balance.py"}) {
    if (std::filesystem::exists(path, error)) return path.string();
  }
  return "";
}

int32_t kindOf(const Json& param, const ParamSpec& spec) {
  if (!param.contains("kind")) {
    return suggestKind(spec.name.c_str(), static_cast<int32_t>(spec.shape.size()), spec.shape.data());
  }
  const auto name = param.at("kind").get<std::string>();
  for (int32_t kind = 0; kind < vmuonNumKinds; ++kind) {
    if (name == kindName(kind)) return kind;
  }
  throw std::runtime_error(fmt::format("\"{}\": kind is \"{}\"", spec.name, name));
}

ParamSpec specOf(const Json& param) {
  ParamSpec spec;
  spec.name = param.at("name").get<std::string>();
  spec.tiedTo = param.value("tied_to", std::string());
  if (!spec.tiedTo.empty()) return spec;
  spec.shape = param.at("shape").get<std::vector<uint64_t>>();
  spec.layer = param.value("layer", 0);
  spec.frozen = param.value("frozen", false);
  spec.splits = param.value("splits", std::vector<uint64_t>());
  const auto dtype = param.value("dtype", std::string("bf16"));
  if (dtype != "bf16" && dtype != "fp32")
    throw std::runtime_error(fmt::format("\"{}\": dtype is \"{}\"", spec.name, dtype));
  spec.dtype = dtype == "fp32" ? vcollFloat32 : vcollBfloat16;
  spec.kind = kindOf(param, spec);
  return spec;
}

}  // namespace

void printPlan(const PlanRun& run, const std::vector<Variant>& variants, bool allRanks) {
  printModel(run);
  fmt::print("\n  {:<28}  {:>9}  {:>10}  {:>11}  {:>12}  {:>11}\n", "busiest over mean", "rank time", "rank bytes",
             "column time", "column bytes", "worst layer");
  for (const Variant& variant : variants) {
    const Assignment& a = variant.assignment;
    fmt::print("{} {:<28}  {:>9.3f}  {:>10.3f}  {:>11.3f}  {:>12.3f}  {:>11.3f}\n",
               variant.name == run.strategy ? '*' : ' ', variant.name, a.timeRatio, a.byteRatio, a.columnTimeRatio,
               a.columnByteRatio, a.layerRatio);
  }
  if (run.nodes > 1) printLoads("column", run.assignment.columns, allRanks);
  printLoads("rank", run.assignment.ranks, allRanks);
}

std::string planJson(const PlanRun& run) {
  const Assignment& a = run.assignment;
  Json ranks = Json::array();
  for (size_t r = 0; r < a.ranks.size(); ++r) {
    ranks.push_back(loadJson(a.ranks[r]));
    ranks.back()["node"] = run.grid.nodeOf[r];
    ranks.back()["column"] = run.grid.columnOf[r];
  }
  Json columns = Json::array();
  for (const Load& load : a.columns) columns.push_back(loadJson(load));
  const Json plan{{"model", run.model},
                  {"strategy", run.strategy},
                  {"costs", run.costs},
                  {"nodes", run.nodes},
                  {"time_ratio", a.timeRatio},
                  {"byte_ratio", a.byteRatio},
                  {"column_time_ratio", a.columnTimeRatio},
                  {"column_byte_ratio", a.columnByteRatio},
                  {"layer_ratio", a.layerRatio},
                  {"ranks", std::move(ranks)},
                  {"columns", std::move(columns)}};
  return plan.dump(1) + '\n';
}

std::string drawPlan(const std::string& json, const std::string& file) {
  const std::string script = plotScript();
  if (script.empty()) return "plot_balance.py is not beside this program; --json writes what it reads";
  std::string input = (std::filesystem::temp_directory_path() / "vmuon-plan-XXXXXX").string();
  const int fd = ::mkstemp(input.data());
  if (fd < 0) return fmt::format("cannot create {}: {}", input, std::strerror(errno));
  ::close(fd);
  std::string error;
  if (!(std::ofstream(input) << json).flush()) error = fmt::format("cannot write {}", input);
  if (error.empty()) {
    std::vector<std::string> words{"python3", script, input, "-o", file};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t child = 0;
    int status = 0;
    const int failed = ::posix_spawnp(&child, "python3", nullptr, nullptr, arguments.data(), environ);
    if (failed != 0)
      error = fmt::format("cannot run python3: {}", std::strerror(failed));
    else if (::waitpid(child, &status, 0) != child || status != 0)
      error = fmt::format("{} failed", script);
  }
  std::remove(input.c_str());
  return error;
}

std::string readShapes(const std::string& path, std::vector<ParamSpec>* specs) {
  errno = 0;
  std::ifstream in(path);
  if (!in) return fmt::format("cannot read {}: {}", path, std::strerror(errno));
  try {
    for (const Json& param : Json::parse(in)) specs->push_back(specOf(param));
  } catch (const std::exception& e) {
    return fmt::format("{}: {}", path, e.what());
  }
  return "";
}

}  // namespace vmuon
