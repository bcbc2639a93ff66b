// SPDX-License-Identifier: Apache-2.0
// A cluster in one thread and virtual time: the memories of all ranks, their lanes as fibers that run the real state
// machines, and the checks that belong to the protocol: memory is touched only while its rank is inside the call, only
// bytes of segments move, slots are not overwritten before they are read, counters balance, all lanes end.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/allgatherv.h"
#include "kernels/reducescatterv.h"
#include "topology/plan.h"
#include "transport/sim/fiber.h"
#include "transport/sim/network.h"
#include "transport/sim/scheduler.h"
#include "transport/sim/sim_options.h"

namespace vcoll::sim {

class SimPort;

constexpr uint32_t kWindows = 2;  // per rank

struct Call {
  enum Op : uint32_t { kAllGatherV, kReduceScatterV };
  Op op;
  uint32_t plan;
  uint32_t src;  // window
  uint32_t dst;  // window of ReduceScatterV's results; src: in place
  uint64_t srcOffset;
  uint64_t dstOffset;
};

// The program that makes the calls on every rank.
class User {
 public:
  virtual ~User() = default;
  // The rank has returned from its call before `call` (if any) and may do to its windows what it likes.
  virtual void prepare(uint32_t rank, uint32_t call) = 0;
  // The rank returns from the call. Gives back what is wrong, empty if nothing.
  virtual std::string returned(uint32_t rank, uint32_t call) = 0;
};

// The ring of one hop: at the near end partial sums that arrived, at the far end those that leave.
struct Ring {
  enum State : uint8_t { kFree, kFilling, kFull };
  std::vector<std::byte> bytes;
  std::vector<State> states;
  uint64_t slotBytes = 0;
};

class SimCluster {
 public:
  // windowBytes: of each window of each rank.
  SimCluster(const SimOptions& options, const Topology& topology, const FlowLayout& layout, uint64_t windowBytes,
             FiberPool& fibers);
  ~SimCluster();

  Status addPlan(const PlanSpec& spec);
  const Plan& plan(uint32_t index, uint32_t rank) const { return *plans_[index].ofRank[rank]; }
  std::byte* window(uint32_t rank, uint32_t index) { return ranks_[rank]->windows[index].data(); }

  // Every rank makes the calls in order. Empty when all went well, else the first thing that went wrong.
  std::string run(const std::vector<Call>& calls, User& user);

  bool deadlocked() const { return deadlocked_; }
  uint64_t trace() const { return scheduler_.trace(); }
  uint64_t eventCount() const { return scheduler_.eventCount(); }
  uint64_t now() const { return scheduler_.now(); }
  bool faultStruck() const { return network_.dropped(); }

 private:
  friend class Network;
  friend class SimPort;

  struct Lane final : Actor {
    void fire(uint32_t tag) override;
    SimCluster* cluster = nullptr;
    uint32_t rank = 0;
    uint32_t index = 0;
    Fiber* fiber = nullptr;
    bool blocked = false;
    bool changed = false;
    bool inCall = false;
    uint64_t entered = 0;  // calls
    uint64_t left = 0;
    uint32_t unread = 0;           // puts whose source is not read yet
    std::vector<uint32_t> putsTo;  // by peer: puts that have not landed
    std::unique_ptr<kernels::AllGatherV<SimPort>::Task[]> gatherTasks;
    std::unique_ptr<kernels::ReduceScatterV<SimPort>::Task[]> reduceTasks;
    uint32_t taskRoom = 0;
    void* machine = nullptr;  // on the fiber's stack, while inCall
    kernels::Pending (*pending)(void*) = nullptr;
  };

  struct Rank final : Actor {
    void fire(uint32_t tag) override;
    SimCluster* cluster = nullptr;
    uint32_t rank = 0;
    uint32_t call = 0;
    bool inside = false;
    uint32_t lanesInside = 0;
    uint64_t slowness = 1;
    uint64_t gathered = 0;  // bytes that this rank pulled or that landed, in this call
    std::vector<std::byte> windows[kWindows];
    std::vector<uint64_t> counters[kernels::kCounterKinds];
    std::vector<uint64_t> bases[kernels::kCounterKinds];
    kernels::Bases baseView{};
    std::vector<std::unique_ptr<Ring>> inRings;   // by nearId, made when first used
    std::vector<std::unique_ptr<Ring>> outRings;  // by farId
    std::vector<uint64_t> partialsSent;           // by farId
    std::vector<std::unique_ptr<Lane>> lanes;
  };

  struct PlanSet {
    std::vector<std::unique_ptr<Plan>> ofRank;
    std::vector<vcollSegment_t> sorted;  // by offset, empty ones left out
  };

  // The segment that holds all these bytes, nullptr if none does.
  const vcollSegment_t* segmentOf(uint32_t plan, uint64_t offset, uint64_t bytes) const;
  // The rank's windows belong to the library: it is inside this call.
  bool mayTouch(uint32_t rank, uint32_t call) const { return ranks_[rank]->inside && ranks_[rank]->call == call; }
  const Call& call(uint32_t index) const { return calls_[index]; }
  Ring& ring(std::vector<std::unique_ptr<Ring>>& rings, uint32_t id);

  void startCall(Rank& rank);
  static void laneBody(void* lane);
  template <typename Machine, typename Task>
  void drive(Lane& lane, std::unique_ptr<Task[]>& tasks);
  void endLane(Lane& lane);

  // Something changed that these lanes may wait for.
  void wake(uint32_t rank, uint32_t lane);
  void wakeNode(uint32_t rank, uint32_t lane);
  uint64_t delay(const Rank& rank);
  // The lane pauses here, perhaps.
  void pausePoint(Lane& lane);
  void pause(Lane& lane);

  void fail(std::string text) {
    if (failure_.empty()) failure_ = std::move(text);
  }
  // Where ranks pull, each gets every byte that it does not own once.
  std::string checkGathered(const Rank& rank) const;
  // From a lane: does not return.
  void stop(std::string text);
  std::string describeWaiting();
  // Counters against what the calls used up. settled: nothing is under way any more.
  std::string checkCounters(uint32_t rank, bool settled) const;

  const SimOptions options_;
  const Topology topology_;
  const FlowLayout layout_;
  FiberPool& fibers_;
  Scheduler scheduler_;
  Network network_;
  std::vector<PlanSet> plans_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<Call> calls_;
  User* user_ = nullptr;
  uint32_t finishedRanks_ = 0;
  bool deadlocked_ = false;
  std::string failure_;
};

}  // namespace vcoll::sim
