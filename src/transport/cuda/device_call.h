// SPDX-License-Identifier: Apache-2.0
// One call as the kernels of the CUDA fabric see it: plain data, passed by value. All pointers are device addresses.
#pragma once

#include "kernels/pipeline.h"

namespace vcoll::cuda {

constexpr uint32_t kThreads = 256;  // of a block; a block is a lane
constexpr uint32_t kWarp = 32;
constexpr uint32_t kMovers = kThreads - kWarp;  // warp 0 is the leader's (device_port.cuh)
constexpr uint32_t kLaneCap = 16;

// What can be summed. vcollSum, and vcollAvg by a divisor at the last hop.
enum class Element : uint32_t { kFloat32, kFloat16, kBfloat16 };

// One window of every rank of the node, as this GPU addresses them. Bases are on 4096 bytes.
struct NodeWindow {
  char* const* bases;  // by local rank
  char* multicast;     // nullptr: no NVLS; the port stores to and loads from each rank
  uint64_t offset;     // of the call
};

// FlowLayout (topology/plan.h) for device code.
struct RingLayout {
  uint32_t idsPerPath;
  uint32_t slots;
  uint64_t starSlotBytes;
  uint64_t chainSlotBytes;

  VCOLL_HD uint64_t bytes() const { return uint64_t{slots} * idsPerPath * (starSlotBytes + chainSlotBytes); }
  VCOLL_HD uint64_t slotOffset(uint32_t id, uint64_t slot) const {
    const bool star = id < idsPerPath;
    const uint64_t start = star ? 0 : uint64_t{slots} * idsPerPath * starSlotBytes;
    return start + (uint64_t{star ? id : id - idsPerPath} * slots + slot) * (star ? starSlotBytes : chainSlotBytes);
  }
};

// How a lane ended. In host memory that the GPU writes.
struct LaneReport {
  enum State : uint32_t { kRunning, kDone, kAborted, kTimedOut };
  uint32_t state;
  kernels::Pending pending;  // of kTimedOut
};

struct DeviceCall {
  kernels::PlanView plan;
  kernels::Bases bases;
  void* tasks;  // laneCount * maxTasks of the machine's Task
  uint64_t sequence;

  NodeWindow source;
  NodeWindow destination;
  // Of each local rank, on that rank: [entered, left][kLaneCap][localCount of the sender]. One cell per source and
  // purpose.
  uint64_t* const* gates;

  char* rings;  // own in rings; out rings follow
  RingLayout ringLayout;

  Element element;
  bool partialsFp32;    // partial sums of 16-bit floats travel as fp32
  uint32_t avgDivisor;  // > 0: the last hop divides by it

  const uint32_t* abortFlag;  // host memory
  uint64_t budgetNs;
  LaneReport* reports;  // by lane
};

}  // namespace vcoll::cuda
