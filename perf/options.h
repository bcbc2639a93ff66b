// SPDX-License-Identifier: Apache-2.0
// The command line of the perf programs: nccl-tests' options with its letters, and ours.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perf/layout.h"
#include "perf/types.h"

namespace vcoll::perf {

// nccl-tests' exit codes.
enum ExitCode {
  kExitSuccess = 0,
  kExitInternal = 1,
  kExitUsage = 2,    // ours: nccl-tests prints the usage and exits 0
  kExitLibrary = 3,  // a vcoll call failed
  kExitTimeout = 4,
  kExitUnsupported = 5,
  kExitInvalidUsage = 6,
  kExitData = 7,  // wrong results, or slower than 0.9 x NCCL_TESTS_MIN_BW
  kExitBadSize = 255,
};

enum class Peer { kMpiV, kPerOwner, kPerOwnerNonblocking, kEqual };
inline constexpr Peer kAllPeers[] = {Peer::kMpiV, Peer::kPerOwner, Peer::kPerOwnerNonblocking, Peer::kEqual};
const char* peerName(Peer peer);     // as in --peer and in JSON
const char* peerHeading(Peer peer);  // as in the table

struct Options {
  int threads = 1;
  int gpus = 1;
  uint64_t minBytes = 32u << 20;
  uint64_t maxBytes = 32u << 20;
  bool sizesGiven = false;
  uint64_t stepBytes = 1u << 20;
  double stepFactor = 0;  // 0: additive steps
  std::vector<vcollRedOp_t> ops = {vcollSum};
  std::vector<const PerfType*> types = {findType("float")};
  std::string root = "0";
  int iterations = 20;
  int warmup = 1;
  int aggregate = 1;
  int cycles = 1;
  int average = 3;
  int perIteration = 0;
  int perIterationSkip = 0;
  int parallelInit = 0;
  int check = 1;
  int blocking = 0;
  int nullStream = 1;
  int cpuTime = 0;
  int timestamps = 0;
  std::string jsonPath;
  int timeoutSeconds = 0;
  int memoryReport = 0;
  uint64_t unalign = 0;
  Distribution distribution;
  bool window = false;
  std::vector<Peer> peers;
  int nodes = 0;                      // > 1: pretend that the ranks are on so many nodes
  std::vector<std::string> warnings;  // printed by rank 0
};

struct ParseResult {
  bool run;  // false: exit with code after printing text
  int code;
  std::string text;  // help or what is wrong
};

// haveMpi: peers are available. reduces: -o means something.
ParseResult parseOptions(int argc, const char* const* argv, const char* program, bool reduces, bool haveMpi,
                         Options* options);

// What can be checked only when the number of ranks is known; reads the file of --dist. On failure *error names the
// argument and its value.
bool checkAgainstRanks(Options* options, int ranks, std::string* error);

// "64K", "1.5M", "2G", "123": binary multiples.
bool parseBytes(std::string_view text, uint64_t* bytes);

// The sizes of one sweep.
std::vector<uint64_t> sweepSizes(const Options& options);

}  // namespace vcoll::perf
