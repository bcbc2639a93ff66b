// SPDX-License-Identifier: Apache-2.0
// The way to other nodes when their memory can be stored to: all ranks of a small cluster on one GPU, or GPUs that
// share NVLink. The movers copy, the leader signals. Level of evidence: L0, compiled only. It has not run on any card.
#pragma once

#include "transport/cuda/device_call.h"
#include "transport/cuda/ptx.h"

namespace vcoll::cuda {

struct MemoryNet {
  static constexpr bool kStores = true;

  char* const* windows;       // by rank: the window that AllGatherV fills
  char* const* rings;         // by rank
  uint64_t* const* counters;  // by rank: [kCounterKinds][ids]
  uint32_t rank;
  uint32_t ids;

  __device__ uint64_t counter(kernels::Counter kind, uint32_t id) const {
    return ptx::loadAcquireSystem(counters[rank] + cell(kind, id));
  }
  // The release covers what this block's movers wrote: a barrier is between.
  __device__ void signal(uint32_t peer, kernels::Counter kind, uint32_t id) const {
    ptx::fenceSystem();
    ptx::addReleaseSystem(counters[peer] + cell(kind, id), 1);
  }
  __device__ bool ready(uint32_t, uint32_t) const { return true; }
  __device__ bool flushed(uint32_t) const { return true; }

 private:
  __device__ uint64_t cell(kernels::Counter kind, uint32_t id) const {
    return uint64_t{static_cast<uint32_t>(kind)} * ids + id;
  }
};

}  // namespace vcoll::cuda
