// SPDX-License-Identifier: Apache-2.0
// What publish_stream_perf writes.
#pragma once

#include <optional>
#include <vector>

#include "perf/link.h"
#include "perf/publish_load.h"
#include "perf/report.h"

namespace vcoll::perf {

// One model in one mode.
struct PublishRow {
  struct PeerResult {
    PublishPeer peer;
    std::optional<double> us;  // empty: not applicable
    double pauseUs = 0;
  };
  const PublishLoad* load;
  double us = 0;
  double pauseUs = 0;
  std::optional<uint64_t> wrong;  // bytes; empty with -c 0
  std::vector<double> iterations;
  std::vector<PeerResult> peers;
};

// Used by rank 0.
class PublishReport {
 public:
  PublishReport(const PublishRunOptions& options, const LinkSpeed& link, JsonReport& json)
      : options_(options), link_(link), json_(json) {}
  void begin(int argc, char** argv, const RunInfo& run, const std::vector<RankInfo>& ranks);
  void add(const PublishRow& row);
  // Exit code.
  int finish();

 private:
  const PublishRunOptions& options_;
  const LinkSpeed link_;
  JsonReport& json_;
  int nodes_ = 1;
  Totals totals_;
};

}  // namespace vcoll::perf
