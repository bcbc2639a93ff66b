// SPDX-License-Identifier: Apache-2.0
#include "perf/ceiling.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "perf/values.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define VCOLL_PERF_CLONES __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define VCOLL_PERF_CLONES
#endif

namespace vcoll::perf {
namespace {

VCOLL_PERF_CLONES uint64_t sumWords(const uint64_t* words, size_t n) {
  uint64_t sums[32] = {};
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    for (size_t lane = 0; lane < 32; ++lane) sums[lane] += words[i + lane];
  }
  uint64_t total = 0;
  for (uint64_t sum : sums) total += sum;
  for (; i < n; ++i) total += words[i];
  return total;
}

double now() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void touchOnce(const char* from, char* to, size_t bufferBytes, size_t bytes) {
  while (bytes > 0) {
    const size_t part = std::min(bytes, bufferBytes);
    if (to != nullptr) {
      std::memcpy(to, from, part);
    } else {
      volatile uint64_t sink = sumWords(reinterpret_cast<const uint64_t*>(from), part / sizeof(uint64_t));
      static_cast<void>(sink);
    }
    bytes -= part;
  }
}

struct Stamp {
  uint64_t host;
  double begin;
  double end;
};

// Clocks are only compared inside a machine.
uint64_t hostNumber() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  uint64_t hash = 1469598103934665603u;
  for (const char* c = name; *c != '\0'; ++c) hash = (hash ^ static_cast<unsigned char>(*c)) * 1099511628211u;
  return hash;
}

}  // namespace

double ceilingMicroseconds(const Member& member, const void* from, void* to, size_t bufferBytes, size_t bytes) {
  uint64_t most = 0;
  for (uint64_t value : member.gather(static_cast<uint64_t>(bytes))) most = std::max(most, value);
  if (most == 0) return 0;
  // Long enough that starting late does not matter.
  constexpr uint64_t kWork = uint64_t{256} << 20;
  const uint64_t rounds = std::clamp<uint64_t>(kWork / most, 2, 100000);
  double best = 0;
  for (int attempt = 0; attempt < 3; ++attempt) {
    member.barrier();
    Stamp stamp{hostNumber(), now(), 0};
    for (uint64_t i = 0; i < rounds; ++i) {
      touchOnce(static_cast<const char*>(from), static_cast<char*>(to), bufferBytes, bytes);
    }
    stamp.end = now();
    std::map<uint64_t, Stamp> hosts;
    for (const Stamp& s : member.gather(stamp)) {
      const auto [at, added] = hosts.try_emplace(s.host, s);
      if (added) continue;
      at->second.begin = std::min(at->second.begin, s.begin);
      at->second.end = std::max(at->second.end, s.end);
    }
    double slowest = 0;
    for (const auto& [host, s] : hosts) slowest = std::max(slowest, s.end - s.begin);
    const double each = slowest / static_cast<double>(rounds);
    best = attempt == 0 ? each : std::min(best, each);
  }
  return best;
}

}  // namespace vcoll::perf
