// SPDX-License-Identifier: Apache-2.0
// Checkpoints: the same training goes on, on another number of ranks, in another mode; what does not fit is named.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime_support.h"

using vmuon_test::Outcome;
using vmuon_test::Run;
using vmuon_test::train;
namespace fs = std::filesystem;

namespace {

// A directory of its own that goes with the test.
class Directory {
 public:
  Directory() {
    std::string pattern = (fs::temp_directory_path() / "vmuon-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~Directory() { fs::remove_all(path_); }
  std::string operator/(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

Run base() {
  Run run;
  run.config.mergeElements = 4000;
  run.group.weightDecay = 0.1;
  return run;
}

Outcome good(const Run& run) {
  Outcome outcome = train(run);
  REQUIRE(outcome.error == "");
  return outcome;
}

std::string latestFile(const std::string& directory) {
  std::ifstream in(directory + "/latest");
  std::string name;
  std::getline(in, name);
  return directory + "/" + name;
}

nlohmann::json header(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  uint64_t length = 0;
  in.read(reinterpret_cast<char*>(&length), 8);
  std::string text(length, '\0');
  in.read(text.data(), static_cast<std::streamsize>(length));
  return nlohmann::json::parse(text);
}

}  // namespace

TEST_CASE("training goes on from a checkpoint on another world, mode and line", "[runtime][checkpoint]") {
  for (const int32_t method : {vmuonOptMuon, vmuonOptNorMuon}) {
    Run whole = base();
    whole.group.matrixOptimizer = method;
    whole.steps = 5;
    const Outcome straight = good(whole);

    const Directory directory;
    Run first = whole;
    first.nodes = {0, 0, 1, 1};
    first.config.hsdp = 1;
    first.steps = 3;
    first.saveTo = directory / "a";
    good(first);

    struct Other {
      std::vector<int> nodes;
      int32_t sharding;
      int32_t hsdp;
      int32_t line;
    };
    for (const Other& other : std::vector<Other>{{{0}, vmuonZero2, 0, vmuonLineOwner},
                                                 {{0, 0}, vmuonZero3, 0, vmuonLinePerOwner},
                                                 {{0, 1, 2}, vmuonZero3, 1, vmuonLineOwner},
                                                 {{0, 0, 0, 0, 1, 1, 1, 1}, vmuonZero2, 1, vmuonLineOwner},
                                                 {{0, 0, 1, 1}, vmuonZero2, 0, vmuonLineGather}}) {
      if (other.line == vmuonLineGather && method != vmuonOptMuon) continue;
      Run rest = whole;
      rest.nodes = other.nodes;
      rest.config.sharding = other.sharding;
      rest.config.hsdp = other.hsdp;
      rest.config.line = other.line;
      rest.firstStep = 3;
      rest.steps = 2;
      rest.loadFrom = directory / "a";
      INFO("ranks " << other.nodes.size() << ", line " << other.line << ", method " << method);
      const Outcome resumed = good(rest);
      REQUIRE(resumed.masters == straight.masters);
      REQUIRE(resumed.stats[0].step == 5);
    }
  }
}

TEST_CASE("a checkpoint is a safetensors file with full tensors by name", "[runtime][checkpoint]") {
  const Directory directory;
  Run run = base();
  run.nodes = {0, 0};
  run.saveTo = directory / "a";
  good(run);
  const nlohmann::json names = header(latestFile(directory / "a"));
  REQUIRE(names["b.experts"]["shape"] == std::vector<uint64_t>{3, 32, 48});
  REQUIRE(names["b.experts"]["dtype"] == "F32");
  REQUIRE(names["optimizer.momentum.b.experts"]["shape"] == std::vector<uint64_t>{3, 32, 48});
  REQUIRE(names["optimizer.exp_avg_sq.embed"]["shape"] == std::vector<uint64_t>{301, 48});
  REQUIRE(names["c.scale"]["shape"] == std::vector<uint64_t>{1});
  REQUIRE(names.contains("a.frozen"));
  REQUIRE_FALSE(names.contains("optimizer.momentum.a.frozen"));
  REQUIRE_FALSE(names.contains("head"));  // tied
  REQUIRE(names["__metadata__"]["step"] == "3");
}

TEST_CASE("momentum as an average is converted where a sum is wanted (Muon 52)", "[runtime][checkpoint]") {
  const Directory directory;
  Run first = base();
  first.group.emaMomentum = 1;
  first.saveTo = directory / "a";
  good(first);
  Run ema = first;
  ema.saveTo.clear();
  ema.loadFrom = directory / "a";
  ema.firstStep = 3;
  Run sum = ema;
  sum.group.emaMomentum = 0;
  const Outcome a = good(ema), b = good(sum);
  double worst = 0;
  for (size_t i = 0; i < a.masters.size(); ++i) worst = std::max(worst, double{std::abs(a.masters[i] - b.masters[i])});
  REQUIRE(worst < 1e-4);
  // Without the factor of 20 the old momentum would hardly count: fresh momentum is far away.
  Run fresh = base();
  fresh.firstStep = 3;
  REQUIRE(good(fresh).masters != a.masters);
}

TEST_CASE("names that are missing, superfluous or of another shape are errors on every rank", "[runtime][checkpoint]") {
  const Directory directory;
  Run run = base();
  run.nodes = {0, 0, 1, 1};
  run.saveTo = directory / "a";
  good(run);
  Run load = base();
  load.nodes = {0, 0};
  load.loadFrom = directory / "a";
  load.config.line = vmuonLineAdamW;
  REQUIRE(train(load).error.find("'optimizer.exp_avg.a.qkv' is missing") != std::string::npos);
  load.config.line = vmuonLineOwner;
  load.group.matrixOptimizer = vmuonOptNorMuon;
  REQUIRE(train(load).error.find("'optimizer.second_moment.a.qkv' is missing") != std::string::npos);

  run.group.matrixOptimizer = vmuonOptNorMuon;
  run.saveTo = directory / "b";
  good(run);
  load.group.matrixOptimizer = vmuonOptMuon;
  load.loadFrom = directory / "b";
  const std::string error = train(load).error;
  REQUIRE(error.find("second_moment") != std::string::npos);
  REQUIRE(error.find("is not of this optimizer") != std::string::npos);

  // A shape that says otherwise: b.bias has 7 elements, [1, 7] is not [7].
  const std::string path = latestFile(directory / "a");
  std::ifstream in(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const size_t at = bytes.find("\"b.bias\":{\"dtype\":\"F32\",\"shape\":[7]");
  REQUIRE(at != std::string::npos);
  std::string other = bytes;
  other.replace(bytes.find("[7]", at), 3, "[8]");
  std::ofstream(path, std::ios::binary) << other;
  load.loadFrom = directory / "a";
  REQUIRE(train(load).error.find("'b.bias' has shape [8], want [7]") != std::string::npos);
  // Cut short.
  std::ofstream(path, std::ios::binary) << bytes.substr(0, bytes.size() - 40);
  REQUIRE(train(load).error.find("it ends inside") != std::string::npos);
  std::ofstream(path, std::ios::binary) << "nothing of the kind";
  REQUIRE(train(load).error.find("is not a checkpoint") != std::string::npos);
  load.loadFrom = directory / "none";
  REQUIRE(train(load).error.find("there is no complete checkpoint") != std::string::npos);
}

TEST_CASE("a save that fails half way leaves the last checkpoint and a living optimizer", "[runtime][checkpoint]") {
  const Directory directory;
  Run run = base();
  run.nodes = {0, 0};
  run.saveTo = directory / "a";
  good(run);

  Run more = base();
  more.nodes = {0, 0};
  more.steps = 4;
  more.saveTo = directory / "a";
  // A full disk.
  fs::create_symlink("/dev/full", (directory / "a") + "/step-0000000004.safetensors.part");
  more.saveFails = true;
  const Outcome failed = good(more);
  REQUIRE(failed.saveError.find("No space left on device") != std::string::npos);
  REQUIRE(failed.stats[1].step == 4);

  Run load = base();
  load.loadFrom = directory / "a";
  load.steps = 0;
  const Outcome loaded = good(load);
  Run straight = base();
  REQUIRE(loaded.masters == good(straight).masters);
}
