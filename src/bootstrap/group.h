// SPDX-License-Identifier: Apache-2.0
// The control network of one communicator: a binary tree of TCP connections between its ranks (at most three sockets a
// rank, whatever the size), kept by the progress thread. It carries small exchanges (allGather), spreads errors, and
// notices peers that die. No collective data travels here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "bootstrap/listener.h"
#include "vcoll/vcoll.h"

namespace vcoll {

using Blob = std::vector<std::byte>;

class Group {
 public:
  virtual ~Group() = default;  // closes gracefully: see leave()

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Equal on all ranks, unique to this group: the nonce of connections made for it.
  virtual const Nonce& nonce() const = 0;

  // Every rank's blob, in rank order, on every rank. Collective. `what` names the call ("PlanCreate"): ranks that are
  // in exchanges of different names get vcollMismatch naming both ranks and both names, on every rank. Returns the
  // group's failure if it fails meanwhile. On time-out raises vcollTimeout naming the ranks that did not come.
  virtual Status allGather(std::string_view what, const Blob& mine, std::vector<Blob>* all, Deadline deadline) = 0;

  // Any thread, never blocks: puts the group in error on every rank. The first error to reach rank 0 becomes the
  // verdict everywhere, so that all ranks report the same text; a rank that is cut off from rank 0 keeps its own.
  virtual void raise(const Status& error) = 0;
  // True once a verdict is known here (at most ~0.5 s after a local raise).
  virtual bool failed() const = 0;
  // True once an error was raised here or arrived here, verdict or not.
  virtual bool raised() const = 0;
  // Waits for the verdict after raised(); bounded by ~1 s.
  virtual Status failure() = 0;
  // Called once, on the progress thread, when raised() turns true. Set before the first exchange. nullptr: when this
  // returns the callback is not running and will not run.
  virtual void onRaised(std::function<void()> callback) = 0;

  // Says goodbye to the neighbours: their connections' end is then no error. Local, does not wait; data already written
  // is still delivered (connections linger in the progress thread, bounded). calls: collective calls that this rank has
  // made, all of them complete; kManyCalls if nobody counts.
  static constexpr uint64_t kManyCalls = UINT64_MAX;
  virtual void leave(uint64_t calls = kManyCalls) = 0;
  // A rank that is known to have left before it made collective call number `call`; -1: none is known. Nobody can
  // complete that call.
  virtual int leftBefore(uint64_t call) const = 0;
};

// Fills id with this process's endpoint and a fresh nonce, and serves the rendezvous for it.
Status makeUniqueId(vcollUniqueId* id);
// Stops nothing that has begun; an id that was never used costs no file descriptor.

// Joins the rendezvous of id. Clear errors, the same on every rank that can still be told: world sizes differ, a rank
// joins twice (id reused or rank duplicated), id already used, library versions differ, rank out of range.
Status joinGroup(const vcollUniqueId& id, int nranks, int rank, Deadline deadline, std::unique_ptr<Group>* group);

// Collective over parent: members (ranks of parent, equal lists within one color) in new rank order; an empty list:
// takes part in the exchanges only and gets *group = nullptr.
Status splitGroup(Group& parent, const std::vector<int>& members, Deadline deadline, std::unique_ptr<Group>* group);

// What a launcher's environment says: torchrun, Open MPI, Slurm, PMIx, the first of them that is there (mpirun in a
// Slurm job inherits the batch step's SLURM_PROCID=0 on every rank). VCOLL_COMM_ID overrides the address only.
struct LaunchInfo {
  int rank = 0;
  int nranks = 1;
  std::string launcher;  // "torchrun", "slurm", "openmpi", "pmix" or "none"
  std::string address;   // host:port where rank 0 listens; empty when nranks == 1
};
// On an error *info holds what could be read, nranks above all.
Status readLaunchInfo(LaunchInfo* info);
// joinGroup with rank 0 listening at info.address for the time of the rendezvous.
Status joinGroupFromEnv(const LaunchInfo& info, Deadline deadline, std::unique_ptr<Group>* group);

}  // namespace vcoll
