// SPDX-License-Identifier: Apache-2.0
#include "perf/session.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace vcoll::perf {
namespace {

ExitCode exitCodeOf(vcollResult_t result) {
  if (result == vcollTimeout) return kExitTimeout;
  if (result == vcollUnsupported) return kExitUnsupported;
  if (result == vcollInvalidUsage || result == vcollInvalidArgument) return kExitInvalidUsage;
  return kExitLibrary;
}

double nowMicroseconds(const TimingConfig& config) {
  timespec t{};
  clock_gettime(!config.cpuTime       ? CLOCK_MONOTONIC
                : config.processClock ? CLOCK_PROCESS_CPUTIME_ID
                                      : CLOCK_THREAD_CPUTIME_ID,
                &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

void runBlock(const Member& member, const TimingConfig& config, int iterations, Contender* contender) {
  std::vector<double> times(static_cast<size_t>(iterations));
  member.barrier();
  for (double& time : times) {
    if (config.blocking != 2) member.barrier();
    const double begin = nowMicroseconds(config);
    for (int m = 0; m < config.aggregate; ++m) {
      if (config.blocking == 1 && m > 0) member.barrier();
      contender->once();
    }
    if (contender->finish) contender->finish();
    time = (nowMicroseconds(config) - begin) / config.aggregate;
  }
  const std::vector<double> all = member.gather(times);
  const std::vector<double> iterationTimes = overRanks(all, static_cast<size_t>(member.ranks()), config.average);
  contender->blockMedians.push_back(median(iterationTimes));
  contender->iterations.insert(contender->iterations.end(), iterationTimes.begin(), iterationTimes.end());
}

}  // namespace

Session::Session(const Member& member, const SessionConfig& config) : member_(member) {
  vcollUniqueId id{};
  if (member_.first()) require(vcollGetUniqueId(&id), "vcollGetUniqueId");
  id = member_.gather(id).front();
  const std::string hostId =
      config.nodes > 1 ? fmt::format("perf-node-{}", member_.rank() * config.nodes / member_.ranks()) : "";
  vcollConfig_t vcollConfig = VCOLL_CONFIG_INITIALIZER;
  if (config.timeoutSeconds > 0) vcollConfig.timeoutMs = config.timeoutSeconds * 1000;
  if (!hostId.empty()) vcollConfig.hostId = hostId.c_str();
  vcollConfig.name = "perf";
  require(vcollCommInitRankConfig(&comm_, member_.ranks(), id, member_.rank(), &vcollConfig),
          "vcollCommInitRankConfig");
  require(vcollCommNodeCount(comm_, &nodes_), "vcollCommNodeCount");
  require(vcollCommRailCount(comm_, &rails_), "vcollCommRailCount");
}

Session::~Session() {
  for (const Buffer& buffer : windows_) vcollWindowDeregister(comm_, buffer.window);
  for (const Buffer& buffer : windows_) vcollMemFree(buffer.data);
  vcollCommDestroy(comm_);
  for (const Buffer& buffer : private_) munmap(buffer.data, buffer.bytes);
}

Buffer Session::allocPrivate(size_t bytes) {
  // Populated at once: page by page it costs ten times more, and a first touch must not be in a measurement.
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (data == MAP_FAILED) {
    member_.world().fail(kExitInternal, fmt::format("{} bytes of memory: {}", bytes, std::strerror(errno)));
  }
  private_.push_back({static_cast<char*>(data), bytes, nullptr});
  return private_.back();
}

Buffer Session::allocWindow(size_t bytes) {
  void* data = nullptr;
  Buffer buffer;
  require(vcollMemAlloc(&data, bytes), "vcollMemAlloc");
  require(vcollWindowRegister(comm_, data, bytes, &buffer.window), "vcollWindowRegister");
  buffer.data = static_cast<char*>(data);
  buffer.bytes = bytes;
  windows_.push_back(buffer);
  return buffer;
}

vcollPlan_t Session::makePlan(const Layout& layout, const PerfType& type) {
  std::vector<vcollSegment_t> segments;
  for (const LayoutSegment& s : layout.segments) {
    segments.push_back({s.owner, 0, s.offset * type.size, s.count * type.size});
  }
  vcollPlan_t plan = nullptr;
  require(vcollPlanCreate(comm_, segments.data(), segments.size(), type.type, nullptr, &plan), "vcollPlanCreate");
  return plan;
}

void Session::require(vcollResult_t result, const char* what) const {
  if (result == vcollSuccess) return;
  member_.world().fail(exitCodeOf(result), fmt::format("rank {}: {}: {}: {}", member_.rank(), what,
                                                       vcollGetErrorString(result), vcollGetLastError(comm_)));
}

std::vector<RankInfo> Session::rankInfos() const {
  RankInfo info{};
  info.rank = member_.rank();
  info.pid = getpid();
  info.cpu = sched_getcpu();
  int local = 0;
  require(vcollCommRankNode(comm_, info.rank, &info.node, &local), "vcollCommRankNode");
  gethostname(info.host, sizeof(info.host) - 1);
  return member_.gather(info);
}

void runBlocks(const Member& member, const TimingConfig& config, int warmup, int rounds,
               std::vector<Contender>* contenders) {
  const int each = (config.iterations + rounds - 1) / rounds;
  for (int round = 0; round < rounds; ++round) {
    for (Contender& contender : *contenders) {
      for (int i = 0; i < warmup; ++i) contender.once();
      if (contender.finish) contender.finish();
      runBlock(member, config, each, &contender);
    }
  }
}

}  // namespace vcoll::perf
