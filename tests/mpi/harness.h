// SPDX-License-Identifier: Apache-2.0
// What the suites that mpirun starts share: who this rank is, cases, checks that count failures, communicators made
// with MPI as the messenger, and buffers that end at a protected page.
#pragma once

#include <fmt/core.h>
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "vcoll/vcoll.h"

namespace suite {

struct Options {
  std::string suite;
  std::string layout = "one";  // one, rrK (dealt round-robin over K nodes) or sizes of the nodes: 1,3
  uint64_t seed = 1;
  bool light = false;
};
extern Options options;
extern int worldRank;
extern int worldSize;

// fmt's syntax. Its implementation is compiled once, in harness.cc: including it everywhere triples the time of a
// build.
std::string sayArguments(fmt::string_view format, fmt::format_args arguments);
template <typename... Args>
std::string say(fmt::format_string<Args...> format, Args&&... args) {
  return sayArguments(format, fmt::make_format_args(args...));
}

// Counts a failure and prints it; the first ones of a rank only. Any thread.
void fail(const char* file, int line, const std::string& text);
// Ends the run: the other ranks may be in any call.
struct Abandon {};

#define EXPECT(condition, ...)                                                                                     \
  do {                                                                                                             \
    if (!(condition)) ::suite::fail(__FILE__, __LINE__, std::string(#condition ": ") + ::suite::say(__VA_ARGS__)); \
  } while (false)
// A vcoll call that must succeed for the case to go on.
#define MUST(call)                                                                                              \
  do {                                                                                                          \
    const vcollResult_t mustResult = (call);                                                                    \
    if (mustResult != vcollSuccess) {                                                                           \
      ::suite::fail(__FILE__, __LINE__,                                                                         \
                    say("{} gave {}: {}", #call, vcollGetErrorString(mustResult), vcollGetLastError(nullptr))); \
      throw ::suite::Abandon();                                                                                 \
    }                                                                                                           \
  } while (false)

// Runs a case on all ranks and prints one line about it.
void runCase(const char* name, const std::function<void()>& body);

// Node of a world rank as the layout says.
int nodeOfRank(int rank);
int nodesOfLayout();

// Seconds of a clock that all ranks of the machine share.
double now();
void sleepMs(int ms);
// CPU seconds that this process has used.
double cpuSeconds();

// [collective over MPI_COMM_WORLD]
vcollUniqueId sharedId();
struct CommOptions {
  int timeoutMs = 0;  // 0: the default
  const char* name = nullptr;
};
vcollComm_t makeComm(const CommOptions& commOptions = {});
// Owner of a communicator over all ranks.
class WorldComm {
 public:
  explicit WorldComm(const CommOptions& commOptions = {}) : comm_(makeComm(commOptions)) {}
  ~WorldComm() {
    const vcollResult_t result = vcollCommDestroy(comm_);
    EXPECT(result == vcollSuccess, "{}", vcollGetErrorString(result));
  }
  WorldComm(const WorldComm&) = delete;
  WorldComm& operator=(const WorldComm&) = delete;
  vcollComm_t get() const { return comm_; }

 private:
  vcollComm_t comm_;
};

// Every rank's text, on every rank. [collective over MPI_COMM_WORLD]
std::vector<std::string> gatherTexts(const std::string& mine);

// A buffer with guard bytes before it and `tail` guard bytes after it; then comes a page that may not be touched.
class GuardedBuffer {
 public:
  static constexpr size_t kLead = 64;
  static constexpr unsigned char kGuard = 0xA5;
  GuardedBuffer() = default;
  ~GuardedBuffer();
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;
  // All bytes become guard bytes.
  void reset(size_t bytes, size_t tail);
  unsigned char* data() const { return data_; }
  // Lead, buffer and tail as they are now.
  std::vector<unsigned char> image() const;
  // Compares with an image made before.
  void expectImage(const std::vector<unsigned char>& expected, const std::string& what) const;

 private:
  unsigned char* base_ = nullptr;
  size_t capacity_ = 0;
  unsigned char* data_ = nullptr;
  size_t used_ = 0;  // from lead to the protected page
};

// A small call of known result, to show that a communicator still works.
void expectUsable(vcollComm_t comm);

}  // namespace suite
