// SPDX-License-Identifier: Apache-2.0
// What the perf programs and the quickstart share: one rank's communicator and memory, and timed blocks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "perf/collective.h"
#include "perf/options.h"
#include "perf/report.h"
#include "perf/world.h"

namespace vcoll::perf {

struct SessionConfig {
  int timeoutSeconds = 0;  // 0: the library's default
  int nodes = 0;           // > 1: pretend, in blocks of ranks
};

class Session {
 public:
  Session(const Member& member, const SessionConfig& config);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Member& member() const { return member_; }
  vcollComm_t comm() const { return comm_; }
  int nodes() const { return nodes_; }
  int rails() const { return rails_; }

  // Populated memory, freed with the session.
  Buffer allocPrivate(size_t bytes);
  // Likewise, and a window. [collective]
  Buffer allocWindow(size_t bytes);
  vcollPlan_t makePlan(const Layout& layout, const PerfType& type);
  // Ends all processes when a vcoll call failed.
  void require(vcollResult_t result, const char* what) const;
  std::vector<RankInfo> rankInfos() const;

 private:
  Member member_;
  vcollComm_t comm_ = nullptr;
  int nodes_ = 1;
  int rails_ = 1;
  std::vector<Buffer> private_;
  std::vector<Buffer> windows_;
};

struct TimingConfig {
  int iterations = 20;
  int aggregate = 1;
  int blocking = 0;
  int average = 3;
  bool cpuTime = false;
  bool processClock = true;  // CPU time of the process, else of the thread
};

// One contender of a measurement: calls are made in blocks, block by block in turn with the others.
struct Contender {
  std::function<void()> once;
  std::function<void()> finish;  // waits for what once started; may be empty
  std::vector<double> blockMedians;
  std::vector<double> iterations;  // us, all blocks
  double us() const { return median(blockMedians); }
};

// Every contender runs rounds blocks, after warmup calls in each; together they make at least config.iterations.
void runBlocks(const Member& member, const TimingConfig& config, int warmup, int rounds,
               std::vector<Contender>* contenders);

}  // namespace vcoll::perf
