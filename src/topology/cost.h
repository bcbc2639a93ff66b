// SPDX-License-Identifier: Apache-2.0
// The cost model that chooses a plan's path: a pure function of the plan's sizes and the fabric's profile, so that all
// ranks choose alike.
#pragma once

#include <cstdint>

#include "vcoll/vcoll.h"

namespace vcoll {

// What a fabric costs. Microseconds and bytes per microsecond (1000 = 1 GB/s).
struct Profile {
  double hopUs;         // a small put until its signal is seen by the next agent
  double chunkUs;       // handling of one chunk at a station
  double railBytesUs;   // one rail, one direction
  double localBytesUs;  // copy rate of one rank inside a node
};

// The host fabric over TCP (loopback figures of docs/performance.md).
constexpr Profile kHostTcpProfile = {35.0, 4.0, 1500.0, 20000.0};

struct PathLoad {
  uint32_t nodes;
  uint64_t totalBytes;
  uint64_t maxQueueBytes;  // heaviest queue
  uint64_t maxRailBytes;   // sum over queues of the heaviest rail
  uint64_t chunkBytes;
};

// Most nodes that star serves when the model may choose (one source feeds them all).
constexpr uint32_t kStarMaxNodes = 16;

double predictUs(vcollPath_t path, const PathLoad& load, const Profile& profile);
vcollPath_t choosePath(const PathLoad& load, const Profile& profile, double* predictedUs);

}  // namespace vcoll
