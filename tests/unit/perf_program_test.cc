// SPDX-License-Identifier: Apache-2.0
// The command line, the table, the JSON file and the meeting of ranks of the perf programs.
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

#include "perf/report.h"
#include "perf/world.h"

namespace vcoll::perf {
namespace {

ParseResult parse(std::vector<const char*> args, Options* options, bool reduces = true, bool haveMpi = true) {
  args.insert(args.begin(), "perf");
  return parseOptions(static_cast<int>(args.size()), args.data(), "perf", reduces, haveMpi, options);
}

int codeOf(std::vector<const char*> args, bool reduces = true, bool haveMpi = true) {
  Options options;
  const ParseResult result = parse(std::move(args), &options, reduces, haveMpi);
  CHECK_FALSE(result.run);
  CHECK_FALSE(result.text.empty());
  return result.code;
}

std::vector<std::string> words(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> result;
  for (std::string word; stream >> word;) result.push_back(word);
  return result;
}

TEST_CASE("perf: defaults and values of the command line") {
  Options o;
  REQUIRE(parse({}, &o).run);
  CHECK(o.minBytes == 32u << 20);
  CHECK(o.iterations == 20);
  CHECK(o.warmup == 1);
  CHECK(o.check == 1);
  CHECK_FALSE(o.window);
  CHECK(o.peers.empty());
  CHECK(o.distribution.text == "1:2:3");
  REQUIRE(parse({"-b", "16K", "-e", "1.5M",   "-f",          "4",      "-d",      "bfloat16", "-o", "max", "-R",
                 "2",  "-n",  "5",  "--peer", "equal,mpi-v", "--dist", "every:4", "-c",       "0",  "-u",  "3"},
                &o)
              .run);
  CHECK(o.maxBytes == 1536u << 10);
  CHECK(sweepSizes(o) == std::vector<uint64_t>{16u << 10, 64u << 10, 256u << 10, 1u << 20});
  CHECK(o.types.front()->type == vcollBfloat16);
  CHECK(o.ops == std::vector<vcollRedOp_t>{vcollMax});
  CHECK(o.window);
  CHECK(o.peers == std::vector<Peer>{Peer::kEqual, Peer::kMpiV});
  CHECK(o.unalign == 3);
  REQUIRE(parse({"-R", "1", "--buffers", "private"}, &o).run);
  CHECK_FALSE(o.window);
  REQUIRE(parse({"-b", "1M", "-e", "3M"}, &o).run);
  CHECK(sweepSizes(o) == std::vector<uint64_t>{1u << 20, 2u << 20, 3u << 20});
  REQUIRE(parse({"-d", "all", "-o", "all"}, &o, true).run);
  CHECK(o.types.size() == 10);
  CHECK(o.ops.size() == 5);
  REQUIRE(parse({"-d", "all"}, &o, false).run);
  CHECK(o.types.size() == 12);
}

TEST_CASE("perf: GPU options warn, a model fixes the size") {
  Options o;
  REQUIRE(parse({"-x", "0", "-V", "4", "--dist", "model:qwen2.5-7b", "-b", "1M", "-e", "2M"}, &o).run);
  CHECK(o.warnings.size() == 3);
  CHECK(sweepSizes(o) == std::vector<uint64_t>{0});
}

TEST_CASE("perf: exit codes of a wrong command line") {
  CHECK(codeOf({"-h"}) == kExitSuccess);
  CHECK(codeOf({"--frobnicate"}) == kExitUsage);
  CHECK(codeOf({"stray"}) == kExitUsage);
  CHECK(codeOf({"-n", "many"}) == kExitUsage);
  CHECK(codeOf({"-d", "complex"}) == kExitUsage);
  CHECK(codeOf({"-o", "xor"}) == kExitUsage);
  CHECK(codeOf({"--dist", "lumpy"}) == kExitUsage);
  CHECK(codeOf({"--peer", "gloo"}) == kExitUsage);
  CHECK(codeOf({"--buffers", "shared"}) == kExitUsage);
  CHECK(codeOf({"-b", "12Q"}) == kExitBadSize);
  CHECK(codeOf({"-b", "2M", "-e", "1M"}) == kExitBadSize);
  CHECK(codeOf({"-G", "1"}) == kExitInvalidUsage);
  CHECK(codeOf({"-g", "2"}) == kExitInvalidUsage);
  CHECK(codeOf({"--peer", "all"}, true, false) == kExitInvalidUsage);
  CHECK(codeOf({"--peer", "all", "-t", "2"}) == kExitInvalidUsage);
  CHECK(codeOf({"-o", "mulsum"}) == kExitUnsupported);
  CHECK(codeOf({"-d", "f8e4m3"}, true) == kExitUnsupported);
}

TEST_CASE("perf: what the number of ranks makes wrong is named with its value") {
  const struct {
    std::vector<const char*> arguments;
    const char* words;
  } cases[] = {{{"--dist", "onehot:4"}, "--dist: owner 4 of 'onehot:4'"},
               {{"--dist", "file:/nonexistent/w"}, "--dist: cannot read file '/nonexistent/w'"},
               {{"--nodes", "5"}, "--nodes: 5 nodes"}};
  for (const auto& each : cases) {
    Options o;
    REQUIRE(parse(each.arguments, &o).run);
    std::string error;
    CHECK_FALSE(checkAgainstRanks(&o, 4, &error));
    INFO(error);
    CHECK(error.find(each.words) == 0);
    CHECK(error.find('\n') == std::string::npos);
  }
  Options o;
  REQUIRE(parse({"--dist", "onehot:3", "--nodes", "4"}, &o).run);
  std::string error;
  CHECK(checkAgainstRanks(&o, 4, &error));
}

TEST_CASE("perf: sizes in words") {
  uint64_t bytes = 0;
  CHECK((parseBytes("64K", &bytes) && bytes == 65536));
  CHECK((parseBytes("1.5M", &bytes) && bytes == 1572864));
  CHECK((parseBytes("2g", &bytes) && bytes == uint64_t{2} << 30));
  CHECK((parseBytes("17", &bytes) && bytes == 17));
  for (const char* bad : {"", "K", "-1", "1KB", "1T", "nan", "1e30"}) {
    INFO(bad);
    CHECK_FALSE(parseBytes(bad, &bytes));
  }
}

Row exampleRow() {
  Row row{};
  row.bytes = 16384;
  row.count = 1536;
  row.type = "float";
  row.op = "sum";
  row.outOfPlace = {12.345, 1.327, 1.1, uint64_t{0}, {12, 13}};
  row.inPlace = {123456.7, 0.5, 0.25, uint64_t{3}, {1, 2, 3}};
  row.peers = {{Peer::kMpiV, 24.69, 2.0}, {Peer::kEqual, {}, 0}};
  row.limitUs = 6;
  row.limitFraction = 0.486;
  return row;
}

TEST_CASE("perf: a line begins with nccl-tests' thirteen columns") {
  Options o;
  REQUIRE(parse({"--peer", "mpi-v,equal"}, &o).run);
  const auto fields = words(rowText(o, exampleRow()));
  CHECK(fields == std::vector<std::string>{"16384", "1536", "float", "sum", "-1", "12.35", "1.33", "1.10", "0",
                                           "123457", "0.50", "0.25", "3", "2.00", "N/A", "48.6"});
  const std::string columns = columnText(o);
  std::istringstream lines(columns);
  std::string line;
  std::vector<std::string> all;
  while (std::getline(lines, line)) all.push_back(line);
  REQUIRE(all.size() == 4);
  for (const std::string& header : all) CHECK(header[0] == '#');
  CHECK(words(all[2]).size() == 1 + fields.size());
  CHECK(all[2].size() + 1 == rowText(o, exampleRow()).size());
  Row unchecked = exampleRow();
  unchecked.inPlace.wrong.reset();
  CHECK(words(rowText(o, unchecked))[12] == "N/A");
}

TEST_CASE("perf: numbers lose decimals as they grow") {
  CHECK(fitNumber(1.234, 7) == "1.23");
  CHECK(fitNumber(12345.67, 7) == "12345.7");
  CHECK(fitNumber(1234567.8, 7) == "1234568");
  CHECK(fitNumber(123456789.0, 7) == "1.2e+08");
}

TEST_CASE("perf: footer and exit code") {
  Options o;
  Totals totals;
  totals.busBwSum = 30;
  totals.busBwCount = 3;
  CHECK(footerText(o, totals, 0).find("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 10\n") == 0);
  CHECK(exitCode(totals, 0) == kExitSuccess);
  CHECK(exitCode(totals, 11) == kExitSuccess);  // 10 is above 0.9 x 11
  CHECK(exitCode(totals, 12) == kExitData);
  CHECK(footerText(o, totals, 12).find("10 FAILED") != std::string::npos);
  totals.wrong = 1;
  CHECK(exitCode(totals, 0) == kExitData);
  CHECK(footerText(o, totals, 0).find("1 FAILED") != std::string::npos);
}

std::string readAll(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_CASE("perf: JSON never overwrites and leaks no environment") {
  char directory[] = "/tmp/vcoll_perf_json_XXXXXX";
  REQUIRE(mkdtemp(directory) != nullptr);
  const std::string path = std::string(directory) + "/out.json";
  setenv("VCOLL_PERF_TEST", "seen", 1);
  setenv("SECRET_PERF_TEST", "unseen", 1);
  Options o;
  REQUIRE(parse({"-I", "1", "-K", "1"}, &o).run);
  Totals totals;
  std::vector<std::string> paths;
  for (int i = 0; i < 3; ++i) {
    JsonReport json;
    std::string error;
    INFO(error);
    REQUIRE(json.open(path, &error));
    char program[] = "perf";
    char* argv[] = {program, nullptr};
    json.begin(1, argv, o, {"perf", 100, 2, 2, 1, 1, true}, {{0, 42, 0, 1, "host"}});
    json.add(o, exampleRow());
    REQUIRE(json.finish(totals, 0, &error));
    paths.push_back(json.path());
  }
  CHECK(paths == std::vector<std::string>{path, path + ".0", path + ".1"});
  const std::string text = readAll(path);
  for (const char* part :
       {"\"version\": 3", "\"VCOLL_PERF_TEST\": \"seen\"", "\"mpi-v\": {", "\"ratio\": 2.0",
        "\"limit_fraction\": 0.486", "\"out_of_place\": {", "\"alg_bw\"", "\"nwrong\": 3", "\"in_place_per_iter\": {",
        "\"okay\": \"true\"", "\"hostname\": \"host\"", "\"average_bus_bandwidth\""}) {
    INFO(part);
    CHECK(text.find(part) != std::string::npos);
  }
  CHECK(text.find("unseen") == std::string::npos);
  CHECK(text.find("\"equal\"") == std::string::npos);  // a peer that could not run
  JsonReport json;
  std::string error;
  CHECK_FALSE(json.open(std::string(directory) + "/none/out.json", &error));
  CHECK(error.find("none/out.json") != std::string::npos);
  for (const std::string& file : paths) std::remove(file.c_str());
  rmdir(directory);
  unsetenv("VCOLL_PERF_TEST");
  unsetenv("SECRET_PERF_TEST");
}

TEST_CASE("perf: threads meet at barriers and gather in rank order") {
  constexpr int kThreads = 5;
  World world(std::make_unique<ProcessBridge>(), kThreads);
  std::atomic<int> arrived{0};
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const Member member(world, t);
      for (int round = 0; round < 200; ++round) {
        ++arrived;
        member.barrier();
        if (arrived < kThreads * (round + 1)) ++failures;
        const std::vector<int> all = member.gather(std::vector<int>{t * 10 + round, t});
        for (int r = 0; r < kThreads; ++r) {
          const size_t at = static_cast<size_t>(r) * 2;
          if (all[at] != r * 10 + round || all[at + 1] != r) ++failures;
        }
        if (member.sum(static_cast<uint64_t>(t)) != 10) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
}

TEST_CASE("perf: the launcher is read from the environment") {
  const char* const names[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",  "SLURM_NTASKS", "SLURM_PROCID",
                               "RANK",       "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",     "SLURM_NPROCS"};
  for (const char* name : names) unsetenv(name);
  CHECK(launcherProcesses() == 1);
  CHECK(launcherProcess() == 0);
  setenv("SLURM_NTASKS", "8", 1);
  CHECK(launcherProcesses() == 1);  // a batch script, not a task
  setenv("SLURM_PROCID", "3", 1);
  CHECK(launcherProcesses() == 8);
  CHECK(launcherProcess() == 3);
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  setenv("OMPI_COMM_WORLD_RANK", "2", 1);
  CHECK(launcherProcesses() == 4);
  CHECK(launcherProcess() == 2);
  for (const char* name : names) unsetenv(name);
}

}  // namespace
}  // namespace vcoll::perf
