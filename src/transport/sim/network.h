// SPDX-License-Identifier: Apache-2.0
// The simulated network: puts and signals between ranks, with random delays. The source of a put is read some time
// after it was posted, its bytes land in parts at different times, and its signal follows them. Order: see
// sim_options.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kernels/pipeline.h"
#include "transport/sim/scheduler.h"

namespace vcoll::sim {

class SimCluster;

// What to move and what to count then.
struct Post {
  enum Kind : uint32_t { kSignal, kPut, kPartial };
  Kind kind;
  kernels::Counter counter;
  uint32_t id;  // of the counter, at dst
  uint32_t src;
  uint32_t dst;
  uint32_t lane;
  uint32_t call;
  uint64_t bytes;
  uint32_t from;  // kPut: whose window is read
  uint32_t window;
  uint64_t offset;  // in the windows of from and dst
  uint32_t outId;   // kPartial: the out ring that is read
  uint32_t slot;
};

class Network {
 public:
  explicit Network(SimCluster& cluster);
  ~Network();

  void post(const Post& post);
  // The planted fault kDropSignal has struck.
  bool dropped() const { return dropped_; }

 private:
  struct Transfer;
  struct Stream {
    std::deque<Transfer*> queue;
    bool busy = false;
  };

  Transfer* take(const Post& post);
  Stream* streamOf(const Post& post);
  uint64_t delay();
  void fire(Transfer& transfer, uint32_t tag);
  void read(Transfer& transfer, uint64_t begin, uint64_t end);
  void wasRead(Transfer& transfer);
  void advance(Stream& stream);
  void deliver(Transfer& transfer, uint64_t begin, uint64_t end);
  void count(Transfer& transfer);
  void complete(Transfer& transfer);

  SimCluster& cluster_;
  std::unordered_map<uint64_t, std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<Transfer>> transfers_;
  std::vector<Transfer*> free_;
  bool dropped_ = false;
};

}  // namespace vcoll::sim
