// SPDX-License-Identifier: Apache-2.0
// publish_sim: how long a PublishStream takes for the models of publish_models.h on 2 to 32 simulated nodes, beside
// the published times. Runs the library's own state machine in virtual time; needs no network.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "perf/publish_models.h"
#include "transport/sim/timed_publish.h"

int main(int argc, char** argv) {
  using namespace vcoll;
  std::string wanted = "all";
  std::vector<uint32_t> nodes(std::begin(perf::kPublishNodes), std::end(perf::kPublishNodes));
  sim::LinkProfile profile;
  uint64_t chunkBytes = 65536;
  CLI::App app("Simulated time of publishing one rail's items after an optimizer step");
  app.add_option("--model", wanted, "qwen2.5-1.5b, qwen2.5-7b, qwen2.5-32b, wall-oss-0.5, pi0.5 or all [all]");
  app.add_option("--nodes", nodes, "numbers of nodes [2,4,8,16,32]")->delimiter(',')->check(CLI::Range(2, 4096));
  app.add_option("--gbs", profile.gbPerS, "bandwidth of a rail each way, 1e9 bytes/s [50]")->check(CLI::PositiveNumber);
  app.add_option("--hop-us", profile.hopUs, "latency of a hop [4]")->check(CLI::NonNegativeNumber);
  app.add_option("--chunk", chunkBytes, "bytes of a chunk [65536]")->check(CLI::Range(16, 1 << 30));
  CLI11_PARSE(app, argc, argv);
  if (wanted != "all" && perf::findPublishModel(wanted) == nullptr) {
    fmt::print(stderr, "publish_sim: --model: '{}' is not known; see --help\n", wanted);
    return 1;
  }

  fmt::print("# {} GB/s per rail, {} us per hop, chunks of {} bytes; lane: {} us per put, {} us per look at a queue\n",
             profile.gbPerS, profile.hopUs, chunkBytes, sim::kLanePutUs, sim::kLaneLookUs);
  fmt::print("# limit: bytes that the busiest link must carry; published: table 7 of arXiv 2611.07084\n");
  fmt::print("{:<14} {:>5} {:>5} {:>9} {:>9} {:>9} {:>12} {:>16}\n", "model", "items", "nodes", "MiB", "limit ms",
             "ours ms", "published ms", "published / ours");
  for (const perf::PublishModel& model : perf::publishModels()) {
    if (wanted != "all" && wanted != model.name) continue;
    for (const uint32_t n : nodes) {
      PublishSpec spec;
      spec.items = perf::publishItems(model, n);
      spec.path = vcollPathChain;
      spec.chunkBytes = chunkBytes;
      std::vector<uint64_t> owned(n, 0);
      for (const vcollPublishItem_t& item : spec.items) {
        owned[static_cast<uint32_t>(item.owner)] += item.bytes;
        spec.windowBytes += item.bytes;
      }
      sim::TimedPublish result;
      const Status status = sim::timePublish(spec, n, profile, &result);
      if (!status.ok()) {
        fmt::print(stderr, "publish_sim: {}\n", status.text());
        return 1;
      }
      // A link carries everything but what the node behind it owns.
      const uint64_t busiest = spec.windowBytes - *std::min_element(owned.begin(), owned.end());
      const double limitMs = static_cast<double>(busiest) / profile.gbPerS / 1e6;
      const auto* at = std::find(std::begin(perf::kPublishNodes), std::end(perf::kPublishNodes), n);
      const bool known = at != std::end(perf::kPublishNodes);
      const double published = known ? model.publishedMs[at - std::begin(perf::kPublishNodes)] : 0;
      fmt::print("{:<14} {:>5} {:>5} {:>9.1f} {:>9.2f} {:>9.2f} {:>12} {:>16}\n", model.name, spec.items.size(), n,
                 static_cast<double>(spec.windowBytes) / (1 << 20), limitMs, result.ms,
                 known ? fmt::format("{:.2f}", published) : "-",
                 known ? fmt::format("{:.2f}", published / result.ms) : "-");
    }
  }
  return 0;
}
