// SPDX-License-Identifier: Apache-2.0
// What users may do with a PublishStream, and when: steps, versions, leases, waits. The bytes travel in
// transport/host/publish_fabric.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "comm/stream.h"
#include "transport/host/publish_fabric.h"

namespace vcoll {

class Comm;
struct WindowHandle;

class PublishStream {
 public:
  PublishStream(Comm& comm, Group& group, const Topology& topology, std::unique_ptr<PublishFabric> fabric);
  // Waits until work on host streams has ended.
  ~PublishStream();
  PublishStream(const PublishStream&) = delete;
  PublishStream& operator=(const PublishStream&) = delete;

  Comm& comm() const { return comm_; }
  const WindowHandle* window = nullptr;

  Status begin(uint64_t step);
  Status push(uint64_t id, HostStream* stream);
  Status end(uint64_t step);
  Status wait(uint64_t id, uint64_t step, HostStream* stream);
  Status waitAll(uint64_t step, HostStream* stream);
  Status test(uint64_t id, uint64_t step, bool* ready);
  Status acquire(uint64_t id, uint64_t step, const void** pointer);
  Status release(uint64_t id, uint64_t step);
  Status address(uint64_t id, uint64_t step, void** pointer);
  Status getVersion(uint64_t id, uint64_t* step, const void** pointer);
  Status getLeader(uint64_t id, int node, int* rank);
  // Waits until the steps begun here are over; where this rank has not pushed all it owns the communicator fails, so
  // that nobody waits for it in vain.
  Status drain();
  // Where nothing is under way: peers will not take the end of this process for a loss.
  void goodbye();

 private:
  const std::vector<vcollPublishItem_t>& items() const { return fabric_->plan().items(); }
  uint32_t copies() const { return fabric_->plan().spec().copies; }
  uint32_t copyOf(uint64_t index) const { return static_cast<uint32_t>(index % copies()); }
  Status findItem(uint64_t id, uint32_t* item) const;
  Status findCopy(uint64_t id, uint32_t* item) const;     // of which this rank has a copy
  Status findStep(uint64_t step, uint64_t* index) const;  // with mutex_ held
  // Both, with mutex_ held.
  Status locate(uint64_t id, uint64_t step, uint32_t* item, uint64_t* index) const;
  Status missingPush() const;  // with mutex_ held
  Status waitFor(uint32_t item, uint64_t index, uint64_t step);
  template <typename Work>
  Status onStream(HostStream* stream, Work work);

  Comm& comm_;
  Group& group_;
  const Topology& topology_;
  const std::unique_ptr<PublishFabric> fabric_;

  std::mutex mutex_;  // the steps and the leases
  uint64_t numbers_[kernels::kStepsKept] = {};
  uint64_t begun_ = 0;
  bool inStep_ = false;
  std::vector<uint64_t> pushes_;     // by item: steps in which it was pushed
  std::vector<uint32_t> leases_;     // by item and copy
  std::atomic<uint64_t> queued_{0};  // work on host streams
};

}  // namespace vcoll
