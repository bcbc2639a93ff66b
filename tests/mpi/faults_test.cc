// SPDX-License-Identifier: Apache-2.0
// Ranks that die, stop, come late, never come, fork or leave without a word.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "launch.h"

namespace launch {

namespace {

const std::vector<int> kTwoByTwo = {0, 0, 1, 1};

// ---- killed ----

// The victim dies while nobody calls; the others notice, or learn of it in their next call.
void killIdleRank() {
  const vcollComm_t comm = initFromEnv();
  (void)gather(comm);
  if (rank == 2) {
    sleepMs(200);
    tell("killed", now());
    raise(SIGKILL);
  }
  vcollResult_t state = vcollSuccess;
  const double start = now();
  while (state == vcollSuccess && now() - start < 5) {
    (void)vcollCommGetAsyncError(comm, &state);
    sleepMs(2);
  }
  tell("noticed", now());
  told("call", comm, [&] { return gather(comm); });
  destroyTold(comm);
}

// The victim dies somewhere inside large calls.
void killBusyRank(bool reduces) {
  const vcollComm_t comm = initFromEnv();
  (void)gather(comm);
  std::thread killer;
  if (rank == 2) {
    killer = std::thread([] {
      sleepMs(300 + static_cast<int>(getpid() % 37));
      tell("killed", now());
      kill(getpid(), SIGKILL);
    });
  }
  vcollResult_t result = vcollSuccess;
  const double start = now();
  int calls = 0;
  while (result == vcollSuccess && now() - start < 15) {
    result = told("call", comm, [&] { return reduces ? reduceMuch(comm, 4u << 20) : gatherMuch(comm, 16u << 20); });
    ++calls;
  }
  tell("calls", calls);
  destroyTold(comm);
  if (killer.joinable()) killer.join();
}
void killGatherRank() { killBusyRank(false); }
void killReduceRank() { killBusyRank(true); }

void judgeKill(const char* role, const std::vector<int>& layout) {
  Job job(role);
  job.mpirun(4, {{"VCOLL_TIMEOUT_MS", "10000"}}, layout);
  (void)job.wait(40);
  const double killed = job.verdict(2).number("killed");
  CHECK(killed > 0, "rank 2 never died");
  for (const int r : {0, 1, 3}) {
    const Verdict verdict = job.verdict(r);
    // The sockets of a killed process close after its memory is gone, which takes a while on a busy machine.
    expectFailure(verdict, "call", vcollRemoteError, killed, 8, {"rank 2"});
    expectDestroyed(verdict);
    std::printf("  rank %d, %.3f s after the kill: %s\n", r, verdict.number("call.end") - killed,
                verdict.text("call.text").c_str());
    if (verdict.values.count("noticed") != 0) CHECK(verdict.number("noticed") - killed < 2, "noticed late");
  }
}
void killIdle() { judgeKill("kill-idle", {}); }
void killIdleNodes() { judgeKill("kill-idle", kTwoByTwo); }
void killGather() { judgeKill("kill-gather", {}); }
void killGatherNodes() { judgeKill("kill-gather", kTwoByTwo); }
void killReduce() { judgeKill("kill-reduce", {}); }
void killReduceNodes() { judgeKill("kill-reduce", kTwoByTwo); }

// ---- stopped, late, missing ----

// Rank 1 stops for good. The judge kills it once the others have told their verdicts.
void stopRank() {
  const vcollComm_t comm = initFromEnv();
  (void)gather(comm);
  if (rank == 1) raise(SIGSTOP);
  told("call", comm, [&] { return gather(comm); });
  destroyTold(comm);
}
void judgeStop(const std::vector<int>& layout) {
  Job job("stop");
  job.mpirun(3, {{"VCOLL_TIMEOUT_MS", "2000"}}, layout);
  for (const int r : {0, 2}) CHECK(job.waitFor(r, "destroy.result", 20), "rank {} did not return", r);
  const auto pid = static_cast<pid_t>(job.verdict(1).number("pid"));
  if (pid > 0) kill(pid, SIGKILL);
  (void)job.wait(20);
  for (const int r : {0, 2}) {
    const Verdict verdict = job.verdict(r);
    expectFailure(verdict, "call", vcollTimeout, verdict.number("call.start"), 3, {"rank 1", "AllGatherV", "call #2"});
    expectDestroyed(verdict);
    std::printf("  rank %d: %s\n", r, verdict.text("call.text").c_str());
  }
}
void stop() { judgeStop({}); }
void stopNodes() { judgeStop({0, 1, 1}); }

// Rank 1 comes two seconds late.
void lateRank() {
  const vcollComm_t comm = initFromEnv();
  (void)gather(comm);
  if (rank == 1) sleepMs(2000);
  told("call", comm, [&] { return gather(comm); });
  destroyTold(comm);
}
void late() {
  Job hasty("late");
  hasty.mpirun(2, {{"VCOLL_TIMEOUT_MS", "500"}});
  Job patient("late");
  patient.mpirun(2, {{"VCOLL_TIMEOUT_MS", "5000"}});
  (void)hasty.wait(20);
  (void)patient.wait(20);
  const Verdict verdict = hasty.verdict(0);
  expectFailure(verdict, "call", vcollTimeout, verdict.number("call.start"), 1.5, {"rank 1", "500 ms"});
  CHECK(verdict.number("call.end") - verdict.number("call.start") >= 0.5, "timed out early");
  expectFailure(hasty.verdict(1), "call", vcollTimeout, hasty.verdict(1).number("call.start"), 1, {"rank 1"});
  for (const int r : {0, 1}) {
    CHECK(patient.verdict(r).text("call.result") == vcollGetErrorString(vcollSuccess), "{}",
          patient.verdict(r).text("call.text"));
    expectDestroyed(patient.verdict(r));
    expectDestroyed(hasty.verdict(r));
  }
}

// Ranks 2 and, with RANKS_MISSING=2, 4 leave out call #17.
void missingRank() {
  const vcollComm_t comm = initFromEnv();
  for (int call = 1; call <= 16; ++call) (void)gather(comm);
  const char* missing = getenv("RANKS_MISSING");
  if (rank == 2 || (rank == 4 && missing != nullptr)) sleepMs(3500);
  told("call", comm, [&] { return gather(comm); });
  destroyTold(comm);
}
void missing() {
  Job one("missing");
  one.mpirun(3, {{"VCOLL_TIMEOUT_MS", "1500"}});
  (void)one.wait(20);
  for (const int r : {0, 1}) {
    const Verdict verdict = one.verdict(r);
    expectFailure(verdict, "call", vcollTimeout, verdict.number("call.start"), 2.5,
                  {"call #17", "AllGatherV", "rank 2", "last seen in call #16"});
    std::printf("  rank %d: %s\n", r, verdict.text("call.text").c_str());
  }
  Job two("missing");
  two.mpirun(5, {{"VCOLL_TIMEOUT_MS", "1500"}, {"RANKS_MISSING", "2"}});
  (void)two.wait(20);
  for (const int r : {0, 1, 3}) {
    const Verdict verdict = two.verdict(r);
    expectFailure(verdict, "call", vcollTimeout, verdict.number("call.start"), 2.5, {"call #17"});
    const std::string text = verdict.text("call.text");
    CHECK(text.find("waited for ranks 2, 4 to enter the call") != std::string::npos, "{}", text);
    std::printf("  rank %d: %s\n", r, text.c_str());
  }
}

// ---- left in good order ----

// One rank destroys its communicator and ends; the others call once more, the first of them before it has gone.
void leaveRank() {
  const vcollComm_t comm = initFromEnv();
  for (int i = 0; i < 4; ++i) (void)gather(comm);
  (void)reduceMuch(comm, 50000);
  if (rank == std::atoi(getenv("LEAVER"))) {
    sleepMs(300);
    tell("left", now());
    destroyTold(comm);
    return;
  }
  sleepMs(rank * 100);
  const std::string what = getenv("CALL");
  told("call", comm, [&] {
    if (what == "new shape") return gatherMuch(comm, 200000);
    return what == "gather" ? gather(comm) : reduceMuch(comm, 50000);
  });
  destroyTold(comm);
}
void judgeLeave(int leaver, int size, const std::vector<int>& layout, const char* call) {
  Job job("leave");
  job.mpirun(size, {{"VCOLL_TIMEOUT_MS", "20000"}, {"LEAVER", std::to_string(leaver)}, {"CALL", call}}, layout);
  (void)job.wait(60);
  const double left = job.verdict(leaver).number("left");
  CHECK(left > 0, "rank {} never left", leaver);
  for (int r = 0; r < size; ++r) {
    const Verdict verdict = job.verdict(r);
    if (r != leaver) {
      expectFailure(verdict, "call", vcollRemoteError, std::max(left, verdict.number("call.start")), 1,
                    {say("rank {} has left the communicator", leaver)});
    }
    expectDestroyed(verdict);
  }
  const Verdict last = job.verdict(size - 1);
  std::printf("  rank %d, %.3f s: %s\n", size - 1, last.number("call.end") - std::max(left, last.number("call.start")),
              last.text("call.text").c_str());
}
void leave() {
  judgeLeave(2, 5, {}, "gather");
  judgeLeave(0, 4, {}, "reduce");
  judgeLeave(1, 4, {}, "new shape");
}
// Rank 1 has children in the tree of the control network, which fall off with it.
void leaveNodes() {
  judgeLeave(1, 8, {0, 0, 0, 0, 1, 1, 1, 1}, "gather");
  judgeLeave(6, 8, {0, 0, 0, 0, 1, 1, 1, 1}, "reduce");
}

// Ranks that are done leave long before others have begun the last call, in which they have no part but their data.
void stragglerRank() {
  const vcollComm_t comm = initFromEnv();
  (void)gather(comm);
  if (rank == ranks - 1) sleepMs(1500);
  std::vector<size_t> counts(static_cast<size_t>(ranks), 0);
  counts[1] = 100000;
  std::vector<unsigned char> data(counts[1], 7);
  told("call", comm, [&] {
    return vcollAllGatherV(data.data(), counts[static_cast<size_t>(rank)], data.data(), counts.data(), nullptr,
                           vcollUint8, comm, nullptr);
  });
  vcollResult_t state = vcollSuccess;
  if (rank == 0) sleepMs(1500);
  (void)vcollCommGetAsyncError(comm, &state);
  tell("state", vcollGetErrorString(state));
  destroyTold(comm);
}
void judgeStraggler(const std::vector<int>& layout) {
  Job job("straggler");
  job.mpirun(4, {{"VCOLL_TIMEOUT_MS", "20000"}}, layout);
  (void)job.wait(40);
  for (int r = 0; r < 4; ++r) {
    const Verdict verdict = job.verdict(r);
    for (const char* key : {"call.result", "state"}) {
      CHECK(verdict.text(key) == vcollGetErrorString(vcollSuccess), "rank {} {}: \"{}\" {}", r, key, verdict.text(key),
            verdict.text("call.text"));
    }
    expectDestroyed(verdict);
  }
}
void straggler() {
  judgeStraggler({});
  judgeStraggler(kTwoByTwo);
}

// Rank 2 never joins.
void absentRank() {
  if (rank == 2) {
    sleepMs(4000);
    return;
  }
  vcollComm_t comm = nullptr;
  told("call", nullptr, [&] { return vcollCommInitFromEnv(&comm); });
}
void absent() {
  Job job("absent");
  job.mpirun(3, {{"VCOLL_TIMEOUT_MS", "1500"}});
  (void)job.wait(20);
  for (const int r : {0, 1}) {
    const Verdict verdict = job.verdict(r);
    expectFailure(verdict, "call", vcollTimeout, verdict.number("call.start"), 2.5, {});
    std::printf("  rank %d: %s\n", r, verdict.text("call.text").c_str());
  }
  CHECK(job.verdict(0).text("call.text").find("rank 2") != std::string::npos ||
            job.verdict(0).text("call.text").find("2") != std::string::npos,
        "{}", job.verdict(0).text("call.text"));
}

// ---- waiting is cheap ----

void waitRank() {
  const vcollComm_t comm = initFromEnv();
  for (int i = 0; i < 3; ++i) (void)gather(comm);
  if (rank == ranks - 1) sleepMs(3000);
  const double before = cpuSeconds();
  told("call", comm, [&] { return gather(comm); });
  tell("cpu", cpuSeconds() - before);
  destroyTold(comm);
}
void judgeWait(const std::vector<int>& layout) {
  Job job("wait");
  job.mpirun(8, {}, layout);
  (void)job.wait(40);
  double total = 0;
  for (int r = 0; r < 8; ++r) {
    const Verdict verdict = job.verdict(r);
    CHECK(verdict.text("call.result") == vcollGetErrorString(vcollSuccess), "rank {}: {}", r,
          verdict.text("call.text"));
    if (r < 7) total += verdict.number("cpu");
  }
  std::printf("  7 waiters for a rank 3 s late used %.4f CPU-s\n", total);
  CHECK(total < 0.5, "{} CPU-s", total);
}
void waiting() { judgeWait({}); }
void waitingNodes() { judgeWait({0, 0, 0, 0, 1, 1, 1, 1}); }

// ---- exit and fork ----

void exitRank() {
  const vcollComm_t comm = initFromEnv();
  vcollStream_t stream = nullptr;
  (void)vcollHostStreamCreate(&stream);
  void* memory = nullptr;
  vcollWindow_t window = nullptr;
  (void)vcollMemAlloc(&memory, 10000);
  (void)vcollWindowRegister(comm, memory, 10000, &window);
  told("call", comm, [&] { return gather(comm); });
  std::exit(0);
}
void judgeExit(const std::vector<int>& layout) {
  Job job("exit");
  job.mpirun(2, {}, layout);
  const std::vector<int> codes = job.wait(20);
  CHECK(codes[0] == 0, "mpirun ended with {}", codes[0]);
  for (const int r : {0, 1})
    CHECK(job.verdict(r).text("call.result") == "success" ||
              job.verdict(r).text("call.result") == vcollGetErrorString(vcollSuccess),
          "{}", job.verdict(r).text("call.text"));
}
void exitWithoutDestroy() {
  judgeExit({});
  judgeExit({0, 1});
}

void forkRank() {
  const vcollComm_t comm = initFromEnv();
  void* memory = nullptr;
  vcollWindow_t window = nullptr;
  (void)vcollMemAlloc(&memory, 100000);
  (void)vcollWindowRegister(comm, memory, 100000, &window);
  told("before", comm, [&] { return gather(comm); });
  const pid_t child = fork();
  if (child == 0) {
    // Private pages may be touched; vcoll may not be called.
    std::vector<char> own(1 << 20, 1);
    int size = 0;
    vcollUniqueId id;
    vcollStream_t stream = nullptr;
    const bool right =
        vcollCommCount(comm, &size) == vcollInvalidUsage && vcollGetUniqueId(&id) == vcollInvalidUsage &&
        vcollCommAbort(comm) == vcollInvalidUsage && vcollHostStreamCreate(&stream) == vcollInvalidUsage &&
        vcollCommDestroy(comm) == vcollInvalidUsage && std::strstr(vcollGetLastError(nullptr), "fork") != nullptr;
    std::exit(right ? 42 : 1);  // with atexit handlers
  }
  int status = 0;
  waitpid(child, &status, 0);
  tell("child", WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status));
  for (int i = 0; i < 10; ++i) told("call", comm, [&] { return gather(comm); });
  destroyTold(comm);
}
void forked() {
  for (const std::vector<int>& layout : {std::vector<int>{}, std::vector<int>{0, 1}}) {
    Job job("fork");
    job.mpirun(2, {}, layout);
    (void)job.wait(20);
    for (const int r : {0, 1}) {
      const Verdict verdict = job.verdict(r);
      CHECK(verdict.number("child") == 42, "the child ended with {}", verdict.number("child"));
      CHECK(verdict.text("call.result") == vcollGetErrorString(vcollSuccess), "{}", verdict.text("call.text"));
      expectDestroyed(verdict);
    }
  }
}

}  // namespace

const std::vector<Case>& faultCases() {
  static const auto* const cases = new std::vector<Case>{
      {"kill-idle", killIdle},
      {"kill-idle-nodes", killIdleNodes},
      {"kill-gather", killGather},
      {"kill-gather-nodes", killGatherNodes},
      {"kill-reduce", killReduce},
      {"kill-reduce-nodes", killReduceNodes},
      {"stop", stop},
      {"stop-nodes", stopNodes},
      {"late", late},
      {"missing", missing},
      {"absent", absent},
      {"leave", leave},
      {"leave-nodes", leaveNodes},
      {"straggler", straggler},
      {"waiting", waiting},
      {"waiting-nodes", waitingNodes},
      {"exit", exitWithoutDestroy},
      {"fork", forked},
  };
  return *cases;
}

const std::vector<Role>& faultRoles() {
  static const auto* const roles = new std::vector<Role>{
      {"kill-idle", killIdleRank},
      {"kill-gather", killGatherRank},
      {"kill-reduce", killReduceRank},
      {"stop", stopRank},
      {"late", lateRank},
      {"missing", missingRank},
      {"absent", absentRank},
      {"leave", leaveRank},
      {"straggler", stragglerRank},
      {"wait", waitRank},
      {"exit", exitRank},
      {"fork", forkRank},
  };
  return *roles;
}

}  // namespace launch
