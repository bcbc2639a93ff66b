// SPDX-License-Identifier: Apache-2.0
// The timed model: known times of simple cases, and publishing five models at least as fast as was published.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "perf/publish_models.h"
#include "transport/sim/timed_publish.h"

namespace vcoll::sim {

namespace {

// The builds that run few seeds, because everything is slow there, time the smallest model only.
bool shortRun() {
  const char* seeds = std::getenv("SIM_SEEDS");
  return seeds != nullptr && std::strtoull(seeds, nullptr, 10) < 1000;
}

double publishMs(const std::vector<vcollPublishItem_t>& items, uint32_t nodes) {
  PublishSpec spec;
  spec.items = items;
  spec.path = vcollPathChain;
  for (const vcollPublishItem_t& item : items) spec.windowBytes = std::max(spec.windowBytes, item.offset + item.bytes);
  TimedPublish result;
  const Status status = timePublish(spec, nodes, LinkProfile{}, &result);
  INFO(status.text());
  REQUIRE(status.ok());
  return result.ms;
}

}  // namespace

TEST_CASE("the items of the five models are those of the table", "[sim][publish][timed]") {
  for (const perf::PublishModel& model : perf::publishModels()) {
    INFO(model.name);
    const std::vector<vcollPublishItem_t> items = perf::publishItems(model, 1);
    REQUIRE(items.size() == model.items);
    constexpr double kMiB = 1 << 20;
    REQUIRE(static_cast<double>(items.back().offset + items.back().bytes) / kMiB ==
            Approx(model.totalMiB).margin(0.05).epsilon(0));
    REQUIRE(static_cast<double>(items.front().bytes) / kMiB == Approx(model.largestMiB));
  }
}

TEST_CASE("simulated times of one small item are latencies, of one large item bandwidth", "[sim][publish][timed]") {
  // Openness, header and chunk: the first travels one hop back, the others all hops, each seen by a pass.
  const double smallest = publishMs({{0, 0, 0, 0, 1}}, 2);
  REQUIRE(smallest > 0.008);
  REQUIRE(smallest < 0.0105);
  const double far = publishMs({{0, 0, 0, 0, 1}}, 32);
  REQUIRE(far > smallest + 30 * 0.004);
  REQUIRE(far < smallest + 30 * 0.006);
  const uint64_t bytes = 500'000'000;  // 10 ms
  const double large = publishMs({{0, 0, 0, 0, bytes}}, 8);
  REQUIRE(large > 10);
  REQUIRE(large < 10.2);
  // Two owners send in opposite directions of the same two links.
  const double both = publishMs({{0, 0, 0, 0, bytes}, {1, 1, 0, bytes, bytes}}, 2);
  REQUIRE(both > 10);
  REQUIRE(both < 10.2);
}

TEST_CASE("five models are published at least as fast as the paper's kernel does it", "[sim][publish][timed]") {
  for (const perf::PublishModel& model : perf::publishModels()) {
    for (size_t n = 0; n < std::size(perf::kPublishNodes); ++n) {
      const uint32_t nodes = perf::kPublishNodes[n];
      const double ms = publishMs(perf::publishItems(model, nodes), nodes);
      INFO(model.name << " on " << nodes << " nodes");
      REQUIRE(ms <= model.publishedMs[n]);
      // Not faster than the links: all but what the best supplied node owns itself must reach it.
      const double totalMs = model.totalMiB * (1 << 20) / 50e6;
      REQUIRE(ms > totalMs * (nodes - 1) / nodes * 0.999);
    }
    if (shortRun()) break;
  }
}

}  // namespace vcoll::sim
