// SPDX-License-Identifier: Apache-2.0
// How long one step of a PublishStream takes on one rail: the real state machine, one lane per node, over a timed
// network.
#pragma once

#include <cstdint>

#include "topology/publish_plan.h"
#include "transport/sim/timed_network.h"

namespace vcoll::sim {

// What a lane's own work takes: to post a put, and in every pass to look at each queue's counters.
constexpr double kLanePutUs = 0.3;
constexpr double kLaneLookUs = 0.05;

struct TimedPublish {
  double ms = 0;      // until the last item was whole on the last node, all pushed at 0
  uint64_t puts = 0;  // headers too
  uint64_t passes = 0;
};

// One rank per node; every owner pushes its items, in order of their ids, at time 0.
Status timePublish(const PublishSpec& spec, uint32_t nodes, const LinkProfile& profile, TimedPublish* result);

}  // namespace vcoll::sim
