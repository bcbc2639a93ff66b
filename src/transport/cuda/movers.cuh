// SPDX-License-Identifier: Apache-2.0
// What the movers of a block do for its leader: strided copies and sums in vectors of 16 bytes, heads and tails piece
// by piece to each rank. Level of evidence: L0, compiled only. It has not run on any card.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "transport/cuda/device_call.h"
#include "transport/cuda/ptx.h"

namespace vcoll::cuda {

// The leader's wish, in shared memory. Written by the leader before the barrier that starts the work.
struct Command {
  enum Kind : uint32_t { kEnd, kCopy, kDeliver, kReduce };
  Kind kind;
  uint32_t local;    // of kDeliver: the rank whose window holds the bytes
  uint64_t offset;   // of kDeliver and kReduce: from the call's offset
  uint64_t bytes;    // of kReduce: in the source type
  const char* from;  // of kCopy
  char* to;          // of kCopy and kReduce
  // Of kReduce:
  const kernels::Edge* partials;
  const uint64_t* partialBase;
  uint64_t index;
  uint32_t partialCount;
  uint32_t divisor;  // 0: none
  bool toFp32;
};

constexpr uint64_t kVectorBytes = 16;
constexpr uint32_t kCopyUnroll = 8;
constexpr uint32_t kReduceUnroll = 4;

__device__ __forceinline__ uint32_t misalignment(const void* at) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(at) % kVectorBytes);
}
__device__ __forceinline__ uint4 loadVector(const char* from) { return *reinterpret_cast<const uint4*>(from); }
__device__ __forceinline__ void storeVector(char* to, uint4 value) { *reinterpret_cast<uint4*>(to) = value; }

// Where the vectors of a range lie: after `head` bytes, `vectors` of them.
struct Split {
  uint64_t head;
  uint64_t vectors;
  uint64_t tail;  // start of the rest
};
__device__ __forceinline__ Split splitRange(const char* start, uint64_t bytes, bool hasVectors) {
  if (!hasVectors) return {bytes, 0, bytes};
  uint64_t head = (kVectorBytes - misalignment(start)) % kVectorBytes;
  if (head > bytes) head = bytes;
  const uint64_t vectors = (bytes - head) / kVectorBytes;
  return {head, vectors, head + vectors * kVectorBytes};
}

// store(position, vector), storeByte(position, byte).
template <typename Store, typename StoreByte>
__device__ __forceinline__ void moveBytes(const char* from, uint64_t bytes, bool hasVectors, uint32_t mover,
                                          const Store& store, const StoreByte& storeByte) {
  const Split split = splitRange(from, bytes, hasVectors);
  for (uint64_t i = mover; i < split.head; i += kMovers) storeByte(i, from[i]);
  uint64_t v = mover;
  for (; v + (kCopyUnroll - 1) * kMovers < split.vectors; v += kCopyUnroll * kMovers) {
    uint4 data[kCopyUnroll];
#pragma unroll
    for (uint32_t u = 0; u < kCopyUnroll; ++u) {
      data[u] = loadVector(from + split.head + (v + u * kMovers) * kVectorBytes);
    }
#pragma unroll
    for (uint32_t u = 0; u < kCopyUnroll; ++u) store(split.head + (v + u * kMovers) * kVectorBytes, data[u]);
  }
  for (; v < split.vectors; v += kMovers) {
    const uint64_t at = split.head + v * kVectorBytes;
    store(at, loadVector(from + at));
  }
  for (uint64_t i = split.tail + mover; i < bytes; i += kMovers) storeByte(i, from[i]);
}

__device__ __forceinline__ void copyRange(char* to, const char* from, uint64_t bytes, uint32_t mover) {
  moveBytes(
      from, bytes, misalignment(to) == misalignment(from), mover,
      [to](uint64_t at, uint4 value) { storeVector(to + at, value); },
      [to](uint64_t at, char value) { to[at] = value; });
}

// To every rank of the node. The multicast store writes the rank that holds the bytes too, with what it has already.
__device__ __forceinline__ void deliverRange(const DeviceCall& call, uint32_t local, uint64_t offset, uint64_t bytes,
                                             uint32_t mover) {
  const NodeWindow& to = call.destination;
  const uint32_t ranks = call.plan.localCount;
  const uint64_t start = to.offset + offset;
  const char* from = call.source.bases[local] + call.source.offset + offset;
  const bool hasVectors = start % kVectorBytes == misalignment(from);
  const auto storeByte = [&](uint64_t at, char value) {
    for (uint32_t r = 0; r < ranks; ++r) {
      if (r != local) to.bases[r][start + at] = value;
    }
  };
  if (to.multicast != nullptr) {
    char* all = to.multicast + start;
    moveBytes(
        from, bytes, hasVectors, mover, [all](uint64_t at, uint4 value) { ptx::multimemStore(all + at, value); },
        storeByte);
  } else {
    moveBytes(
        from, bytes, hasVectors, mover,
        [&](uint64_t at, uint4 value) {
          for (uint32_t r = 0; r < ranks; ++r) {
            if (r != local) storeVector(to.bases[r] + start + at, value);
          }
        },
        storeByte);
  }
}

// A type that can be summed: kLanes of it in a vector, unpacked to fp32.
struct Float32 {
  static constexpr uint32_t kBytes = 4;
  static constexpr uint32_t kLanes = 4;
  __device__ static uint4 loadSum(const char* from) { return ptx::multimemLoadSumFloat32(from); }
  __device__ static void unpack(uint4 v, float* to) {
    to[0] = __uint_as_float(v.x), to[1] = __uint_as_float(v.y);
    to[2] = __uint_as_float(v.z), to[3] = __uint_as_float(v.w);
  }
  __device__ static uint4 pack(const float* from) {
    return make_uint4(__float_as_uint(from[0]), __float_as_uint(from[1]), __float_as_uint(from[2]),
                      __float_as_uint(from[3]));
  }
  __device__ static float loadOne(const char* from) { return *reinterpret_cast<const float*>(from); }
  __device__ static void storeOne(char* to, float value) { *reinterpret_cast<float*>(to) = value; }
};

struct Float16 {
  static constexpr uint32_t kBytes = 2;
  static constexpr uint32_t kLanes = 8;
  __device__ static uint4 loadSum(const char* from) { return ptx::multimemLoadSumFloat16(from); }
  __device__ static void unpack(uint4 v, float* to) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[2 * i] = __half2float(__ushort_as_half(static_cast<unsigned short>(words[i])));
      to[2 * i + 1] = __half2float(__ushort_as_half(static_cast<unsigned short>(words[i] >> 16)));
    }
  }
  __device__ static uint4 pack(const float* from) {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = static_cast<uint32_t>(__half_as_ushort(__float2half_rn(from[2 * i]))) |
                 static_cast<uint32_t>(__half_as_ushort(__float2half_rn(from[2 * i + 1]))) << 16;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
  }
  __device__ static float loadOne(const char* from) { return __half2float(*reinterpret_cast<const __half*>(from)); }
  __device__ static void storeOne(char* to, float value) { *reinterpret_cast<__half*>(to) = __float2half_rn(value); }
};

struct Bfloat16 {
  static constexpr uint32_t kBytes = 2;
  static constexpr uint32_t kLanes = 8;
  __device__ static uint4 loadSum(const char* from) { return ptx::multimemLoadSumBfloat16(from); }
  __device__ static void unpack(uint4 v, float* to) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[2 * i] = __uint_as_float(words[i] << 16);
      to[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
  }
  __device__ static uint4 pack(const float* from) {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = static_cast<uint32_t>(__bfloat16_as_ushort(__float2bfloat16_rn(from[2 * i]))) |
                 static_cast<uint32_t>(__bfloat16_as_ushort(__float2bfloat16_rn(from[2 * i + 1]))) << 16;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
  }
  __device__ static float loadOne(const char* from) {
    return __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(from));
  }
  __device__ static void storeOne(char* to, float value) {
    *reinterpret_cast<__nv_bfloat16*>(to) = __float2bfloat16_rn(value);
  }
};

// Order: the ranks of the node, then the partial sums; with NVLS the switch sums the ranks and rounds 16-bit floats
// once.
template <typename Type>
class Reduction {
 public:
  __device__ Reduction(const DeviceCall& call, const Command& command)
      : call_(call), command_(command), start_(call.source.offset + command.offset) {}

  __device__ void run(uint32_t mover) const {
    // Elements are aligned to themselves and bases to pages. Ring slots start on a vector, so a head is only
    // possible where no slot takes part.
    const char* from = call_.source.bases[0] + start_;
    const bool hasVectors =
        misalignment(from) == misalignment(command_.to) && (misalignment(from) == 0 || command_.partialCount == 0);
    const Split split = splitRange(from, command_.bytes, hasVectors);
    for (uint64_t at = mover * Type::kBytes; at < split.head; at += kMovers * Type::kBytes) sumOne(at);
    uint64_t v = mover;
    for (; v + (kReduceUnroll - 1) * kMovers < split.vectors; v += kReduceUnroll * kMovers) {
      sumVectors<kReduceUnroll>(split.head + v * kVectorBytes);
    }
    for (; v < split.vectors; v += kMovers) sumVectors<1>(split.head + v * kVectorBytes);
    for (uint64_t at = split.tail + mover * Type::kBytes; at < command_.bytes; at += kMovers * Type::kBytes) sumOne(at);
  }

 private:
  static constexpr uint64_t kStride = kMovers * kVectorBytes;
  static constexpr bool kMayWiden = Type::kBytes == 2;

  __device__ const char* slotOf(uint32_t partial) const {
    const uint32_t id = command_.partials[partial].nearId;
    const uint64_t slot = (command_.partialBase[id] + command_.index) % call_.ringLayout.slots;
    return call_.rings + call_.ringLayout.slotOffset(id, slot);
  }

  template <uint32_t kCount>
  __device__ __forceinline__ void sumVectors(uint64_t at) const {
    float sums[kCount][Type::kLanes];
    uint4 data[kCount];
    if (call_.source.multicast != nullptr) {
#pragma unroll
      for (uint32_t u = 0; u < kCount; ++u) data[u] = Type::loadSum(call_.source.multicast + start_ + at + u * kStride);
#pragma unroll
      for (uint32_t u = 0; u < kCount; ++u) Type::unpack(data[u], sums[u]);
    } else {
      for (uint32_t rank = 0; rank < call_.plan.localCount; ++rank) {
        load<kCount>(call_.source.bases[rank] + start_ + at, data);
        if (rank == 0) {
#pragma unroll
          for (uint32_t u = 0; u < kCount; ++u) Type::unpack(data[u], sums[u]);
        } else {
          add<kCount>(data, sums);
        }
      }
    }
    for (uint32_t partial = 0; partial < command_.partialCount; ++partial) {
      const char* slot = slotOf(partial);
      if (kMayWiden && call_.partialsFp32) {
#pragma unroll
        for (uint32_t u = 0; u < kCount; ++u) addWide(slot + 2 * (at + u * kStride), sums[u]);
      } else {
        load<kCount>(slot + at, data);
        add<kCount>(data, sums);
      }
    }
    if (command_.divisor != 0) {
      const auto divisor = static_cast<float>(command_.divisor);
#pragma unroll
      for (uint32_t u = 0; u < kCount; ++u) {
#pragma unroll
        for (uint32_t i = 0; i < Type::kLanes; ++i) sums[u][i] = __fdiv_rn(sums[u][i], divisor);
      }
    }
#pragma unroll
    for (uint32_t u = 0; u < kCount; ++u) {
      if (kMayWiden && command_.toFp32) {
#pragma unroll
        for (uint32_t i = 0; i < Type::kLanes; i += Float32::kLanes) {
          storeVector(command_.to + 2 * (at + u * kStride) + i * Float32::kBytes, Float32::pack(sums[u] + i));
        }
      } else {
        storeVector(command_.to + at + u * kStride, Type::pack(sums[u]));
      }
    }
  }

  template <uint32_t kCount>
  __device__ __forceinline__ static void load(const char* from, uint4* data) {
#pragma unroll
    for (uint32_t u = 0; u < kCount; ++u) data[u] = loadVector(from + u * kStride);
  }
  template <uint32_t kCount>
  __device__ __forceinline__ static void add(const uint4* data, float (*sums)[Type::kLanes]) {
#pragma unroll
    for (uint32_t u = 0; u < kCount; ++u) {
      float values[Type::kLanes];
      Type::unpack(data[u], values);
#pragma unroll
      for (uint32_t i = 0; i < Type::kLanes; ++i) sums[u][i] += values[i];
    }
  }
  __device__ __forceinline__ static void addWide(const char* from, float* sums) {
#pragma unroll
    for (uint32_t i = 0; i < Type::kLanes; i += Float32::kLanes) {
      float values[Float32::kLanes];
      Float32::unpack(loadVector(from + i * Float32::kBytes), values);
#pragma unroll
      for (uint32_t j = 0; j < Float32::kLanes; ++j) sums[i + j] += values[j];
    }
  }

  __device__ __forceinline__ void sumOne(uint64_t at) const {
    float sum = Type::loadOne(call_.source.bases[0] + start_ + at);
    for (uint32_t rank = 1; rank < call_.plan.localCount; ++rank) {
      sum += Type::loadOne(call_.source.bases[rank] + start_ + at);
    }
    for (uint32_t partial = 0; partial < command_.partialCount; ++partial) {
      const char* slot = slotOf(partial);
      sum += kMayWiden && call_.partialsFp32 ? Float32::loadOne(slot + 2 * at) : Type::loadOne(slot + at);
    }
    if (command_.divisor != 0) sum = __fdiv_rn(sum, static_cast<float>(command_.divisor));
    if (kMayWiden && command_.toFp32) {
      Float32::storeOne(command_.to + 2 * at, sum);
    } else {
      Type::storeOne(command_.to + at, sum);
    }
  }

  const DeviceCall& call_;
  const Command& command_;
  uint64_t start_;
};

// The kinds a collective may ask for, so that its kernel holds no others.
enum class Work { kDelivers, kReduces };

template <Work kWork>
__device__ __forceinline__ void execute(const DeviceCall& call, const Command& command, uint32_t mover) {
  if (command.kind == Command::kCopy) return copyRange(command.to, command.from, command.bytes, mover);
  if constexpr (kWork == Work::kDelivers) {
    deliverRange(call, command.local, command.offset, command.bytes, mover);
  } else {
    switch (call.element) {
      case Element::kFloat32:
        return Reduction<Float32>(call, command).run(mover);
      case Element::kFloat16:
        return Reduction<Float16>(call, command).run(mover);
      case Element::kBfloat16:
        return Reduction<Bfloat16>(call, command).run(mover);
    }
  }
}

// All threads but the leader, until kEnd. run(mover) does what the command says.
template <typename Run>
__device__ __forceinline__ void serve(const Command& command, const Run& run) {
  for (;;) {
    ptx::barrier();
    if (command.kind == Command::kEnd) return;
    if (threadIdx.x >= kWarp) run(threadIdx.x - kWarp);
    ptx::barrier();
  }
}

}  // namespace vcoll::cuda
