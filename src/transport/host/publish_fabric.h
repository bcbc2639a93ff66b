// SPDX-License-Identifier: Apache-2.0
// The host fabric of one PublishStream: a wire of its own between the agents, and the lanes of the rails that this rank
// serves, which the progress thread drives whenever something changed. What users may do when: comm/publish_stream.h.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "bootstrap/engine.h"
#include "bootstrap/group.h"
#include "kernels/publish.h"
#include "topology/publish_plan.h"
#include "transport/host/wire.h"

namespace vcoll {

class PublishFabric {
 public:
  struct Options {
    int64_t timeoutMs = 0;
    bool verify = false;
    bool stripe = false;                      // ranks whose own rails are idle help with heavy items
    uint64_t serial = 0;                      // of the stream in its communicator, equal on all ranks
    const volatile int* cancelled = nullptr;  // turns non-zero when the communicator fails
  };

  // Collective. bases: of this node's windows, with all copies, by local rank. Group, topology and windows outlive the
  // fabric.
  static Status open(Group& group, const Topology& topology, PublishPlan plan, std::vector<unsigned char*> bases,
                     const Options& options, std::unique_ptr<PublishFabric>* fabric);
  ~PublishFabric();
  PublishFabric(const PublishFabric&) = delete;
  PublishFabric& operator=(const PublishFabric&) = delete;

  const PublishPlan& plan() const { return plan_; }
  bool hasCopy(uint32_t item) const { return slots_[item].lane >= 0; }
  unsigned char* address(uint32_t item, uint32_t copy) const;

  // The application's side; any thread, but one at a time for begin.
  void begin(uint64_t stepNumber);
  uint64_t begun() const { return begun_.load(std::memory_order_seq_cst); }
  // Steps that are over here: received, passed on, taken by the agents after this one.
  uint64_t finished() const { return finished_.load(std::memory_order_seq_cst); }
  // This rank's own item is final in its copy of the step with that index. All of the steps before are pushed already.
  void push(uint32_t item, uint64_t step);
  // Every own item was pushed in all steps before that one.
  bool pushedBefore(uint64_t step) const { return pushed_.load(std::memory_order_acquire) >= step * ownCount_; }
  // The version in that copy: its step's number, or VCOLL_NO_STEP while there is none.
  uint64_t version(uint32_t item, uint32_t copy) const {
    return versions_[uint64_t{item} * plan_.spec().copies + copy].load(std::memory_order_seq_cst) - 1;
  }
  void lease(uint32_t item, uint32_t copy);
  void release(uint32_t item, uint32_t copy);
  // Peers see an orderly end. No call may follow.
  void closeWire();
  // Takes in what has arrived, so that version() tells what a failure left.
  void settle();

  // Waits until done(). On time-out raises vcollTimeout: "<what> of rank R waited for ...", as waiting() says.
  Status wait(const std::function<bool()>& done, const std::function<std::string()>& waiting);
  // What keeps the item, or any of this rank's lanes (item < 0), from finishing `steps` steps.
  std::string pending(int64_t item, uint64_t steps);

 private:
  // The Port of one lane (kernels/publish.h says what it does).
  class Port {
   public:
    Port(PublishFabric& fabric, uint32_t lane) : fabric_(fabric), lane_(lane) {}
    uint64_t pushed(uint32_t) const { return fabric_.pushed_.load(std::memory_order_acquire); }
    uint64_t begun() const { return fabric_.begun(); }
    uint64_t stepNumber(uint64_t index) const { return fabric_.stepNumbers_[index % kernels::kStepsKept]; }
    bool leased(uint32_t queue, uint32_t copy) const { return fabric_.leases(lane_, queue, copy).load() > 0; }
    uint64_t counter(kernels::PublishCounter kind, uint32_t id) const;
    void signal(uint32_t peer, kernels::PublishCounter kind, uint32_t id);
    bool ready(uint32_t peer) const;
    kernels::PublishHeader header(uint64_t place) const;
    void putHeader(uint32_t peer, uint64_t place, uint32_t id);
    void put(uint32_t peer, uint32_t copy, uint64_t offset, uint64_t bytes, uint32_t id);
    void overwriting(uint32_t item, uint32_t copy);
    void whole(uint32_t item, uint32_t copy, const kernels::PublishHeader& header);
    void broken(uint32_t queue, const kernels::PublishHeader& header);
    uint32_t helpers(uint32_t queue, uint32_t item) const;
    void setHelpers(uint64_t place, uint32_t count) { fabric_.headers_[rail().firstPlace + place].helpers = count; }
    bool canHelp(uint32_t helper) const { return fabric_.help_.canAsk(fabric_.help_.localOf(helper)); }
    void help(uint32_t helper, uint32_t peer, uint32_t copy, uint64_t offset, uint64_t bytes, uint32_t id);

   private:
    const PublishPlan::Rail& rail() const { return fabric_.plan_.rails()[lane_]; }
    uint32_t counterIndex(kernels::PublishCounter kind, uint32_t id) const;
    PublishFabric& fabric_;
    uint32_t lane_;
  };
  using Machine = kernels::Publish<Port>;
  struct Lane {
    Lane(PublishFabric& fabric, uint32_t index, const kernels::PublishView& view)
        : states(view.queueCount),
          sent(view.edgeCount),
          port(fabric, index),
          machine(view, port, states.data(), sent.data()) {}
    std::vector<Machine::QueueState> states;
    std::vector<Machine::Walk> sent;
    Port port;
    Machine machine;
  };
  // Where an item travels, for those that this rank has copies of.
  struct Slot {
    int32_t lane = -1;
    uint32_t queue = 0;
  };

  PublishFabric(Group& group, const Topology& topology, PublishPlan plan, std::vector<unsigned char*> bases,
                const Options& options);
  Status connect();
  Status openWire(unsigned char* address, char* error);
  std::vector<int> peers() const;
  std::atomic<uint32_t>& leases(uint32_t lane, uint32_t queue, uint32_t copy) const;
  // Has the progress thread look at the lanes soon.
  void kick();
  void drive();
  void notify();
  uint64_t checksum(uint32_t item, uint32_t copy) const;
  static void* resolve(void* context, uint32_t window, uint64_t offset, uint64_t bytes);
  static void signal(void* context, uint32_t counter, uint64_t add);
  static void lost(void* context, int peer, const char* why);
  static void wake(void* context);

  static constexpr uint32_t kHeaderWindow = 0;
  static constexpr uint32_t kItemWindow = 1;
  static constexpr uint32_t kHelpWindow = 2;

  // Chunks that one rank of a node asks another to put for it. A request lies in the helper's memory; its credit comes
  // back once it is served and the helper's own lanes have nothing to send.
  class Help {
   public:
    struct Request {
      uint64_t offset;  // in the asker's window and the peer's
      uint64_t bytes;
      uint32_t peer;
      uint32_t counter;  // of the peer
    };
    static constexpr uint32_t kSlots = 8;

    explicit Help(PublishFabric& fabric, uint32_t locals)
        : fabric_(fabric),
          in_(size_t{locals} * kSlots),
          out_(in_.size()),
          asked_(locals),
          served_(locals),
          owed_(locals) {}
    uint32_t locals() const { return static_cast<uint32_t>(asked_.size()); }
    uint32_t localOf(uint32_t helper) const { return (fabric_.local_ + helper) % locals(); }
    bool isIdle(uint32_t local) const { return asked_[local] == count(creditCounter(local)); }
    bool canAsk(uint32_t local) const;
    void ask(uint32_t local, const Request& request);
    // Serves what the others of this node ask for. True if anything moved.
    bool serve(bool ownLanesIdle);
    std::vector<Request>& in() { return in_; }

   private:
    // By the other's local rank.
    uint32_t creditCounter(uint32_t local) const { return fabric_.firstHelpCounter_ + local; }
    uint32_t requestCounter(uint32_t local) const { return fabric_.firstHelpCounter_ + locals() + local; }
    uint64_t count(uint32_t counter) const { return fabric_.counters_[counter].load(std::memory_order_acquire); }
    int rankOf(uint32_t local) const;

    PublishFabric& fabric_;
    std::vector<Request> in_;       // by asker's local rank and slot
    std::vector<Request> out_;      // by helper's local rank and slot
    std::vector<uint64_t> asked_;   // by helper's local rank
    std::vector<uint64_t> served_;  // by asker's local rank
    std::vector<uint64_t> owed_;    // credits, by asker's local rank
  };

  Group& group_;
  const Topology& topology_;
  const PublishPlan plan_;
  const std::vector<unsigned char*> bases_;  // by local rank
  const uint32_t local_;
  unsigned char* const base_;  // own
  const Options options_;
  Engine* engine_ = nullptr;

  const vcollWire_v1* wire_ = nullptr;
  vcollWireComm* wireComm_ = nullptr;
  vcollWireHost_v1 wireHost_{};
  std::vector<unsigned char> wireAddresses_;

  std::vector<kernels::PublishHeader> headers_;
  std::vector<std::atomic<uint64_t>> counters_;  // [rail][kind][id], then those of Help
  const uint32_t firstHelpCounter_;
  std::vector<std::atomic<uint64_t>> versions_;        // [item][copy]: step number + 1, 0 for none
  mutable std::vector<std::atomic<uint32_t>> leases_;  // [lane][queue][copy]
  std::vector<Slot> slots_;

  std::atomic<uint64_t> begun_{0};
  std::atomic<uint64_t> stepNumbers_[kernels::kStepsKept] = {};
  std::mutex pushMutex_;
  std::atomic<uint64_t> pushed_{0};
  uint32_t ownFirst_ = 0;  // of this rank's own items
  uint32_t ownCount_ = 0;
  uint64_t ownPlace_ = 0;  // of their headers, in copy 0

  std::mutex closeMutex_;
  std::mutex machineMutex_;  // the lanes
  std::vector<std::unique_ptr<Lane>> lanes_;
  Help help_;
  std::atomic<uint64_t> finished_{0};
  std::atomic<bool> kicked_{false};
  bool closed_ = false;   // the lanes must not use the wire any more; under machineMutex_
  bool changed_ = false;  // something that waits() may look for; under machineMutex_

  std::mutex waitMutex_;
  std::condition_variable waitChanged_;
  std::atomic<uint32_t> waiters_{0};
};

}  // namespace vcoll
