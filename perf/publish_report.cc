// SPDX-License-Identifier: Apache-2.0
#include "perf/publish_report.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

namespace vcoll::perf {
namespace {

using Json = nlohmann::ordered_json;

// Time that a link of this speed needs for what a rank receives, over ours.
double fractionOf(double bytesPerUs, const PublishRow& row) {
  if (bytesPerUs <= 0 || row.us <= 0) return 0;
  return static_cast<double>(row.load->received) / bytesPerUs / row.us;
}

const char* modeName(const PublishRow& row) { return row.load->computeUs > 0 ? "timeline" : "ready"; }

double algBw(const PublishRow& row) { return row.us > 0 ? static_cast<double>(row.load->bytes) / row.us / 1e3 : 0; }

const char* shortName(PublishPeer peer) { return peer == PublishPeer::kPerOwner ? "owner" : "coal."; }

}  // namespace

void PublishReport::begin(int argc, char** argv, const RunInfo& run, const std::vector<RankInfo>& ranks) {
  nodes_ = run.nodes;
  const PublishRunOptions& o = options_;
  if (!o.jsonPath.empty()) {
    Json config;
    config["warmup_iters"] = o.warmup;
    config["iterations"] = o.iterations;
    config["validation"] = o.check;
    config["scale"] = o.scale;
    config["compute"] = computeName(o.compute);
    config["gap_us"] = o.gapUs;
    config["copies"] = o.copies;
    config["verify"] = o.verify;
    config["stream_bw"] = link_.stream / 1e3;
    config["ring_bw"] = link_.ring / 1e3;
    json_.begin(argc, argv, run, ranks, config.dump());
  }
  fmt::print("# {} vcoll version {}.{}.{}\n", run.program, run.libraryVersion / 10000, run.libraryVersion / 100 % 100,
             run.libraryVersion % 100);
  fmt::print("# nodes {} copies {} checksums {} updates {} warmup iters: {} iters: {} validation: {}\n#\n", run.nodes,
             o.copies, o.verify ? "on" : "off", computeName(o.compute), o.warmup, o.iterations, o.check);
  fmt::print("# Using devices\n");
  for (const RankInfo& r : ranks) {
    fmt::print("#  Rank {:>2} Group {:>2} Pid {:>6} on {:>10} [cpu {}] host fabric\n", r.rank, r.node, r.pid, r.host,
               r.cpu);
  }
  fmt::print("#\n# bare TCP: {:.2f} GB/s for one stream, {:.2f} GB/s for each of {} at once\n", link_.stream / 1e3,
             link_.ring / 1e3, run.ranks);
  fmt::print("# stream, ring: the time that these need for the bytes of a rank / our time\n");
  if (!o.peers.empty()) fmt::print("# columns named by a peer: its time / our time, so above 1 vcoll is faster\n");
  std::string names =
      fmt::format("#\n# {:>12} {:>6} {:>11} {:>8} {:>9} {:>9} {:>6} {:>6} {:>6} {:>6} {:>9} {:>6}", "model", "items",
                  "size", "mode", "updates", "time", "algbw", "busbw", "stream", "ring", "pause", "#wrong");
  std::string units = fmt::format("# {:>12} {:>6} {:>11} {:>8} {:>9} {:>9} {:>6} {:>6} {:>6} {:>6} {:>9} {:>6}", "", "",
                                  "(B)", "", "(us)", "(us)", "(GB/s)", "(GB/s)", "(%)", "(%)", "(us)", "");
  for (PublishPeer peer : o.peers) {
    names += fmt::format(" {:>6} {:>9}", shortName(peer), "pause");
    units += fmt::format(" {:>6} {:>9}", "(x)", "(us)");
  }
  fmt::print("{}\n{}\n", names, units);
  std::fflush(stdout);
}

void PublishReport::add(const PublishRow& row) {
  const PublishLoad& load = *row.load;
  const double busBw = algBw(row) * load.busFactor();
  totals_.wrong += row.wrong.value_or(0);
  totals_.busBwSum += busBw;
  ++totals_.busBwCount;
  std::string text =
      fmt::format("{:>14} {:>6} {:>11} {:>8} {:>9} {:>9} {:>6} {:>6} {:>6.1f} {:>6.1f} {:>9} {:>6}", load.model->name,
                  load.items.size(), load.bytes, modeName(row), fitNumber(load.computeUs, 9), fitNumber(row.us, 9),
                  fitNumber(algBw(row), 6), fitNumber(busBw, 6), 100 * fractionOf(link_.stream, row),
                  100 * fractionOf(link_.ring, row), fitNumber(row.pauseUs, 9),
                  row.wrong.has_value() ? fmt::format("{}", *row.wrong) : "N/A");
  Json json;
  json["model"] = load.model->name;
  json["nodes"] = nodes_;
  json["items"] = load.items.size();
  json["size"] = load.bytes;
  json["mode"] = modeName(row);
  json["updates_time"] = load.computeUs;
  json["time"] = row.us;
  json["alg_bw"] = algBw(row);
  json["bus_bw"] = busBw;
  json["nwrong"] = row.wrong.has_value() ? Json(*row.wrong) : Json("N/A");
  json["pause"] = row.pauseUs;
  json["stream_fraction"] = fractionOf(link_.stream, row);
  json["ring_fraction"] = fractionOf(link_.ring, row);
  json["times"] = row.iterations;
  json["peers"] = Json::object();
  for (const PublishRow::PeerResult& peer : row.peers) {
    if (!peer.us.has_value()) {
      text += fmt::format(" {:>6} {:>9}", "N/A", "N/A");
      continue;
    }
    const double ratio = row.us > 0 ? *peer.us / row.us : 0;
    text += fmt::format(" {:>6.2f} {:>9}", ratio, fitNumber(peer.pauseUs, 9));
    json["peers"][publishPeerName(peer.peer)] = {{"time", *peer.us}, {"ratio", ratio}, {"pause", peer.pauseUs}};
  }
  fmt::print("{}\n", text);
  std::fflush(stdout);
  if (!options_.jsonPath.empty()) json_.add(json.dump());
}

int PublishReport::finish() {
  const double minBandwidth = minBandwidthFromEnv();
  Options footer;
  footer.check = options_.check;
  fmt::print("{}", footerText(footer, totals_, minBandwidth));
  std::fflush(stdout);
  std::string error;
  if (!options_.jsonPath.empty() && !json_.finish(totals_, minBandwidth, &error)) {
    fmt::print(stderr, "{}\n", error);
    return kExitInternal;
  }
  return exitCode(totals_, minBandwidth);
}

}  // namespace vcoll::perf
