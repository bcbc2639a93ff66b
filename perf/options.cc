// SPDX-License-Identifier: Apache-2.0
#include "perf/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <sstream>

namespace vcoll::perf {
namespace {

const char* const kFooter =
    R"(Sizes take K, M and G (binary) and decimals: 64K, 1.5M. A size is the bytes of one whole collective, the
sum of the parts of all ranks; parts are rounded to 16 bytes.
Time is the median over iterations of the slowest rank's time (-a chooses another rank), with a barrier before each
iteration. busbw = algbw x max over ranks of (total - own part) / total, which is (n-1)/n for even parts.
AllGatherV on windows is always in place: both blocks then show the same measurement. Columns after the
standard ones: peer's time / our time for each peer, and limit, the time of the bare memory copies (AllGatherV)
or reads (ReduceScatterV) measured in this run over our time. Both are compared with the in-place block for AllGatherV
and with the out-of-place block for ReduceScatterV.
Exit codes: 0 success, 2 wrong command line (nccl-tests: 0), 3 a vcoll call failed, 4 time-out, 5 not supported,
6 invalid usage, 7 wrong data or slower than 0.9 x NCCL_TESTS_MIN_BW, 255 a size is wrong or min > max.
JSON (-J) keeps nccl-tests' layout, with its booleans as the strings "true" and "false".)";

// CLI11 leaves texts; these turn them into values and say what is wrong.
struct Texts {
  std::string minBytes = "32M";
  std::string maxBytes = "32M";
  std::string stepBytes = "1M";
  std::string op = "sum";
  std::string type = "float";
  std::string dist = "1:2:3";
  std::string buffers;
  std::string peers;
  int cudagraph = 0;
  int localRegister = 0;
  std::string ctaPolicy;
  int deviceImplementation = 0;
  int deviceCtaCount = 16;
};

ParseResult failure(int code, std::string text) { return {false, code, std::move(text)}; }

bool parsePeers(const std::string& list, std::vector<Peer>* peers, std::string* error) {
  peers->clear();
  if (list.empty() || list == "none") return true;
  if (list == "all") {
    peers->assign(std::begin(kAllPeers), std::end(kAllPeers));
    return true;
  }
  std::stringstream stream(list);
  std::string name;
  while (std::getline(stream, name, ',')) {
    bool found = false;
    for (Peer peer : kAllPeers) {
      if (name != peerName(peer)) continue;
      peers->push_back(peer);
      found = true;
    }
    if (!found) {
      *error =
          fmt::format("--peer: '{}' is not one of mpi-v, per-owner, per-owner-nonblocking, equal, all, none", name);
      return false;
    }
  }
  return true;
}

bool parseTypes(const std::string& text, bool reduces, std::vector<const PerfType*>* types) {
  types->clear();
  if (text == "all") {
    for (const PerfType& type : kTypes) {
      if (type.reducible || !reduces) types->push_back(&type);
    }
    return true;
  }
  const PerfType* type = findType(text);
  if (type != nullptr) types->push_back(type);
  return type != nullptr;
}

bool parseOps(const std::string& text, std::vector<vcollRedOp_t>* ops) {
  ops->clear();
  for (const PerfOp& op : kOps) {
    if (text == "all" || text == op.name) ops->push_back(op.op);
  }
  return !ops->empty();
}

void addOptions(CLI::App* app, Options* o, Texts* t) {
  const auto range = [](int low, int high) { return CLI::Range(low, high); };
  app->add_option("-t,--nthreads", o->threads, "threads per process; each is a rank [1]")->check(range(1, 4096));
  app->add_option("-g,--ngpus", o->gpus, "devices per thread; must be 1 [1]");
  app->add_option("-b,--minbytes", t->minBytes, "smallest size in bytes of the whole collective [32M]");
  app->add_option("-e,--maxbytes", t->maxBytes, "largest size [32M]");
  app->add_option("-i,--stepbytes", t->stepBytes, "additive step [1M]");
  app->add_option("-f,--stepfactor", o->stepFactor, "multiplicative step; overrides -i [off]");
  app->add_option("-o,--op", t->op, "sum, prod, min, max, avg or all [sum]");
  app->add_option("-d,--datatype", t->type,
                  "int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, f8e4m3, f8e5m2 or "
                  "all [float]");
  app->add_option("-r,--root", o->root, "accepted; these collectives have no root [0]");
  app->add_option("-n,--iters", o->iterations, "timed iterations [20]")->check(range(1, 1 << 30));
  app->add_option("-w,--warmup_iters", o->warmup, "warm-up iterations [1]")->check(range(0, 1 << 30));
  app->add_option("-m,--agg_iters", o->aggregate, "calls in one iteration; its time is divided by this [1]")
      ->check(range(1, 1 << 20));
  app->add_option("-N,--run_cycles", o->cycles, "repeats of the whole sweep; 0: for ever [1]")
      ->check(range(0, 1 << 30));
  app->add_option("-a,--average", o->average,
                  "the time of an iteration: 0 rank 0's, 1 mean, 2 min, 3 max over ranks [3; nccl-tests: 1]")
      ->check(range(0, 3));
  app->add_option("-I,--per_iter_timing", o->perIteration, "1: min, max, p99 and variation over iterations [0]");
  app->add_option("-K,--per_iter_skip", o->perIterationSkip, "first iterations left out of those [0]")
      ->check(range(0, 1 << 30));
  app->add_option("-p,--parallel_init", o->parallelInit, "accepted; initialisation is always parallel [0]");
  app->add_option("-c,--check", o->check, "rounds of checking results; 0: none [1]")->check(range(0, 1 << 20));
  app->add_option("-z,--blocking", o->blocking,
                  "barriers: 0 and 3 before each iteration, 1 before each call, 2 none [0]")
      ->check(range(0, 3));
  app->add_option("-y,--stream_null", o->nullStream,
                  "1: blocking calls (NULL stream); 0: a host stream, synchronised once an iteration "
                  "[1; nccl-tests: 0]")
      ->check(range(0, 1));
  app->add_option("-G,--cudagraph", t->cudagraph, "GPU only: an error here [0]");
  app->add_option("-C,--report_cputime", o->cpuTime, "1: CPU time in place of latency [0]")->check(range(0, 1));
  app->add_option("-R,--local_register", t->localRegister, "0: private buffers, 1 or 2: windows [0]")
      ->check(range(0, 2));
  app->add_option("-x,--cta_policy", t->ctaPolicy, "GPU only: ignored with a warning");
  app->add_option("-D,--device_implementation", t->deviceImplementation, "GPU only: ignored with a warning [0]");
  app->add_option("-V,--device_cta_count", t->deviceCtaCount, "GPU only: ignored with a warning [16]");
  app->add_option("-S,--report_timestamps", o->timestamps, "1: a time stamp ends each line [0]")->check(range(0, 1));
  app->add_option("-J,--output_file", o->jsonPath, "JSON goes to this new file (.0, .1 ... added if it is there)");
  app->add_option("-T,--timeout", o->timeoutSeconds, "bound of each call in seconds [VCOLL_TIMEOUT_MS]")
      ->check(range(0, 86400));
  app->add_option("-M,--memory", o->memoryReport, "1: report the peak of resident memory [0]")->check(range(0, 1));
  app->add_option("-u,--unalign", o->unalign, "index of the first element used in the buffers [0]")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 20));
  app->add_option(
      "--dist", t->dist,
      "parts of the ranks: even | a:b:c... cycled | ramp | onehot:k | every:k (owners at each k-th rank, 1:2:3) | "
      "model:NAME[:all] (one layer or all, owners by greedy balance; fixes the size) | file:PATH (a number "
      "per rank: weights with -b or -e, else bytes) [1:2:3]");
  app->add_option("--buffers", t->buffers, "window | private [by -R]");
  app->add_option("--peer", t->peers,
                  "measured beside us (MPI builds, -t 1): comma list of mpi-v, per-owner, per-owner-nonblocking, "
                  "equal; or all, none [none]");
  app->add_option("--nodes", o->nodes, "pretend that the ranks are on so many nodes, in blocks [as found]")
      ->check(range(0, 4096));
}

ParseResult interpret(const CLI::App& app, const Texts& t, bool reduces, bool haveMpi, Options* o) {
  const struct {
    const char* option;
    const std::string* text;
    uint64_t* bytes;
  } sizes[] = {
      {"-b", &t.minBytes, &o->minBytes}, {"-e", &t.maxBytes, &o->maxBytes}, {"-i", &t.stepBytes, &o->stepBytes}};
  for (const auto& size : sizes) {
    if (!parseBytes(*size.text, size.bytes)) {
      return failure(kExitBadSize, fmt::format("{}: '{}' is not a size\n", size.option, *size.text));
    }
  }
  const bool minGiven = app.count("-b") > 0;
  const bool maxGiven = app.count("-e") > 0;
  o->sizesGiven = minGiven || maxGiven;
  if (o->minBytes > o->maxBytes) {
    return failure(kExitBadSize, fmt::format("-b {} is more than -e {}\n", t.minBytes, t.maxBytes));
  }
  std::string error;
  if (!parseDistribution(t.dist, &o->distribution, &error)) return failure(kExitUsage, error + "\n");
  if (!parsePeers(t.peers, &o->peers, &error)) return failure(kExitUsage, error + "\n");
  if (!parseTypes(t.type, reduces, &o->types)) {
    return failure(kExitUsage, fmt::format("-d: no data type '{}'\n", t.type));
  }
  if (t.op == "mulsum") return failure(kExitUnsupported, "-o: mulsum is not offered by vcoll\n");
  if (!parseOps(t.op, &o->ops)) return failure(kExitUsage, fmt::format("-o: no operation '{}'\n", t.op));
  if (!t.buffers.empty() && t.buffers != "window" && t.buffers != "private") {
    return failure(kExitUsage, fmt::format("--buffers: '{}' is not window or private\n", t.buffers));
  }
  o->window = t.buffers.empty() ? t.localRegister != 0 : t.buffers == "window";
  if (o->gpus != 1) return failure(kExitInvalidUsage, "-g: the host fabric has one device per rank; -g must be 1\n");
  if (t.cudagraph != 0) return failure(kExitInvalidUsage, "-G: CUDA graphs need GPUs; this is the host fabric\n");
  if (reduces && !o->types.front()->reducible) {
    return failure(kExitUnsupported, fmt::format("-d: {} is moved but not reduced\n", o->types.front()->name));
  }
  if (!o->peers.empty() && !haveMpi) {
    return failure(kExitInvalidUsage, "--peer: the peers are MPI's calls, and this program was built without MPI\n");
  }
  if (!o->peers.empty() && o->threads > 1) {
    return failure(kExitInvalidUsage, "--peer: peers need one rank per process (-t 1)\n");
  }
  for (const char* gpuOnly : {"-x", "-D", "-V"}) {
    if (app.count(gpuOnly) > 0) o->warnings.push_back(fmt::format("{} is for GPUs and ignored", gpuOnly));
  }
  if (o->distribution.kind == Distribution::Kind::kModel && o->sizesGiven) {
    o->warnings.push_back(fmt::format("--dist {} fixes the size; -b and -e are ignored", o->distribution.text));
  }
  return {true, kExitSuccess, {}};
}

}  // namespace

const char* peerName(Peer peer) {
  switch (peer) {
    case Peer::kMpiV:
      return "mpi-v";
    case Peer::kPerOwner:
      return "per-owner";
    case Peer::kPerOwnerNonblocking:
      return "per-owner-nonblocking";
    case Peer::kEqual:
      return "equal";
  }
  return "";
}

const char* peerHeading(Peer peer) {
  switch (peer) {
    case Peer::kMpiV:
      return "mpi-v";
    case Peer::kPerOwner:
      return "owner";
    case Peer::kPerOwnerNonblocking:
      return "owner-nb";
    case Peer::kEqual:
      return "equal";
  }
  return "";
}

ParseResult parseOptions(int argc, const char* const* argv, const char* program, bool reduces, bool haveMpi,
                         Options* options) {
  CLI::App app(
      fmt::format("{}: speed and correctness of a variable-length collective, in the way of nccl-tests", program),
      program);
  app.footer(kFooter);
  *options = Options();
  Texts texts;
  addOptions(&app, options, &texts);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return failure(kExitSuccess, app.help());
  } catch (const CLI::ParseError& error) {
    return failure(kExitUsage, fmt::format("{}; -h lists the options\n", error.what()));
  }
  return interpret(app, texts, reduces, haveMpi, options);
}

bool parseBytes(std::string_view text, uint64_t* bytes) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [at, code] = std::from_chars(text.data(), end, value);
  if (code != std::errc() || !(value >= 0)) return false;
  const std::string_view suffix(at, static_cast<size_t>(end - at));
  double unit = 1;
  if (suffix == "K" || suffix == "k") unit = 1024.0;
  if (suffix == "M" || suffix == "m") unit = 1024.0 * 1024;
  if (suffix == "G" || suffix == "g") unit = 1024.0 * 1024 * 1024;
  if (!suffix.empty() && unit == 1) return false;
  if (value * unit > 0x1p62) return false;
  *bytes = static_cast<uint64_t>(value * unit);
  return true;
}

bool checkAgainstRanks(Options* options, int ranks, std::string* error) {
  if (options->nodes > ranks) {
    *error = fmt::format("--nodes: {} nodes are more than the {} rank{}", options->nodes, ranks, ranks == 1 ? "" : "s");
    return false;
  }
  if (!loadDistribution(&options->distribution, error)) return false;
  for (const PerfType* type : options->types) {
    for (uint64_t size : sweepSizes(*options)) {
      Layout layout;
      if (!makeLayout(options->distribution, ranks, size, type->size, &layout, error)) return false;
    }
  }
  return true;
}

std::vector<uint64_t> sweepSizes(const Options& options) {
  std::vector<uint64_t> sizes;
  if (options.distribution.fixedSize(options.sizesGiven)) return {0};
  uint64_t size = options.minBytes;
  while (size <= options.maxBytes) {
    sizes.push_back(size);
    uint64_t next = size + options.stepBytes;
    if (options.stepFactor > 1)
      next = static_cast<uint64_t>(std::llround(static_cast<double>(size) * options.stepFactor));
    if (next <= size) break;  // a step of 0
    size = next;
  }
  return sizes;
}

}  // namespace vcoll::perf
