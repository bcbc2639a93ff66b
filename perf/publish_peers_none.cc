// SPDX-License-Identifier: Apache-2.0
// Built without MPI: there are no peers, and the command line does not let one be asked for.
#include "perf/publish_peers.h"

namespace vcoll::perf {

bool publishPeerApplies(PublishPeer, const PublishLoad&) { return false; }

std::chrono::steady_clock::time_point runPublishPeer(PublishPeer, const PublishLoad&, Compute, int, char*) {
  return std::chrono::steady_clock::now();
}

}  // namespace vcoll::perf
