// SPDX-License-Identifier: Apache-2.0
// A random cluster, random plans and a random series of calls from one seed; and the program that fills and checks the
// windows of every rank around each call.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "topology/plan.h"
#include "transport/sim/sim_cluster.h"

namespace vcoll::sim {

struct Scenario {
  SimOptions options;
  std::vector<uint64_t> nodeKeys;
  uint32_t slots = 2;
  uint64_t layoutChunkBytes = 1024;
  std::vector<PlanSpec> plans;
  std::vector<Call> calls;
  uint64_t windowBytes = 0;

  // Windows that hold every call, and some guard bytes.
  void fitWindows();
  std::string describe() const;
};

// The node of each rank: up to `most` ranks per node, even or not, in any order.
std::vector<uint64_t> makeNodeKeys(Rng& rng, uint64_t nodes, uint64_t most);

Scenario makeScenario(uint64_t seed);

struct Outcome {
  std::string failure;  // empty: all well
  bool deadlocked = false;
  bool faultStruck = false;
  uint64_t trace = 0;
  uint64_t events = 0;
};

Outcome runScenario(const Scenario& scenario);

// Data by position: the bytes of a rank in a call start somewhere in a fixed series of numbers.
class WindowUser final : public User {
 public:
  WindowUser(const Scenario& scenario, SimCluster& cluster);
  void prepare(uint32_t rank, uint32_t call) override;
  std::string returned(uint32_t rank, uint32_t call) override;

 private:
  struct Piece {
    uint64_t offset;
    uint64_t bytes;
    uint32_t owner;
  };
  std::string checkGather(uint32_t rank, uint32_t call);
  std::string checkReduce(uint32_t rank, uint32_t call);
  // The whole window as rank has it before the call, but for the segments it owns in an AllGatherV.
  const std::byte* guard(uint32_t rank, uint32_t call) const;
  const std::byte* data(uint32_t rank, uint32_t call) const;
  const std::vector<std::byte>& sums(uint32_t call);

  const Scenario& scenario_;
  SimCluster& cluster_;
  std::vector<std::vector<Piece>> pieces_;           // by plan, sorted by offset
  std::map<uint32_t, std::vector<std::byte>> sums_;  // by call, from the plan's offset 0
};

}  // namespace vcoll::sim
