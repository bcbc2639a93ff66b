// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "perf/report.h"

extern char** environ;

namespace vcoll::perf {
namespace {

using Json = nlohmann::ordered_json;

// Tools of nccl-tests compare these texts.
const char* boolText(bool value) { return value ? "true" : "false"; }

// Only variables that steer a run: the whole environment may hold secrets, and so do Open MPI's own orte variables (the
// key of the job).
Json filteredEnvironment() {
  Json env = Json::object();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    if (text.starts_with("OMPI_MCA_orte_")) continue;
    for (std::string_view prefix : {"VCOLL_", "NCCL_", "UCX_", "OMPI_", "SLURM_"}) {
      if (text.starts_with(prefix)) env[std::string(text.substr(0, equals))] = std::string(text.substr(equals + 1));
    }
  }
  return env;
}

Json perIteration(const Options& o, const Measurement& m) {
  std::vector<double> times = m.iterations;
  times.erase(times.begin(), times.begin() + std::min<std::ptrdiff_t>(std::ssize(times), o.perIterationSkip));
  const Spread s = spreadOf(times);
  return {{"min", s.min},  {"max", s.max}, {"avg", s.mean},        {"p50", s.p50},
          {"p95", s.p95},  {"p99", s.p99}, {"stdev", s.deviation}, {"cv_pct", s.variationPercent()},
          {"times", times}};
}

Json measurement(const Options& o, const Measurement& m) {
  Json json;
  json[o.cpuTime != 0 ? "cpu_time" : "time"] = m.us;
  json["alg_bw"] = m.algBw;
  json["bus_bw"] = m.busBw;
  json["nwrong"] = m.wrong.has_value() ? Json(*m.wrong) : Json("N/A");
  return json;
}

}  // namespace

bool JsonReport::open(const std::string& path, std::string* error) {
  path_ = path;
  for (int suffix = 0;; ++suffix) {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd_ >= 0) return true;
    if (errno != EEXIST) {
      *error = fmt::format("-J: cannot create '{}': {}", path_, std::strerror(errno));
      return false;
    }
    path_ = fmt::format("{}.{}", path, suffix);
  }
}

void JsonReport::begin(int argc, char** argv, const Options& o, const RunInfo& run,
                       const std::vector<RankInfo>& ranks) {
  Json config;
  config["nthreads"] = o.threads;
  config["ngpus"] = o.gpus;
  config["minimum_bytes"] = o.minBytes;
  config["maximum_bytes"] = o.maxBytes;
  config["step_bytes"] = o.stepBytes;
  config["step_factor"] = o.stepFactor;
  config["warmup_iters"] = o.warmup;
  config["iterations"] = o.iterations;
  config["aggregated_iterations"] = o.aggregate;
  config["validation"] = o.check;
  config["graph"] = 0;
  config["unalign"] = o.unalign;
  config["average"] = o.average;
  config["blocking"] = o.blocking;
  config["stream_null"] = boolText(o.nullStream != 0);
  config["report_cputime"] = boolText(o.cpuTime != 0);
  config["distribution"] = o.distribution.text;
  config["buffers"] = o.window ? "window" : "private";
  begin(argc, argv, run, ranks, config.dump());
}

void JsonReport::begin(int argc, char** argv, const RunInfo& run, const std::vector<RankInfo>& ranks,
                       const std::string& ownConfig) {
  Json json;
  json["version"] = 3;
  json["start_time"] = timestampNow();
  json["args"] = std::vector<std::string>(argv, argv + argc);
  json["env"] = filteredEnvironment();
  json["nccl_version"] = run.libraryVersion;
  json["vcoll_version"] = run.libraryVersion;
  json["program"] = run.program;
  Json& config = json["config"];
  config = Json::parse(ownConfig);
  config["mpi"] = boolText(run.mpi);
  config["processes"] = run.processes;
  config["ranks"] = run.ranks;
  config["nodes"] = run.nodes;
  config["rails"] = run.rails;
  for (const RankInfo& r : ranks) {
    config["devices"].push_back({{"rank", r.rank},
                                 {"group", r.node},
                                 {"pid", r.pid},
                                 {"hostname", r.host},
                                 {"device", 0},
                                 {"device_hex_id", "0x0"},
                                 {"device_info", "host"}});
  }
  head_ = json.dump(2);
}

void JsonReport::add(const Options& o, const Row& row) {
  Json json;
  json["size"] = row.bytes;
  json["count"] = row.count;
  json["type"] = row.type;
  json["redop"] = row.op;
  json["root"] = -1;
  json["out_of_place"] = measurement(o, row.outOfPlace);
  json["in_place"] = measurement(o, row.inPlace);
  if (o.perIteration != 0) {
    json["out_of_place_per_iter"] = perIteration(o, row.outOfPlace);
    json["in_place_per_iter"] = perIteration(o, row.inPlace);
  }
  json["actual_iterations"] = (row.comparesInPlace ? row.inPlace : row.outOfPlace).iterations.size();
  json["experiment_name"] = o.distribution.text;
  json["peers"] = Json::object();
  for (const PeerResult& peer : row.peers) {
    if (peer.us.has_value()) json["peers"][peerName(peer.peer)] = {{"time", *peer.us}, {"ratio", peer.ratio}};
  }
  json["limit_time"] = row.limitUs;
  json["limit_fraction"] = row.limitFraction;
  results_.push_back(json.dump());
}

bool JsonReport::finish(const Totals& totals, double minBandwidth, std::string* error) {
  Json json = Json::parse(head_);
  json["results"] = Json::array();
  for (const std::string& result : results_) json["results"].push_back(Json::parse(result));
  json["out_of_bounds"] = {{"count", totals.wrong}, {"okay", boolText(totals.wrong == 0)}};
  json["average_bus_bandwidth"] = {{"bandwidth", totals.average()},
                                   {"okay", boolText(minBandwidth <= 0 || totals.average() >= 0.9 * minBandwidth)}};
  json["errors"] = boolText(exitCode(totals, minBandwidth) != kExitSuccess);
  json["end_time"] = timestampNow();
  const std::string text = json.dump(2) + "\n";
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(fd_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      *error = fmt::format("-J: cannot write '{}': {}", path_, std::strerror(errno));
      return false;
    }
    done += static_cast<size_t>(n);
  }
  ::close(fd_);
  fd_ = -1;
  return true;
}

}  // namespace vcoll::perf
