// SPDX-License-Identifier: Apache-2.0
// launch_tests starts ranks itself, plainly or with mpirun, and judges from outside: each rank writes its verdict to a
// file of its own. Neither program uses MPI calls, so that a killed rank is vcoll's business only.
#pragma once

#include <fmt/core.h>
#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "vcoll/vcoll.h"

namespace launch {

// fmt's syntax; compiled once, in launch.cc.
std::string sayArguments(fmt::string_view format, fmt::format_args arguments);
template <typename... Args>
std::string say(fmt::format_string<Args...> format, Args&&... args) {
  return sayArguments(format, fmt::make_format_args(args...));
}

using Environment = std::vector<std::pair<std::string, std::string>>;

// ---- in a rank ----

extern int rank;
extern int ranks;

// Adds "key=value" to this rank's verdict file and flushes it.
void tell(const std::string& key, const std::string& value);
void tell(const std::string& key, double value);
// Runs a call and tells its result as KEY.result, KEY.text, KEY.start and KEY.end (seconds of a clock shared by all
// ranks).
vcollResult_t told(const std::string& key, vcollComm_t comm, const std::function<vcollResult_t()>& call);
// The communicator of the launcher's environment; told as "init".
vcollComm_t initFromEnv();
double now();
double cpuSeconds();
void sleepMs(int ms);
// One int from each rank; wrong data is told as "data".
vcollResult_t gather(vcollComm_t comm);
// The same with `bytes` from each rank.
vcollResult_t gatherMuch(vcollComm_t comm, size_t bytes);
vcollResult_t reduceMuch(vcollComm_t comm, size_t floats);
// Open descriptors of this process.
int openDescriptors();

// ---- in the judge ----

struct Verdict {
  bool exists = false;
  std::map<std::string, std::string> values;
  std::string text(const std::string& key) const;
  double number(const std::string& key) const;  // -1 if it is missing
};

// Counts a failure and prints it.
void fail(const char* file, int line, const std::string& text);
#define CHECK(condition, ...)                                                                                        \
  do {                                                                                                               \
    if (!(condition)) ::launch::fail(__FILE__, __LINE__, std::string(#condition ": ") + ::launch::say(__VA_ARGS__)); \
  } while (false)

// Ranks of one case.
class Job {
 public:
  // `role` names the rank function to run.
  explicit Job(std::string role);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // mpirun --enable-recovery; layout: node of each rank, empty for one node. Returns at once.
  void mpirun(int ranksOfJob, const Environment& environment, const std::vector<int>& layout = {});
  // One plain process. maxDescriptors > 0 limits its open files.
  void process(int rankOfJob, const Environment& environment, int maxDescriptors = 0);
  // Waits for everything started; kills what is left after `seconds`. Exit status of each, in order; -1: killed.
  std::vector<int> wait(double seconds);
  // Verdict of a rank as far as it is written.
  Verdict verdict(int rankOfJob) const;
  // Waits until a rank's verdict has the key. False after `seconds`.
  bool waitFor(int rankOfJob, const std::string& key, double seconds) const;

 private:
  std::string role_;
  std::string directory_;
  std::vector<pid_t> children_;
};

// What all survivors of a failure must have told under `key`.
void expectFailure(const Verdict& verdict, const std::string& key, vcollResult_t result, double since, double within,
                   const std::vector<std::string>& words);

// Destroys the communicator, told as "destroy"; and what such a rank must have told: no error, no wait, no wrong data.
void destroyTold(vcollComm_t comm);
void expectDestroyed(const Verdict& verdict);

// A port of 127.0.0.1 (or ::1) that was free a moment ago.
int freePort(bool ipv6 = false);

using RankFunction = void (*)();
using JudgeFunction = void (*)();
struct Case {
  const char* name;
  JudgeFunction judge;
};
struct Role {
  const char* name;
  RankFunction run;
};
const std::vector<Case>& faultCases();
const std::vector<Role>& faultRoles();
const std::vector<Case>& publishCases();
const std::vector<Role>& publishRoles();
const std::vector<Case>& startCases();
const std::vector<Role>& startRoles();

}  // namespace launch
