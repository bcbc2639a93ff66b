// SPDX-License-Identifier: Apache-2.0
// The way to other nodes by NCCL's GPU-initiated networking: counters are GIN signals, puts are RDMA writes with a
// signal. Defines VCOLL_CUDA_GIN if NCCL's headers are there and new enough (2.28.9 fixed put). ncclGin is another type
// in the host and the device pass: it must never be a template argument or a parameter. Level of evidence: L0, compiled
// only. It has not run on any card.
#pragma once

#if __has_include(<nccl_device.h>)
#include <nccl.h>
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 9)
#define VCOLL_CUDA_GIN 1
#endif
#endif

#ifdef VCOLL_CUDA_GIN
#include <nccl_device.h>

#include "transport/cuda/device_call.h"
#include "transport/cuda/ptx.h"

namespace vcoll::cuda {

// Strong: the order that puts on one context to one peer have always had.
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 5)
using GinSignal = ncclGin_StrongSignalInc;
using GinCounter = ncclGin_WeakCounterInc;
#else
using GinSignal = ncclGin_SignalInc;
using GinCounter = ncclGin_CounterInc;
#endif

// Puts of one lane to one peer, ever. Only that lane's leader touches it.
struct GinTraffic {
  uint64_t issued;
  uint64_t completed;  // as last seen
};

struct GinNet {
  static constexpr bool kStores = false;

  ncclDevComm comm;         // of the rail communicator
  ncclWindow_t arena;       // all registered memory; laid out alike on every rank
  uint64_t windowOffset;    // in the arena: the call's offset in the window that AllGatherV fills
  uint64_t ringOffset;      // in the arena: own in rings
  const uint32_t* netRank;  // rank of the rail communicator, by rank
  GinTraffic* traffic;      // [comm.nRanks][kLaneCap]; GIN counters have the same index
  uint32_t ids;
  uint32_t maxPuts;  // of a lane to a peer: fewer than the send queue takes, so that a put never waits for it

  __device__ uint64_t counter(kernels::Counter kind, uint32_t id) const {
    const ncclGin gin{comm, context(id)};
    return gin.readSignal(cell(kind, id));
  }
  __device__ void signal(uint32_t peer, kernels::Counter kind, uint32_t id) const {
    ptx::fenceSystem();
    const ncclGin gin{comm, context(id)};
    gin.signal(ncclTeamWorld(comm), static_cast<int>(netRank[peer]), GinSignal{cell(kind, id)});
  }

  __device__ bool ready(uint32_t lane, uint32_t peer) const {
    const uint32_t index = netRank[peer] * kLaneCap + lane;
    GinTraffic& puts = traffic[index];
    if (puts.issued - puts.completed >= maxPuts) puts.completed = completed(index);
    return puts.issued - puts.completed < maxPuts;
  }
  // Not ncclGin::flush: that waits without a bound.
  __device__ bool flushed(uint32_t lane) const {
    for (uint32_t peer = 0; peer < static_cast<uint32_t>(comm.nRanks); ++peer) {
      const uint32_t index = peer * kLaneCap + lane;
      GinTraffic& puts = traffic[index];
      if (puts.issued != puts.completed) puts.completed = completed(index);
      if (puts.issued != puts.completed) return false;
    }
    return true;
  }

  // Between arenas; then the peer's counter += 1.
  __device__ void put(uint32_t lane, uint32_t peer, uint64_t to, uint64_t from, uint64_t bytes, kernels::Counter kind,
                      uint32_t id) const {
    // The bytes may come from other threads of the block, or over NVLink.
    ptx::fenceSystem();
    const uint32_t index = netRank[peer] * kLaneCap + lane;
    ++traffic[index].issued;
    const ncclGin gin{comm, context(id)};
    gin.put(ncclTeamWorld(comm), static_cast<int>(netRank[peer]), arena, to, arena, from, bytes,
            GinSignal{cell(kind, id)}, GinCounter{index});
  }

 private:
  // Signals are memory of one context. A queue may be on another lane in the next plan, while its counters go on
  // growing: so the context follows from the counter, which both ends know, and not from the lane.
  __device__ int context(uint32_t id) const { return static_cast<int>(id % comm.ginContextCount); }
  __device__ uint32_t cell(kernels::Counter kind, uint32_t id) const { return static_cast<uint32_t>(kind) * ids + id; }
  __device__ uint64_t completed(uint32_t index) const {
    uint64_t sum = 0;
    for (uint32_t c = 0; c < comm.ginContextCount; ++c) {
      const ncclGin gin{comm, static_cast<int>(c)};
      sum += gin.readCounter(index);
    }
    return sum;
  }
};

}  // namespace vcoll::cuda
#endif  // VCOLL_CUDA_GIN
