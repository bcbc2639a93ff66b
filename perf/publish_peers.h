// SPDX-License-Identifier: Apache-2.0
// One publish with MPI's own calls, measured beside vcoll.
#pragma once

#include "perf/publish_load.h"

namespace vcoll::perf {

// False when a call would move 2 GiB or more.
bool publishPeerApplies(PublishPeer peer, const PublishLoad& load);
// One iteration: the rank's updates and everything that it publishes and receives, in data (all items, at their
// offsets). Ranks are those of MPI_COMM_WORLD. Returns when the rank's own updates ended.
std::chrono::steady_clock::time_point runPublishPeer(PublishPeer peer, const PublishLoad& load, Compute compute,
                                                     int rank, char* data);

}  // namespace vcoll::perf
