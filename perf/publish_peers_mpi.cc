// SPDX-License-Identifier: Apache-2.0
#include <mpi.h>

#include <algorithm>
#include <climits>

#include "perf/publish_peers.h"

namespace vcoll::perf {
namespace {

void perOwner(const PublishLoad& load, Compute compute, int rank, Updates& updates, char* data) {
  size_t own = 0;
  for (size_t i : load.byTime) {
    const PublishItem& item = load.items[i];
    // A rank whose thread makes its updates itself must not enter a call that has to wait for another rank's: it first
    // does what it would be doing meanwhile.
    if (compute != Compute::kDevice) updates.finishStartedBefore(item.ready);
    if (item.owner == rank) updates.finish(own++);
    MPI_Bcast(data + item.offset, static_cast<int>(item.bytes), MPI_BYTE, item.owner, MPI_COMM_WORLD);
  }
}

struct Group {
  uint64_t begin = 0;  // offset of the data
  uint64_t bytes = 0;
  std::vector<int> counts;
  std::vector<int> displs;
  size_t owned = 0;  // items of this rank in this group and before
};

std::vector<Group> groupsOf(const PublishLoad& load, int rank) {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<Group> groups(load.groups);
  for (const PublishItem& item : load.items) {
    Group& group = groups[item.group];
    group.counts.resize(static_cast<size_t>(ranks));
    group.counts[static_cast<size_t>(item.owner)] += static_cast<int>(item.bytes);
    group.bytes += item.bytes;
    if (item.owner == rank) ++group.owned;
  }
  uint64_t begin = 0;
  size_t owned = 0;
  for (Group& group : groups) {
    group.begin = begin;
    begin += group.bytes;
    owned += group.owned;
    group.owned = owned;
    int at = 0;
    for (int count : group.counts) {
      group.displs.push_back(at);
      at += count;
    }
  }
  return groups;
}

void coalesced(const PublishLoad& load, int rank, Updates& updates, char* data) {
  for (const Group& group : groupsOf(load, rank)) {
    if (group.bytes == 0) continue;
    if (group.owned > 0) updates.finish(group.owned - 1);
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_BYTE, data + group.begin, group.counts.data(), group.displs.data(), MPI_BYTE,
                   MPI_COMM_WORLD);
  }
}

}  // namespace

bool publishPeerApplies(PublishPeer peer, const PublishLoad& load) {
  std::vector<uint64_t> groups(load.groups, 0);
  uint64_t most = 0;
  for (const PublishItem& item : load.items) {
    groups[item.group] += item.bytes;
    most = std::max(most, peer == PublishPeer::kPerOwner ? item.bytes : groups[item.group]);
  }
  return most <= INT_MAX;
}

std::chrono::steady_clock::time_point runPublishPeer(PublishPeer peer, const PublishLoad& load, Compute compute,
                                                     int rank, char* data) {
  Updates updates(load, compute, rank);
  if (peer == PublishPeer::kPerOwner) {
    perOwner(load, compute, rank, updates, data);
  } else {
    coalesced(load, rank, updates, data);
  }
  return updates.end();
}

}  // namespace vcoll::perf
