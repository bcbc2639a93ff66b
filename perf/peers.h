// SPDX-License-Identifier: Apache-2.0
// The same work done with MPI's own calls, measured beside vcoll.
#pragma once

#include <cstdint>
#include <vector>

#include "perf/options.h"

namespace vcoll::perf {

struct PeerCall {
  Peer peer;
  bool reduces;  // ReduceScatterV, else AllGatherV in place in recv
  const PerfType* type;
  vcollRedOp_t op;
  std::vector<uint64_t> counts;  // elements per rank, packed in rank order; for kEqual all equal
  const void* send;              // ReduceScatterV: all parts
  void* recv;                    // AllGatherV: all parts, the own one in place; ReduceScatterV: the own part
};

// False when MPI cannot do it: a count over INT_MAX, an operation or type it does not have.
bool peerApplies(const PeerCall& call);
// The layout a peer works on: counts, or equal parts of the same total for kEqual.
std::vector<uint64_t> peerCounts(Peer peer, const std::vector<uint64_t>& counts, size_t elementSize);
void runPeer(const PeerCall& call);

}  // namespace vcoll::perf
