// SPDX-License-Identifier: Apache-2.0
// The simulator's Port (kernels/pipeline.h): one lane of one rank inside one call. Any of its functions may pause the
// lane, in the middle of copies too.
#pragma once

#include "transport/sim/sim_cluster.h"

namespace vcoll::sim {

class SimPort {
 public:
  SimPort(SimCluster& cluster, SimCluster::Lane& lane);

  void enter();
  bool entered(uint32_t local);
  void leave();
  bool left(uint32_t local);
  uint64_t counter(kernels::Counter counter, uint32_t id);
  uint64_t arrived(uint32_t local, uint32_t id);
  void signal(uint32_t peer, kernels::Counter counter, uint32_t id);
  bool ready(uint32_t peer);
  void put(uint32_t peer, uint32_t local, uint64_t offset, uint64_t bytes, uint32_t id);
  bool pulls() const { return cluster_.options_.pulls; }
  void pull(uint32_t owner, uint32_t local, uint64_t offset, uint64_t bytes);
  void landed(uint32_t owner, uint64_t offset, uint64_t bytes);
  void deliver(uint32_t local, uint64_t offset, uint64_t bytes);
  void reduce(const kernels::ReduceStep& step);
  void putPartial(uint32_t peer, uint32_t outId, uint32_t slot, uint64_t bytes, uint32_t ringId);
  bool flushed();

 private:
  bool is(Mutant mutant) const { return cluster_.options_.mutant == mutant; }
  SimCluster::Rank& localRank(uint32_t local) const { return *cluster_.ranks_[view_.localRanks[local]]; }
  void checkSegment(const char* what, uint64_t offset, uint64_t bytes);
  void checkOwner(const char* what, uint32_t owner, uint64_t offset, uint64_t bytes);
  // The memory of this rank is about to be read or written.
  void checkInside(const char* what, uint32_t rank);
  // Reads this chunk from rank `from` of this node: it must hold it, as its owner or the agent of a queue.
  void checkSource(const char* what, uint32_t local, uint64_t offset, uint64_t bytes);
  void copyTo(const char* what, uint32_t to, uint32_t from, uint64_t offset, uint64_t bytes);
  template <typename Source, typename Partial>
  void reduceAs(const kernels::ReduceStep& step);
  uint64_t partialBytes(uint64_t bytes) const { return bytes * partialFactor_; }

  SimCluster& cluster_;
  SimCluster::Lane& lane_;
  SimCluster::Rank& rank_;
  const Call& call_;
  const uint32_t callIndex_;
  const kernels::PlanView& view_;
  const PlanSpec& spec_;
  uint64_t partialFactor_;
  uint64_t creditsToSkip_ = 0;  // kCreditEarly
};

}  // namespace vcoll::sim
