// SPDX-License-Identifier: Apache-2.0
// One PublishStream on a cluster in one thread and virtual time: the memories of all ranks and their lanes as fibers
// that run the real state machine, and the checks that belong to the protocol: only bytes of items move, a copy is
// overwritten only when its version was given up, is not leased and no put reads it any more, versions come one after
// another.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kernels/publish.h"
#include "topology/publish_plan.h"
#include "transport/sim/fiber.h"
#include "transport/sim/publish_network.h"
#include "transport/sim/publish_options.h"
#include "transport/sim/scheduler.h"

namespace vcoll::sim {

class PublishPort;

// The programs of all ranks. Steps are named by their index, from 0; items by their index in the plan.
class PublishUsers {
 public:
  virtual ~PublishUsers() = default;
  // The rank's copy holds this version now; it is not the owner. Gives back what is wrong, empty if nothing.
  virtual std::string whole(uint32_t rank, uint32_t item, uint64_t step) = 0;
  // Something changed that the rank's program may wait for.
  virtual void changed(uint32_t rank) = 0;
};

class PublishCluster {
 public:
  // What a rank's copy of an item holds.
  struct Copy {
    enum State : uint8_t { kNever, kWhole, kOverwritten };
    State state = kNever;
    uint64_t step = 0;
    uint32_t leases = 0;
    std::vector<uint32_t> unread;  // by chunk: puts that still read it
  };

  PublishCluster(const PublishOptions& options, const Topology& topology, FiberPool& fibers);
  ~PublishCluster();

  Status build(const PublishSpec& spec);
  // Until nothing happens any more. Empty when all went well so far, else the first thing that went wrong.
  std::string run(PublishUsers& users);
  // Every lane has finished so many steps and used up all that was counted; empty, or what is missing.
  std::string checkFinished(uint64_t steps);

  const PublishSpec& spec() const { return ranks_[0]->plan.spec(); }
  const std::vector<vcollPublishItem_t>& items() const { return ranks_[0]->plan.items(); }
  bool holds(uint32_t rank, uint32_t item) const;
  uint32_t copyOf(uint64_t step) const { return static_cast<uint32_t>(step % spec().copies); }
  const Copy& copy(uint32_t rank, uint32_t item, uint64_t step) const {
    return ranks_[rank]->copies[size_t{item} * spec().copies + copyOf(step)];
  }
  std::byte* window(uint32_t rank) { return ranks_[rank]->window.data(); }
  std::byte* address(uint32_t rank, uint32_t item, uint64_t step) {
    return window(rank) + items()[item].offset + copyOf(step) * spec().copyStride;
  }

  // What the programs do.
  bool mayBegin(uint32_t rank) const;
  void begin(uint32_t rank, uint64_t number);
  void startWriting(uint32_t rank, uint32_t item, uint64_t step);  // by the owner, before it writes the item
  void push(uint32_t rank, uint32_t item);
  bool isWhole(uint32_t rank, uint32_t item, uint64_t step) const;
  void lease(uint32_t rank, uint32_t item, uint64_t step);
  void release(uint32_t rank, uint32_t item, uint64_t step);

  bool dead(uint32_t rank) const { return rank == options_.deadRank && died_; }
  bool died() const { return died_; }
  // The rank has met a header that cannot be.
  bool broken(uint32_t rank) const { return ranks_[rank]->broken; }
  // Does the rank send or receive anything?
  bool connected(uint32_t rank) const { return !ranks_[rank]->plan.peers().empty(); }
  bool faultStruck() const { return network_.dropped(); }
  Scheduler& scheduler() { return scheduler_; }
  uint64_t delay(uint32_t rank);
  void fail(std::string text) {
    if (failure_.empty()) failure_ = std::move(text);
  }
  std::string describeWaiting(uint64_t steps);

 private:
  friend class PublishNetwork;
  friend class PublishPort;
  using Machine = kernels::Publish<PublishPort>;
  struct Rank;

  // One rail of one rank.
  struct Lane final : Actor {
    void fire(uint32_t tag) override;
    const PublishPlan::Rail& rail() const { return owner->plan.rails()[index]; }
    PublishCluster* cluster = nullptr;
    Rank* owner = nullptr;
    uint32_t index = 0;
    Fiber* fiber = nullptr;
    std::unique_ptr<PublishPort> port;
    std::unique_ptr<Machine> machine;
    bool blocked = false;
    bool changed = false;
    uint64_t finished = 0;  // steps
    // By who carries them (helpers after the lane itself) and peer: puts that have not landed.
    std::vector<uint32_t> putsTo[1 + kernels::kMaxHelpers];
    std::vector<uint64_t> counters[kernels::kPublishCounterKinds];
    std::vector<kernels::PublishHeader> headers;
    std::vector<uint32_t> unreadHeaders;
    std::vector<uint64_t> pushed;  // by queue
    std::vector<uint64_t> wholes;  // by queue
    std::vector<Machine::QueueState> states;
    std::vector<Machine::Walk> sent;
  };

  struct Rank {
    uint32_t rank = 0;
    PublishPlan plan;
    uint64_t slowness = 1;
    bool broken = false;
    std::vector<std::byte> window;
    std::vector<uint64_t> numbers;  // of the steps begun
    std::vector<Copy> copies;       // by item, then copy
    std::vector<std::unique_ptr<Lane>> lanes;
    std::vector<Lane*> byRail;
  };

  Lane& lane(uint32_t rank, uint32_t rail) { return *ranks_[rank]->byRail[rail]; }
  Copy& copyAt(uint32_t rank, uint32_t item, uint32_t copy) {
    return ranks_[rank]->copies[size_t{item} * spec().copies + copy];
  }
  // For the network.
  std::byte* memory(uint32_t rank, const PublishPost& post);
  uint32_t& unread(const PublishPost& post);
  void checkLanding(const PublishPost& post);
  void toOtherCopy(PublishPost* post) const;
  uint64_t chunkOf(const PublishPost& post) const {
    return (post.offset - items()[post.item].offset - post.copy * spec().copyStride) / spec().chunkBytes;
  }
  // May the copy be overwritten there? Empty, or why not.
  std::string reasonToKeep(uint32_t rank, uint32_t item, uint32_t copy);
  std::string place(uint32_t rank, uint32_t item, uint32_t copy) const;

  void makeLanes(Rank& rank);
  static void laneBody(void* lane);
  void wake(Lane& lane);
  void wakeAll(uint32_t rank);
  // The lane pauses here, perhaps.
  void pausePoint(Lane& lane);
  void pause(Lane& lane);
  // After a failure, from a lane: does not return. What the lane owns then is lost, so texts are given away before.
  static void halt() { Fiber::suspend(); }

  const PublishOptions options_;
  const Topology topology_;
  FiberPool& fibers_;
  Scheduler scheduler_;
  PublishNetwork network_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  PublishUsers* users_ = nullptr;
  bool died_ = false;
  uint32_t readsNothing_ = 0;  // puts without bytes
  std::string failure_;
};

}  // namespace vcoll::sim
