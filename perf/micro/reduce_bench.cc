// SPDX-License-Identifier: Apache-2.0
// Throughput of the reduction loops and copies of the host fabric on one core, beside this machine's limits.
//   reduce_bench [variant...]     default: all variants of this CPU
// "cached" repeats one set of 64 KiB chunks; "stream" walks through a pool far larger than that, to read from memory.
// GB/s of bytes read (copies: bytes copied).
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/types.h"
#include "transport/host/reduce.h"

namespace {

using namespace vcoll;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kPool = 512u << 20;
constexpr uint64_t kChunk = 64u << 10;
constexpr double kRoundSeconds = 0.001;

uint64_t sink;

// The best GB/s of many short timings (others may use the machine) of body(i), which handles `bytes` per call.
template <typename Body>
double measure(uint64_t bytes, Body body) {
  double best = 0;
  uint64_t i = 0;
  for (int round = 0; round < 40; ++round) {
    const auto start = Clock::now();
    uint64_t calls = 0;
    double seconds = 0;
    do {
      for (int batch = 0; batch < 4; ++batch) body(i++);
      calls += 4;
      seconds = std::chrono::duration<double>(Clock::now() - start).count();
    } while (seconds < kRoundSeconds);
    best = std::max(best, static_cast<double>(bytes * calls) / seconds / 1e9);
  }
  return best;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) uint64_t readAll(const char* from, uint64_t bytes) {
  using Wide = uint64_t __attribute__((vector_size(32)));
  Wide sum[8] = {};
  for (uint64_t at = 0; at + 256 <= bytes; at += 256) {
#pragma GCC unroll 8
    for (int u = 0; u < 8; ++u) sum[u] ^= *reinterpret_cast<const Wide*>(from + at + static_cast<uint64_t>(u) * 32);
  }
  for (int u = 1; u < 8; ++u) sum[0] ^= sum[u];
  return sum[0][0] ^ sum[0][1] ^ sum[0][2] ^ sum[0][3];
}
#else
uint64_t readAll(const char* from, uint64_t bytes) {
  uint64_t sum[8] = {};
  for (uint64_t at = 0; at + 64 <= bytes; at += 64) {
    for (uint64_t u = 0; u < 8; ++u) sum[u] ^= reinterpret_cast<const uint64_t*>(from + at)[u];
  }
  return sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}
#endif

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> names(argv + 1, argv + argc);
  if (names.empty()) names = {"baseline", "avx2", "avx512"};
  char* pool = static_cast<char*>(mmap(nullptr, kPool, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  char* out = static_cast<char*>(mmap(nullptr, kPool, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (pool == MAP_FAILED || out == MAP_FAILED) {
    perror("mmap");
    return 1;
  }
  // 1.0-ish values of every type; no denormals and no NaN.
  memset(pool, 0x3c, kPool);
  memset(out, 0, kPool);
  constexpr uint64_t kChunks = kPool / kChunk;

  printf("%-37s %10s %10s\n", "", "cached", "stream");
  for (const uint64_t parts : {2u, 4u, 8u}) {
    const auto limit = [&](uint64_t i) { sink += readAll(pool + (i % parts) * kChunk, kChunk); };
    printf("limit: read of %u chunks               %10.1f", static_cast<unsigned>(parts), measure(kChunk, limit));
    printf(" %10.1f\n", measure(kChunk, [&](uint64_t i) { sink += readAll(pool + (i % kChunks) * kChunk, kChunk); }));
  }
  for (const bool streaming : {false, true}) {
    const auto copy = [&](uint64_t i, uint64_t chunks) {
      const uint64_t at = i % chunks * kChunk;
      copyBytes(out + at, pool + at, kChunk, streaming);
    };
    printf("copy%-34s", streaming ? ", streaming" : "");
    printf(" %9.1f", measure(kChunk, [&](uint64_t i) { copy(i, 1); }));
    printf(" %10.1f\n", measure(kChunk, [&](uint64_t i) { copy(i, kChunks); }));
  }

  for (const std::string& name : names) {
    const ReduceFunctions* functions = reduceVariant(name.c_str());
    if (functions == nullptr) {
      printf("%s: not on this CPU\n", name.c_str());
      continue;
    }
    for (const vcollDataType_t type :
         {vcollFloat32, vcollBfloat16, vcollFloat16, vcollFloat64, vcollInt8, vcollInt32}) {
      for (const vcollRedOp_t op : {vcollSum, vcollMax, vcollAvg}) {
        for (const uint32_t n : {2u, 4u, 8u}) {
          const void* sources[8];
          ReduceJob job;
          job.type = type;
          job.op = op;
          job.sources = sources;
          job.nsources = n;
          job.elements = kChunk / typeInfo(type)->size;
          job.avgDivisor = n;
          const auto cached = [&](uint64_t) {
            for (uint32_t s = 0; s < n; ++s) sources[s] = pool + s * (kPool / 8);
            job.out = out;
            functions->reduce(job);
          };
          const auto stream = [&](uint64_t i) {
            const uint64_t at = i % (kChunks / n) * kChunk;
            for (uint32_t s = 0; s < n; ++s) sources[s] = pool + s * (kPool / n) + at;
            job.out = out + at;
            functions->reduce(job);
          };
          printf("%-8s %-8s %-4s %u sources        %10.1f", functions->name, typeInfo(type)->name, opName(op), n,
                 measure(kChunk * n, cached));
          printf(" %10.1f\n", measure(kChunk * n, stream));
        }
      }
    }
  }
  return sink == 1 ? 2 : 0;
}
