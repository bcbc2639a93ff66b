// SPDX-License-Identifier: Apache-2.0
// Every inline PTX instruction of the CUDA fabric, each wrapped once and named. Nothing else may hold inline PTX.
#pragma once

#include <stdint.h>

namespace vcoll::cuda::ptx {

// All threads of the block. Not the aligned form (__syncthreads): the leader arrives from another place than its warp.
__device__ __forceinline__ void barrier() { asm volatile("barrier.sync 0;" ::: "memory"); }

__device__ __forceinline__ void fenceSystem() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

__device__ __forceinline__ uint64_t loadAcquireSystem(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(__cvta_generic_to_global(from)) : "memory");
  return value;
}

__device__ __forceinline__ uint32_t loadRelaxedSystem(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(__cvta_generic_to_global(from)) : "memory");
  return value;
}

__device__ __forceinline__ void storeRelaxedSystem(uint64_t* to, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "l"(value) : "memory");
}

__device__ __forceinline__ void storeReleaseSystem(uint32_t* to, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "r"(value) : "memory");
}

__device__ __forceinline__ void storeReleaseSystem(uint64_t* to, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "l"(value) : "memory");
}

__device__ __forceinline__ void addReleaseSystem(uint64_t* to, uint64_t value) {
  asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "l"(value) : "memory");
}

__device__ __forceinline__ uint64_t globalTimerNs() {
  uint64_t value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value));
  return value;
}

// To the same place in the memory of every rank of the multicast group. A vector of floats here is 16 bytes of
// anything.
__device__ __forceinline__ void multimemStore(void* to, uint4 value) {
  asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
               "f"(__uint_as_float(value.x)), "f"(__uint_as_float(value.y)), "f"(__uint_as_float(value.z)),
               "f"(__uint_as_float(value.w))
               : "memory");
}

// The sum over the memory of every rank of the multicast group.
__device__ __forceinline__ uint4 multimemLoadSumFloat32(const void* from) {
  float4 sum;
  asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(sum.x), "=f"(sum.y), "=f"(sum.z), "=f"(sum.w)
               : "l"(__cvta_generic_to_global(from))
               : "memory");
  return make_uint4(__float_as_uint(sum.x), __float_as_uint(sum.y), __float_as_uint(sum.z), __float_as_uint(sum.w));
}

__device__ __forceinline__ uint4 multimemLoadSumFloat16(const void* from) {
  uint4 sum;
  asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 {%0, %1, %2, %3}, [%4];"
               : "=r"(sum.x), "=r"(sum.y), "=r"(sum.z), "=r"(sum.w)
               : "l"(__cvta_generic_to_global(from))
               : "memory");
  return sum;
}

__device__ __forceinline__ uint4 multimemLoadSumBfloat16(const void* from) {
  uint4 sum;
  asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2 {%0, %1, %2, %3}, [%4];"
               : "=r"(sum.x), "=r"(sum.y), "=r"(sum.z), "=r"(sum.w)
               : "l"(__cvta_generic_to_global(from))
               : "memory");
  return sum;
}

}  // namespace vcoll::cuda::ptx
