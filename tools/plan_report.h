// SPDX-License-Identifier: Apache-2.0
// What vmuon-plan says about a plan: as tables, as JSON, as a picture.
#pragma once

#include <string>
#include <vector>

#include "plan/assignment.h"
#include "plan/units.h"

namespace vmuon {

struct PlanRun {
  std::string model;
  std::string note;   // of the model
  std::string costs;  // where times come from
  std::string strategy;
  ParamRegistry params;
  UnitTable table;
  RankGrid grid;
  int nodes = 1;
  Assignment assignment;
};

struct Variant {
  std::string name;
  Assignment assignment;
};

void printPlan(const PlanRun& run, const std::vector<Variant>& variants, bool allRanks);
std::string planJson(const PlanRun& run);
// Runs plot_balance.py, which lies beside the program, on the JSON. Returns what went wrong.
std::string drawPlan(const std::string& json, const std::string& file);

// A list of parameters of one's own, as JSON; see vmuon-plan --help. Returns what is wrong.
std::string readShapes(const std::string& path, std::vector<ParamSpec>* specs);

}  // namespace vmuon
