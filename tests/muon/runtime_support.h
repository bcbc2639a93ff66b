// SPDX-License-Identifier: Apache-2.0
// A toy trainer over vmuon.h with threads as ranks. Its gradients are multiples of 1/1024, so that sums over any number
// of ranks are exact and runs of different worlds, modes and lines can be compared bit for bit.
#pragma once

#include <vmuon/vmuon.h>
#include <functional>
#include <string>
#include <vector>

namespace vmuon_test {

struct Run {
  std::vector<int> nodes = {0};  // by rank
  vmuonConfig_t config = VMUON_CONFIG_INITIALIZER;
  vmuonGroup_t group = VMUON_GROUP_INITIALIZER;
  int steps = 3;
  int microBatches = 1;
  int firstStep = 0;  // gradients depend on the number of the step
  int32_t dtype = vcollBfloat16;
  std::string saveTo;                 // after the last step
  bool saveFails = false;             // it must, and the optimizer must go on: see Outcome::saveError
  std::string loadFrom;               // before the first
  bool reverseSecondForward = false;  // departs from the recorded order in the second step
  int skipLayer = -1;                 // its backward never runs
  int nanAtStep = -1;                 // one rank's gradient has a NaN
};

struct Outcome {
  std::string error;                         // of the first rank that had one
  std::string saveError;                     // of rank 0
  std::vector<float> masters;                // all parameters, by number, after the last step
  std::vector<vmuonStats_t> stats;           // by rank, of the last step
  std::vector<uint64_t> newtonSchulz;        // by step, over all ranks
  std::vector<std::vector<int32_t>> owners;  // by rank: of every parameter
};

// Trainable Newton-Schulz matrices of the toy model.
uint64_t toyMatrices();

Outcome train(const Run& run);

// Runs `body(rank, comm)` on a thread per rank; returns the first text that is not empty, with its rank.
std::string onRanks(const std::vector<int>& nodes, const std::function<std::string(int, vcollComm_t)>& body);

}  // namespace vmuon_test
