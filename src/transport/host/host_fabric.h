// SPDX-License-Identifier: Apache-2.0
// The host fabric of one communicator: shared memory windows inside a node, a wire between nodes, and the loop that
// runs a call's lanes. One thread at a time uses it, but for signal/resolve (the wire's progress thread) and the
// group's error.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "bootstrap/group.h"
#include "memory/shared_memory.h"
#include "topology/plan.h"
#include "topology/topology.h"
#include "transport/host/control.h"
#include "transport/host/fd_exchange.h"
#include "transport/host/waiter.h"
#include "transport/host/wire.h"

namespace vcoll {

enum class CallKind : uint64_t {
  kNone = 0,
  kAllGatherV,
  kReduceScatterV,
  kPlanCreate,
  kWindowRegister,
  kSplit,
  kPublishStreamCreate,
  kFinalize
};
const char* callName(CallKind kind);

// What must be equal on all ranks in a call, in the order in which a difference is reported.
struct RecordFields {
  enum Field : size_t { kKind, kType, kOp, kBytes, kWindow, kOffset, kDstWindow, kDstOffset, kDigest, kCount };
  std::array<uint64_t, kCount> words{};

  RecordFields() = default;
  explicit RecordFields(CallKind kind) { words[kKind] = static_cast<uint64_t>(kind); }
};

struct HostWindow {
  uint32_t id = 0;
  uint64_t bytes = 0;
  std::vector<unsigned char*> bases;  // by local rank
  std::vector<Mapping> mappings;      // of the other local ranks
  const void* pinned = nullptr;       // start of the user's memory, or nullptr
};

// One collective call as the port needs it. Addresses are integers: they may be based outside of any object (offset 0
// of a private buffer's round). All arrays outlive the call.
struct HostCall {
  CallKind kind = CallKind::kNone;
  const Plan* plan = nullptr;
  vcollRedOp_t op = vcollSum;
  RecordFields record;
  const uintptr_t* sources = nullptr;       // by local rank: address of plan offset 0
  const uintptr_t* destinations = nullptr;  // by local rank (window calls)
  const uintptr_t* ownByOwner = nullptr;    // by owner's rank: this rank's private destination (private calls)
  const uintptr_t* ownSources = nullptr;    // by owner's rank: this rank's private source (private ReduceScatterV)
  uint32_t window = 0;                      // where puts land, and
  uint64_t windowOffset = 0;                // plan offset 0 in it
  bool deferLeave = false;                  // the caller waits for waitUntilLeft before it reuses the sources
  const void* sendAddress = nullptr;        // this rank's private send buffer, which peers read directly (readsPeers())
};

class HostFabric {
 public:
  struct Options {
    int64_t timeoutMs = 0;
    bool check = false;
    std::string hostId;
  };

  // Collective over group, which must outlive the fabric.
  static Status open(Group& group, const Options& options, std::unique_ptr<HostFabric>* fabric);
  ~HostFabric();
  HostFabric(const HostFabric&) = delete;
  HostFabric& operator=(const HostFabric&) = delete;

  const Topology& topology() const { return *topology_; }
  const FlowLayout& flow() const { return flow_; }
  // Every rank of the communicator has a core of its own: the same answer on all ranks.
  bool roomy() const { return roomy_; }
  // Every rank may read the private memory of every other: one node, and the system allows it. The same on all ranks.
  bool readsPeers() const { return readsPeers_; }

  // Collective. fd holds the window's memory at fileOffset.
  Status addWindow(unsigned char* own, uint64_t bytes, int fd, uint64_t fileOffset, HostWindow** window);
  void removeWindow(HostWindow* window);
  // Window 0: this communicator's staging memory.
  const HostWindow& staging() const { return *windows_[0]; }

  // Turns non-zero when the communicator fails.
  const volatile int* cancelled() const { return &cancelled_; }

  // Ends the use of the wire in an orderly way; no call may follow.
  void closeWire();

  // Collective: connects this rank with the peers of the plan.
  Status connect(const Plan& plan);

  // Collective. On any failure the group is in error and its verdict is returned.
  Status run(const HostCall& call, uint64_t* sequence);
  // Waits until every local rank has left call `sequence`, which had one lane.
  Status waitUntilLeft(uint64_t sequence);

  // Counts the caller's collective calls, for texts: one call may take several sequence numbers.
  void beginCall() { ++callNumber_; }
  uint64_t calls() const { return callNumber_; }
  // A collective step that moves no data through run() takes a number of its own. It shows the local ranks what this
  // rank does, so that one that is elsewhere finds the disagreement at once.
  void beginControl(const RecordFields& fields) { publishRecord(++sequence_, fields); }
  void beginControl(CallKind kind) { beginControl(RecordFields(kind)); }

 private:
  friend class HostPort;
  Status runChecked(const HostCall& call);
  template <typename Machine>
  Status runLanes(const HostCall& call);
  void publishRecord(uint64_t sequence, const RecordFields& fields);
  bool signaturesAgree() const;
  Status checkRecords(const HostCall& call, bool settled);
  Status checkOverAllRanks(const HostCall& call);
  Status failure(const std::string& waiting);
  std::string describe(const HostCall& call, const kernels::Pending& pending) const;

  explicit HostFabric(Group& group) : group_(group) {}
  Status shareControl(uint64_t hostKey, const std::vector<uint64_t>& hostKeys, std::vector<UniqueFd>* fds);
  Status openWire();
  unsigned char* wireAddress(int rank) {
    return wireAddresses_.data() + static_cast<size_t>(rank) * VCOLL_WIRE_ADDRESS_BYTES;
  }
  void wakeLocalRanks();
  static void* resolve(void* context, uint32_t window, uint64_t offset, uint64_t bytes);
  static void signal(void* context, uint32_t counter, uint64_t add);
  static void lost(void* context, int peer, const char* why);
  static void wake(void* context);

  static constexpr uint32_t kRingWindow = UINT32_MAX;

  Group& group_;
  Options options_;
  std::unique_ptr<Topology> topology_;
  FlowLayout flow_;
  ControlLayout layout_;
  WaitPolicy policy_;
  bool roomy_ = false;
  bool readsPeers_ = false;
  std::vector<int> pids_;  // by local rank
  uint32_t local_ = 0;
  FdExchange exchange_;
  uint64_t exchangeRound_ = 0;
  Deadline openDeadline_ = Deadline::afterMs(0);

  UniqueFd controlFd_;
  std::vector<Mapping> controlMappings_;  // by local rank
  std::vector<ControlView> controls_;     // by local rank
  Mapping rings_;                         // in rings, then out rings
  std::vector<uint64_t> baseWords_;
  kernels::Bases bases_{};

  std::mutex windowsMutex_;  // resolve() against add/remove
  std::vector<std::unique_ptr<HostWindow>> windows_;
  uint32_t nextWindow_ = 0;

  const vcollWire_v1* wire_ = nullptr;
  vcollWireComm* wireComm_ = nullptr;
  vcollWireHost_v1 wireHost_{};
  std::vector<unsigned char> wireAddresses_;
  int cancelled_ = 0;                               // atomic by __atomic: the wire sees it through C
  std::atomic<ControlHeader*> ownHeader_{nullptr};  // for the progress thread, once mapped

  uint64_t sequence_ = 0;
  uint64_t callNumber_ = 0;
  std::vector<unsigned char> taskMemory_;   // tasks of the running call's lanes
  std::vector<const void*> reduceSources_;  // scratch of HostPort::reduce
  std::vector<const void*> reducePartials_;
};

}  // namespace vcoll
