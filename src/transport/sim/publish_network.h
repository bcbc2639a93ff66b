// SPDX-License-Identifier: Apache-2.0
// The simulated network of a PublishStream: headers, chunks and signals between lanes, with random delays. The source
// of a put is read some time after it was posted, its bytes land in parts at different times, and it is counted after
// them. What a rank had under way when it died stops anywhere, in the middle of a put too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kernels/publish.h"
#include "transport/sim/scheduler.h"

namespace vcoll::sim {

class PublishCluster;

// What to move and what to count then.
struct PublishPost {
  enum Kind : uint32_t { kSignal, kHeader, kPut };
  Kind kind;
  kernels::PublishCounter counter;
  uint32_t id;  // of the counter, at dst
  uint32_t src;
  uint32_t dst;
  uint32_t rail;
  uint64_t place;   // kHeader
  uint32_t item;    // kPut with bytes: index in the plan
  uint32_t copy;    // kPut
  uint64_t offset;  // kPut: in the windows of both
  uint64_t bytes;
  uint32_t helper;  // 0: the lane itself
};

class PublishNetwork {
 public:
  explicit PublishNetwork(PublishCluster& cluster);
  ~PublishNetwork();

  void post(const PublishPost& post);
  // The planted fault kDropSignal has struck.
  bool dropped() const { return dropped_; }

 private:
  struct Transfer;
  struct Stream {
    std::deque<Transfer*> queue;
    bool busy = false;  // for ever once it was cut by a death
  };

  Transfer* take(const PublishPost& post);
  Stream* streamOf(const PublishPost& post);
  uint64_t delay();
  void fire(Transfer& transfer, uint32_t tag);
  bool cut(const Transfer& transfer, uint32_t tag);
  void read(Transfer& transfer, uint64_t begin, uint64_t end);
  void wasRead(Transfer& transfer);
  void advance(Stream& stream);
  void deliver(Transfer& transfer, uint64_t begin, uint64_t end);
  void count(Transfer& transfer);
  void complete(Transfer& transfer);

  PublishCluster& cluster_;
  std::unordered_map<uint64_t, std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<Transfer>> transfers_;
  std::vector<Transfer*> free_;
  uint64_t posts_ = 0;
  bool dropped_ = false;
};

}  // namespace vcoll::sim
