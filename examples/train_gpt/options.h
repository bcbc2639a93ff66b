// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vmuon/vmuon.h>

#include <cstdint>
#include <string>

#include "train_gpt/model.h"

namespace gpt {

struct Options {
  Shape shape;
  uint64_t steps = 100;
  size_t batch = 16;  // sequences of all ranks and micro-batches
  size_t microBatches = 1;
  uint64_t seed = 1;
  std::string data;

  vmuonConfig_t config = VMUON_CONFIG_INITIALIZER;
  vmuonGroup_t group = VMUON_GROUP_INITIALIZER;
  int dtype = vcollBfloat16;  // of the compute copies
  bool single = false;        // --line single

  std::string save;
  uint64_t saveEvery = 0;
  std::string load;
  std::string log;
  uint64_t evalEvery = 0;
  uint64_t printEvery = 10;
  bool table = false;

  std::string lineName;  // as given
};

enum class Parsed { kRun, kHelp, kError };

// text: the help, or one line that says what is wrong.
Parsed parseOptions(int argc, const char* const* argv, int ranks, Options* options, std::string* text);

}  // namespace gpt
