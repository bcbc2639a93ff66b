// SPDX-License-Identifier: Apache-2.0
// Built without MPI: there are no peers, and the command line does not let one be asked for.
#include "perf/peers.h"

namespace vcoll::perf {

bool peerApplies(const PeerCall&) { return false; }
std::vector<uint64_t> peerCounts(Peer, const std::vector<uint64_t>& counts, size_t) { return counts; }
void runPeer(const PeerCall&) {}

}  // namespace vcoll::perf
