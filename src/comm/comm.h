// SPDX-License-Identifier: Apache-2.0
// A communicator: its life, its errors, and the order of its calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "bootstrap/group.h"
#include "comm/private_shape.h"
#include "comm/publish_stream.h"
#include "comm/stream.h"
#include "transport/host/host_fabric.h"

namespace vcoll {

class Comm;

// What a vcollPlan_t points to.
struct PlanHandle {
  Comm* comm = nullptr;
  std::unique_ptr<Plan> plan;
};

// What a vcollWindow_t points to.
struct WindowHandle {
  Comm* comm = nullptr;
  HostWindow* window = nullptr;
  void* pointer = nullptr;
  uint64_t bytes = 0;
};

class Comm {
 public:
  struct Config {
    int64_t timeoutMs = 0;
    bool check = false;
    std::string name;
    std::string hostId;
  };

  static Status init(int nranks, const vcollUniqueId& id, int rank, const Config& config, Comm** comm);
  static Status initFromEnv(const Config& config, Comm** comm);
  // color < 0: *comm = nullptr.
  Status split(int color, int key, const Config& config, Comm** comm);
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }
  const Topology& topology() const { return fabric_->topology(); }
  const Config& config() const { return config_; }

  Status finalize();
  void abort();
  // Says goodbye to the peers where nothing is running: at exit without Destroy they must not take this rank for lost.
  void goodbye();
  // Success, or the error this communicator is in. Never waits for the verdict.
  Status asyncError() const;

  Status registerWindow(void* pointer, size_t bytes, WindowHandle** window);
  // Not while a PublishStream uses it.
  Status deregisterWindow(WindowHandle* window);
  bool isPublishing(const WindowHandle* window) const;
  Status createPlan(PlanSpec spec, PlanHandle** plan);
  Status destroyPlan(PlanHandle* plan);
  // Live ones, for the registry of handles when the communicator ends.
  const std::list<std::unique_ptr<PlanHandle>>& plans() const { return plans_; }
  const std::list<std::unique_ptr<WindowHandle>>& windows() const { return windows_; }

  // listed: checked one by one. spec: all but its items.
  Status createPublishStream(const WindowHandle& window, std::vector<vcollPublishItem_t> listed,
                             const PublishSpec& spec, bool verify, PublishStream** stream);
  Status destroyPublishStream(PublishStream* stream);
  const std::list<std::unique_ptr<PublishStream>>& publishStreams() const { return publishStreams_; }
  // An error with the communicator's name.
  Status withName(const Status& error) const;

  // Arguments are checked; stream may be nullptr.
  Status planAllGatherV(const PlanHandle& plan, const WindowHandle& window, uint64_t offset, HostStream* stream);
  Status planReduceScatterV(const PlanHandle& plan, const WindowHandle& source, uint64_t sourceOffset,
                            const WindowHandle& destination, uint64_t destinationOffset, vcollRedOp_t op,
                            HostStream* stream);
  Status allGatherV(const void* send, void* recv, const size_t* counts, const size_t* displacements,
                    vcollDataType_t type, HostStream* stream);
  Status reduceScatterV(const void* send, void* recv, const size_t* counts, vcollDataType_t type, vcollRedOp_t op,
                        HostStream* stream);

 private:
  explicit Comm(Config config) : config_(std::move(config)) {}
  static Status make(std::unique_ptr<Group> group, const Config& config, Comm** comm);

  // Calls of one communicator run in the order in which they were made, whatever streams they are on.
  enum CallNeeds { kHealthy, kEvenInError };
  template <typename Work>
  Status submit(HostStream* stream, Work work, CallNeeds needs = kHealthy);
  template <typename Work>
  Status inTurn(uint64_t ticket, Work& work, CallNeeds needs);

  Status agree(CallKind kind, uint64_t digest, const std::vector<uint64_t>& table,
               const std::function<std::string(size_t)>& nameOfWord);
  Status shapeFor(CallKind kind, vcollDataType_t type, vcollRedOp_t op, const std::vector<size_t>& counts,
                  PrivateShape** shape);
  Status runPlan(const Plan& plan, HostCall* call);
  Status runPrivateAllGatherV(const unsigned char* send, unsigned char* recv, const std::vector<size_t>& counts,
                              const std::vector<uint64_t>& displacementBytes, vcollDataType_t type);
  Status runPrivateReduceScatterV(const unsigned char* send, unsigned char* recv, const std::vector<size_t>& counts,
                                  vcollDataType_t type, vcollRedOp_t op);
  Status runDirectAllGatherV(const PrivateShape& shape, const unsigned char* send, unsigned char* recv,
                             const std::vector<uint64_t>& displacementBytes);
  // AllGatherV of larger calls within one node: one copy straight from the sender's private memory.
  bool isDirect(CallKind kind, uint64_t totalBytes) const;
  Status useHalf(uint64_t* offset);
  Deadline deadline() const { return Deadline::afterMs(config_.timeoutMs); }

  Config config_;
  std::unique_ptr<Group> group_;
  std::unique_ptr<HostFabric> fabric_;  // ends before the group
  bool finalized_ = false;

  std::atomic<uint64_t> nextTicket_{0};
  std::atomic<uint64_t> served_{0};

  std::list<std::unique_ptr<PlanHandle>> plans_;
  std::list<std::unique_ptr<WindowHandle>> windows_;
  std::list<std::unique_ptr<PublishStream>> publishStreams_;
  uint64_t publishSerial_ = 0;
  std::vector<std::unique_ptr<PrivateShape>> shapes_;
  uint64_t shapeClock_ = 0;

  // Staging memory is used in two halves by turns, so that a round need not wait for the end of the one before.
  uint64_t halfTurn_ = 0;
  uint64_t lastUseOfHalf_[2] = {0, 0};
  std::vector<uintptr_t> sources_;       // scratch of the running call, by local rank
  std::vector<uintptr_t> destinations_;  // by local rank
  std::vector<uintptr_t> ownByOwner_;    // by rank
  std::vector<uintptr_t> ownSources_;    // by rank
};

}  // namespace vcoll
