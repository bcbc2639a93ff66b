// SPDX-License-Identifier: Apache-2.0
#include "topology/cost.h"

#include <algorithm>

namespace vcoll {

double predictUs(vcollPath_t path, const PathLoad& load, const Profile& profile) {
  const double local = static_cast<double>(load.totalBytes) / profile.localBytesUs;
  if (load.nodes <= 1) return local;
  const double hops = load.nodes - 1;
  const double chunk = static_cast<double>(std::min(load.chunkBytes, load.maxQueueBytes));
  const double chunkTime = chunk / profile.railBytesUs + profile.chunkUs;
  double wire = 0;
  if (path == vcollPathStar) {
    // The source posts every chunk once per node, all through its own rail.
    wire = profile.hopUs + hops * (static_cast<double>(load.maxQueueBytes) / profile.railBytesUs + profile.chunkUs);
  } else {
    // Fill the chain with the first chunk, then every byte of the rail passes the busiest station once.
    wire = hops * (profile.hopUs + chunkTime) + static_cast<double>(load.maxRailBytes) / profile.railBytesUs;
  }
  return std::max(wire, local);
}

vcollPath_t choosePath(const PathLoad& load, const Profile& profile, double* predictedUs) {
  const double chain = predictUs(vcollPathChain, load, profile);
  const double star = predictUs(vcollPathStar, load, profile);
  const bool useStar = load.nodes > 2 && load.nodes <= kStarMaxNodes && star < chain;
  *predictedUs = useStar ? star : chain;
  return useStar ? vcollPathStar : vcollPathChain;
}

}  // namespace vcoll
