// SPDX-License-Identifier: Apache-2.0
// The simulator's Port of a PublishStream (kernels/publish.h): one lane of one rank. Any of its functions may pause the
// lane.
#pragma once

#include "transport/sim/publish_cluster.h"

namespace vcoll::sim {

class PublishPort {
 public:
  PublishPort(PublishCluster& cluster, PublishCluster::Lane& lane);

  uint64_t pushed(uint32_t queue);
  uint64_t begun();
  uint64_t stepNumber(uint64_t index);
  bool leased(uint32_t queue, uint32_t copy);
  uint64_t counter(kernels::PublishCounter counter, uint32_t id);
  void signal(uint32_t peer, kernels::PublishCounter counter, uint32_t id);
  bool ready(uint32_t peer);
  kernels::PublishHeader header(uint64_t place);
  void putHeader(uint32_t peer, uint64_t place, uint32_t id);
  void put(uint32_t peer, uint32_t copy, uint64_t offset, uint64_t bytes, uint32_t id);
  uint32_t helpers(uint32_t queue, uint32_t item);
  void setHelpers(uint64_t place, uint32_t count);
  bool canHelp(uint32_t helper);
  void help(uint32_t helper, uint32_t peer, uint32_t copy, uint64_t offset, uint64_t bytes, uint32_t id);
  void overwriting(uint32_t item, uint32_t copy);
  void whole(uint32_t item, uint32_t copy, const kernels::PublishHeader& header);
  void broken(uint32_t queue, const kernels::PublishHeader& header);

 private:
  bool is(PublishMutant mutant) const { return cluster_.options_.mutant == mutant; }
  PublishPost makePost(PublishPost::Kind kind, uint32_t peer, kernels::PublishCounter counter, uint32_t id) const;
  void checkRoom(uint32_t helper, uint32_t peer) const;
  void becomes(uint32_t item, uint32_t copy, uint64_t step);
  const kernels::PublishView& view() const { return lane_.rail().view; }

  PublishCluster& cluster_;
  PublishCluster::Lane& lane_;
  PublishCluster::Rank& rank_;
};

}  // namespace vcoll::sim
