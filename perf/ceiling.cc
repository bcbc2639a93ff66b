// SPDX-License-Identifier: Apache-2.0
#include "perf/ceiling.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
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

// CPU time, so that other work on the machine does not lower the limit.
double cpuMicroseconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
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

struct Share {
  uint64_t host;
  double slowest;  // us of the slowest rank
  double sum;      // us of all ranks of the host
};

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
    const double begin = cpuMicroseconds();
    for (uint64_t i = 0; i < rounds; ++i) {
      touchOnce(static_cast<const char*>(from), static_cast<char*>(to), bufferBytes, bytes);
    }
    const double mine = cpuMicroseconds() - begin;
    // Ranks share the cores of their host.
    const double cores = static_cast<double>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
    std::map<uint64_t, Share> hosts;
    double slowest = 0;
    for (const Share& s : member.gather(Share{hostNumber(), mine, mine})) {
      Share& host = hosts[s.host];
      host.slowest = std::max(host.slowest, s.slowest);
      host.sum += s.sum;
      slowest = std::max({slowest, host.slowest, host.sum / cores});
    }
    const double each = slowest / static_cast<double>(rounds);
    best = attempt == 0 ? each : std::min(best, each);
  }
  return best;
}

}  // namespace vcoll::perf
