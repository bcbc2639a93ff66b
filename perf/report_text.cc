// SPDX-License-Identifier: Apache-2.0
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <ctime>

#include "perf/report.h"

namespace vcoll::perf {
namespace {

std::string versionText(int code) { return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100); }

std::string blockText(const Measurement& m) {
  return fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", fitNumber(m.us, 7), fitNumber(m.algBw, 6), fitNumber(m.busBw, 6),
                     m.wrong.has_value() ? fmt::format("{}", *m.wrong) : "N/A");
}

std::vector<double> withoutFirst(const std::vector<double>& times, int skip) {
  const size_t from = std::min(times.size(), static_cast<size_t>(skip));
  return {times.begin() + static_cast<std::ptrdiff_t>(from), times.end()};
}

const Measurement& compared(const Row& row) { return row.comparesInPlace ? row.inPlace : row.outOfPlace; }

}  // namespace

std::string fitNumber(double value, int width) {
  for (int decimals = 2; decimals >= 0; --decimals) {
    const std::string text = fmt::format("{:.{}f}", value, decimals);
    if (text.size() <= static_cast<size_t>(width)) return text;
  }
  return fmt::format("{:.1e}", value);
}

std::string headerText(const Options& o, const RunInfo& run, const std::vector<RankInfo>& ranks) {
  std::string text =
      fmt::format("# {} vcoll version {} headers {} library {}\n", run.program, versionText(VCOLL_VERSION_CODE),
                  versionText(VCOLL_VERSION_CODE), versionText(run.libraryVersion));
  const std::string step =
      o.stepFactor > 1 ? fmt::format("{}(factor)", o.stepFactor) : fmt::format("{}(bytes)", o.stepBytes);
  text += fmt::format(
      "# nThread {} nGpus {} minBytes {} maxBytes {} step: {} warmup iters: {} iters: {} agg iters: {} validation: {} "
      "graph: 0 "
      "unalign: {}\n#\n",
      o.threads, o.gpus, o.minBytes, o.maxBytes, step, o.warmup, o.iterations, o.aggregate, o.check, o.unalign);
  text += "# Using devices\n";
  for (const RankInfo& r : ranks) {
    text += fmt::format("#  Rank {:>2} Group {:>2} Pid {:>6} on {:>10} device {:>2} [cpu {}] host fabric\n", r.rank,
                        r.node, r.pid, r.host, 0, r.cpu);
  }
  text += fmt::format(
      "#\n# ranks {} nodes {} rails {} dist {} buffers {}; a size is the sum of the parts of all ranks{}\n", run.ranks,
      run.nodes, run.rails, o.distribution.text, o.window ? "window" : "private", run.mpi ? "" : "; built without MPI");
  if (!o.peers.empty()) text += "# columns named by a peer: its time / our time, so above 1 vcoll is faster\n";
  text += "# limit: time of the bare memory copies or reads / our time";
  text += run.nodes > 1 ? "; the ranks are on several nodes and the network is not in it\n" : "\n";
  return text;
}

std::string columnText(const Options& o) {
  const auto line = [&](auto lead, auto block, auto peer, const char* limit, auto extra) {
    std::string text = lead + block + block;
    for (Peer p : o.peers) text += fmt::format("  {:>8}", peer(p));
    text += fmt::format("  {:>6}", limit);
    if (o.perIteration != 0) text += extra;
    return text + "\n";
  };
  std::string text = fmt::format("#\n# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}{:^33}{:^33}\n", "", "", "", "", "",
                                 "out-of-place", "in-place");
  text += line(fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "size", "count", "type", "redop", "root"),
               fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", "time", "algbw", "busbw", "#wrong"), peerHeading, "limit",
               fmt::format(" {:>8} {:>8} {:>8} {:>6}", "min", "max", "p99", "cv"));
  text += line(
      fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "(B)", "(elements)", "", "", ""),
      fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", "(us)", "(GB/s)", "(GB/s)", ""), [](Peer) { return "(x)"; }, "(%)",
      fmt::format(" {:>8} {:>8} {:>8} {:>6}", "(us)", "(us)", "(us)", "(%)"));
  return text;
}

std::string rowText(const Options& o, const Row& row) {
  std::string text = fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}", row.bytes, row.count, row.type, row.op, -1);
  text += blockText(row.outOfPlace) + blockText(row.inPlace);
  for (const PeerResult& peer : row.peers) {
    text += fmt::format("  {:>8}", peer.us.has_value() ? fmt::format("{:.2f}", peer.ratio) : "N/A");
  }
  text += fmt::format("  {:>6}", fmt::format("{:.1f}", 100 * row.limitFraction));
  if (o.perIteration != 0) {
    const Spread s = spreadOf(withoutFirst(compared(row).iterations, o.perIterationSkip));
    text += fmt::format(" {:>8} {:>8} {:>8} {:>6.1f}", fitNumber(s.min, 8), fitNumber(s.max, 8), fitNumber(s.p99, 8),
                        s.variationPercent());
  }
  if (o.timestamps != 0) text += "  " + row.timestamp;
  return text + "\n";
}

std::string footerText(const Options& o, const Totals& totals, double minBandwidth) {
  std::string text = fmt::format("# Out of bounds values : {} {}\n", totals.wrong,
                                 o.check == 0        ? "N/A"
                                 : totals.wrong == 0 ? "OK"
                                                     : "FAILED");
  const char* verdict = "";
  if (minBandwidth > 0) verdict = totals.average() < 0.9 * minBandwidth ? " FAILED" : " OK";
  text += fmt::format("# Avg bus bandwidth    : {:g}{}\n#\n", totals.average(), verdict);
  return text;
}

int exitCode(const Totals& totals, double minBandwidth) {
  if (totals.wrong > 0) return kExitData;
  return minBandwidth > 0 && totals.average() < 0.9 * minBandwidth ? kExitData : kExitSuccess;
}

double minBandwidthFromEnv() {
  const char* text = std::getenv("NCCL_TESTS_MIN_BW");
  return text == nullptr ? 0 : std::strtod(text, nullptr);
}

std::string timestampNow() { return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(std::time(nullptr))); }

}  // namespace vcoll::perf
