// SPDX-License-Identifier: Apache-2.0
// What the perf programs write: nccl-tests' table on stdout and its JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perf/options.h"
#include "perf/stats.h"

namespace vcoll::perf {

// One rank, for the header and JSON.
struct RankInfo {
  int rank;
  int pid;
  int node;
  int cpu;  // the core it was on when asked
  char host[64];
};

struct RunInfo {
  const char* program;
  int libraryVersion;
  int processes;
  int ranks;
  int nodes;
  int rails;
  bool mpi;
};

// One block (out of place or in place) of a line.
struct Measurement {
  double us = 0;
  double algBw = 0;
  double busBw = 0;
  std::optional<uint64_t> wrong;   // empty with -c 0
  std::vector<double> iterations;  // us
};

struct PeerResult {
  Peer peer;
  std::optional<double> us;  // empty: not applicable at this size or type
  double ratio = 0;          // us / ours
};

struct Row {
  uint64_t bytes;
  uint64_t count;  // elements of the largest part
  const char* type;
  const char* op;
  Measurement outOfPlace;
  Measurement inPlace;
  std::vector<PeerResult> peers;
  double limitUs = 0;
  double limitFraction = 0;
  bool comparesInPlace = false;
  std::string timestamp;
};

struct Totals {
  uint64_t wrong = 0;
  double busBwSum = 0;
  uint64_t busBwCount = 0;
  double average() const { return busBwCount == 0 ? 0 : busBwSum / static_cast<double>(busBwCount); }
};

// A number in at most width characters: fewer decimals as it grows, then an exponent.
std::string fitNumber(double value, int width);

std::string headerText(const Options& options, const RunInfo& run, const std::vector<RankInfo>& ranks);
std::string columnText(const Options& options);
std::string rowText(const Options& options, const Row& row);
std::string footerText(const Options& options, const Totals& totals, double minBandwidth);
// Exit code of a run that ended.
int exitCode(const Totals& totals, double minBandwidth);
// NCCL_TESTS_MIN_BW, 0 when unset.
double minBandwidthFromEnv();
// "2026-12-01 11:53:22", UTC.
std::string timestampNow();

// -J: the file is created at once so that a bad path is found before the run; written by finish.
class JsonReport {
 public:
  // False: *error says why no file could be made. Never opens a file that exists: PATH, PATH.0, PATH.1, ...
  bool open(const std::string& path, std::string* error);
  const std::string& path() const { return path_; }
  // The parts of a program's own are JSON texts, so that this header needs no JSON library: config an object to which
  // what all programs have is added, a result anything.
  void begin(int argc, char** argv, const RunInfo& run, const std::vector<RankInfo>& ranks, const std::string& config);
  void add(std::string result) { results_.push_back(std::move(result)); }
  // Of the collectives.
  void begin(int argc, char** argv, const Options& options, const RunInfo& run, const std::vector<RankInfo>& ranks);
  void add(const Options& options, const Row& row);
  bool finish(const Totals& totals, double minBandwidth, std::string* error);

 private:
  std::string path_;
  int fd_ = -1;
  std::string head_;
  std::vector<std::string> results_;
};

}  // namespace vcoll::perf
