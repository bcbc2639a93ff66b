// SPDX-License-Identifier: Apache-2.0
// A publisher that dies, stops, dawdles or leaves in the middle of a version.
#include <signal.h>

#include <cstdlib>
#include <cstring>

#include "launch.h"

namespace launch {

namespace {

constexpr uint64_t kItems = 8;
constexpr uint64_t kItemBytes = 3u << 20;

// Rank 0 owns everything and publishes version after version in two copies; it dies, stops or does not push at some
// time; by then it may be two steps ahead of its readers. Every 64 bytes of a version hold its step.
class Publisher {
 public:
  explicit Publisher(vcollComm_t comm) : comm_(comm) {
    (void)vcollMemAlloc(&memory_, 2 * kItems * kItemBytes);
    (void)vcollWindowRegister(comm, memory_, 2 * kItems * kItemBytes, &window_);
    vcollPublishConfig_t config = VCOLL_PUBLISH_CONFIG_INITIALIZER;
    config.copies = 2;
    config.copyStride = kItems * kItemBytes;
    std::vector<vcollPublishItem_t> items;
    for (uint64_t i = 0; i < kItems; ++i) items.push_back({i, 0, 0, i * kItemBytes, kItemBytes});
    told("create", comm,
         [&] { return vcollPublishStreamCreate(comm, window_, items.data(), items.size(), &config, &stream_); });
  }
  vcollPublishStream_t get() const { return stream_; }
  void push(uint64_t item, uint64_t step) {
    void* at = nullptr;
    (void)vcollPublishStreamAddress(stream_, item, step, &at);
    for (uint64_t b = 0; b < kItemBytes; b += 64) std::memcpy(static_cast<char*>(at) + b, &step, sizeof step);
    (void)vcollPublishStreamPush(stream_, item, nullptr);
  }
  // The newest version of each item is whole; told as "newest" (of item 0) or "torn".
  void tellVersions() {
    for (uint64_t i = 0; i < kItems; ++i) {
      uint64_t step = 0;
      const void* at = nullptr;
      if (vcollPublishStreamGetVersion(stream_, i, &step, &at) != vcollSuccess || step == VCOLL_NO_STEP) {
        tell("torn", say("item {} has no version: {}", i, vcollGetLastError(nullptr)));
        continue;
      }
      for (uint64_t b = 0; b < kItemBytes; b += 64) {
        uint64_t word = 0;
        std::memcpy(&word, static_cast<const char*>(at) + b, sizeof word);
        if (word != step) {
          tell("torn", say("item {}: byte {} is of version {}, the item of {}", i, b, word, step));
          break;
        }
      }
      if (i == 0) tell("newest", static_cast<double>(step));
    }
  }
  void destroy() {
    told("publishDestroy", nullptr, [&] { return vcollPublishStreamDestroy(stream_); });
    (void)vcollWindowDeregister(comm_, window_);
    (void)vcollMemFree(memory_);
  }

 private:
  vcollComm_t comm_;
  void* memory_ = nullptr;
  vcollWindow_t window_ = nullptr;
  vcollPublishStream_t stream_ = nullptr;
};

void publishRank() {
  const char* fault = getenv("PUBLISH_FAULT");
  const vcollComm_t comm = initFromEnv();
  Publisher publisher(comm);
  vcollResult_t result = vcollSuccess;
  for (uint64_t step = 1; result == vcollSuccess && step < 10000; ++step) {
    result = told("begin", comm, [&] { return vcollPublishStreamBegin(publisher.get(), step); });
    if (result != vcollSuccess) break;
    if (rank == 0) {
      for (uint64_t i = 0; i < kItems; ++i) {
        if (step == 5 && i == 3 && fault != nullptr) {
          tell("killed", now());
          if (std::strcmp(fault, "kill") == 0) raise(SIGKILL);
          if (std::strcmp(fault, "stop") == 0) raise(SIGSTOP);
          if (std::strcmp(fault, "destroy") == 0) {
            publisher.destroy();
            destroyTold(comm);
            return;
          }
          sleepMs(3500);  // "lazy"
        }
        publisher.push(i, step);
      }
    } else {
      result = told("call", comm, [&] { return vcollPublishStreamWaitAll(publisher.get(), step, nullptr); });
    }
    (void)vcollPublishStreamEnd(publisher.get(), step);
  }
  if (rank != 0) publisher.tellVersions();
  publisher.destroy();
  destroyTold(comm);
}

void judgePublish(const char* fault, vcollResult_t result, double within, const std::vector<std::string>& words) {
  Job job("publish");
  job.mpirun(3, {{"VCOLL_TIMEOUT_MS", "2000"}, {"PUBLISH_FAULT", fault}}, {0, 1, 2});
  for (const int r : {1, 2}) CHECK(job.waitFor(r, "destroy.result", 30), "rank {} did not return", r);
  const auto pid = static_cast<pid_t>(job.verdict(0).number("pid"));
  if (std::strcmp(fault, "stop") == 0 && pid > 0) kill(pid, SIGKILL);
  (void)job.wait(30);
  const double killed = job.verdict(0).number("killed");
  CHECK(killed > 0, "rank 0 never came to its fault");
  for (const int r : {1, 2}) {
    const Verdict verdict = job.verdict(r);
    const std::string key = verdict.text("call.result") == vcollGetErrorString(vcollSuccess) ? "begin" : "call";
    expectFailure(verdict, key, result, killed, within, words);
    CHECK(verdict.text("torn").empty(), "rank {}: {}", r, verdict.text("torn"));
    CHECK(verdict.number("newest") >= 3, "rank {} has version {} of item 0", r, verdict.number("newest"));
    CHECK(verdict.text("publishDestroy.result") == vcollGetErrorString(vcollSuccess), "{}",
          verdict.text("publishDestroy.text"));
    expectDestroyed(verdict);
    std::printf("  rank %d, %.3f s after: %s\n", r, verdict.number(key + ".end") - killed,
                verdict.text(key + ".text").c_str());
  }
}
void publishKill() { judgePublish("kill", vcollRemoteError, 8, {"rank 0"}); }
void publishStop() { judgePublish("stop", vcollTimeout, 5, {"rank 0"}); }
void publishLazy() { judgePublish("lazy", vcollTimeout, 5, {"rank 0", "step 5"}); }
void publishDestroy() { judgePublish("destroy", vcollInvalidUsage, 2, {"item 3", "rank 0", "step 5"}); }

}  // namespace

const std::vector<Case>& publishCases() {
  static const auto* const cases = new std::vector<Case>{
      {"publish-kill", publishKill},
      {"publish-stop", publishStop},
      {"publish-lazy", publishLazy},
      {"publish-destroy", publishDestroy},
  };
  return *cases;
}

const std::vector<Role>& publishRoles() {
  static const auto* const roles = new std::vector<Role>{{"publish", publishRank}};
  return *roles;
}

}  // namespace launch
