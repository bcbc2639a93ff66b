// SPDX-License-Identifier: Apache-2.0
// How a communicator comes up: launchers' variables, address families, ports, strangers, limits of the machine.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "launch.h"

namespace launch {

namespace {

const std::string kSuccess = vcollGetErrorString(vcollSuccess);

// ---- three plain processes ----

void plainRank() {
  const char* delay = getenv("START_DELAY_MS");
  if (delay != nullptr) sleepMs(std::atoi(delay));
  const vcollComm_t comm = initFromEnv();
  int nodes = 0;
  (void)vcollCommNodeCount(comm, &nodes);
  tell("nodes", nodes);
  tell("size", ranks);
  for (int i = 0; i < 3; ++i) told("call", comm, [&] { return gather(comm); });
  told("large", comm, [&] { return gatherMuch(comm, 300001); });
  told("destroy", nullptr, [&] { return vcollCommDestroy(comm); });
}

Environment torchrun(int rankOfJob, int size, int port, const std::string& host = "127.0.0.1") {
  return {{"RANK", std::to_string(rankOfJob)},
          {"WORLD_SIZE", std::to_string(size)},
          {"MASTER_ADDR", host},
          {"MASTER_PORT", std::to_string(port)},
          {"VCOLL_TIMEOUT_MS", "10000"}};
}

void expectWorld(Job* job, int size, int nodes) {
  for (const int code : job->wait(30)) CHECK(code == 0, "a process ended with {}", code);
  for (int r = 0; r < size; ++r) {
    const Verdict verdict = job->verdict(r);
    for (const char* key : {"init", "call", "large", "destroy"}) {
      CHECK(verdict.text(std::string(key) + ".result") == kSuccess, "rank {} {}: \"{}\" {}", r, key,
            verdict.text(std::string(key) + ".result"), verdict.text(std::string(key) + ".text"));
    }
    CHECK(static_cast<int>(verdict.number("size")) == size, "{} ranks", verdict.number("size"));
    CHECK(static_cast<int>(verdict.number("nodes")) == nodes, "{} nodes", verdict.number("nodes"));
    CHECK(verdict.text("data").empty(), "{}", verdict.text("data"));
  }
}

void launchers() {
  {
    Job job("plain");
    const int port = freePort();
    for (int r = 0; r < 3; ++r) job.process(r, torchrun(r, 3, port));
    expectWorld(&job, 3, 1);
  }
  {
    Job job("plain");
    for (int r = 0; r < 3; ++r) {
      job.process(r, {{"SLURM_PROCID", std::to_string(r)},
                      {"SLURM_NTASKS", "3"},
                      {"SLURM_STEP_NODELIST", "localhost"},
                      {"SLURM_JOB_ID", std::to_string(getpid())},
                      {"SLURM_STEP_ID", "0"}});
    }
    expectWorld(&job, 3, 1);
  }
  {
    Job job("plain");
    const std::string address = "127.0.0.1:" + std::to_string(freePort());
    for (int r = 0; r < 3; ++r) {
      job.process(r, {{"PMIX_RANK", std::to_string(r)}, {"PMIX_SIZE", "3"}, {"VCOLL_COMM_ID", address}});
    }
    expectWorld(&job, 3, 1);
  }
  {
    Job job("plain");
    job.mpirun(3, {}, {0, 1, 1});
    expectWorld(&job, 3, 2);
  }
  {
    Job job("plain");  // no launcher: a world of one
    job.process(0, {});
    expectWorld(&job, 1, 1);
  }
}

void ipv6() {
  const int port = freePort(true);
  if (port == 0) {
    std::printf("  skipped: this machine has no ::1\n");
    return;
  }
  for (const bool twoNodes : {false, true}) {
    Job job("plain");
    for (int r = 0; r < 3; ++r) {
      Environment environment = torchrun(r, 3, port, "::1");
      environment.emplace_back("VCOLL_SOCKET_FAMILY", "AF_INET6");
      environment.emplace_back("VCOLL_SOCKET_IFNAME", "lo");
      if (twoNodes) environment.emplace_back("VCOLL_HOSTID", r == 0 ? "a" : "b");
      job.process(r, environment);
    }
    expectWorld(&job, 3, twoNodes ? 2 : 1);
  }
}

// Whoever listens may come later than the others.
void lateRoot() {
  Job job("plain");
  const int port = freePort();
  for (int r = 0; r < 16; ++r) {
    Environment environment = torchrun(r, 16, port);
    if (r == 0) environment.emplace_back("START_DELAY_MS", "2000");
    job.process(r, environment);
  }
  expectWorld(&job, 16, 1);
}

// ---- wrong starts ----

void loneRank() {
  vcollComm_t comm = nullptr;
  told("env", nullptr, [&] { return vcollCommInitFromEnv(&comm); });
  vcollUniqueId id;
  (void)vcollGetUniqueId(&id);
  told("rank", nullptr, [&] { return vcollCommInitRank(&comm, 1, id, 0); });
  const char* stay = getenv("START_STAY_MS");
  if (stay != nullptr) sleepMs(std::atoi(stay));
}

// The launcher says that it started four ranks, but this one is alone.
void singletons() {
  for (const Environment& environment :
       {Environment{{"OMPI_COMM_WORLD_SIZE", "4"}}, Environment{{"OMPI_COMM_WORLD_SIZE", "4"},
                                                                {"OMPI_COMM_WORLD_RANK", "1"},
                                                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                                                {"PMIX_NAMESPACE", "x"},
                                                                {"VCOLL_TIMEOUT_MS", "700"}}}) {
    Job job("lone");
    job.process(0, environment);
    (void)job.wait(20);
    const Verdict verdict = job.verdict(0);
    CHECK(!verdict.text("env.text").empty(), "alone among four was no error");
    expectFailure(verdict, "rank", vcollInvalidUsage, verdict.number("rank.start"), 1, {"4"});
    std::printf("  %s\n  %s\n", verdict.text("env.text").c_str(), verdict.text("rank.text").c_str());
  }
}

void wrongSize() {
  Job job("lone");
  const int port = freePort();
  for (int r = 0; r < 3; ++r) {
    Environment environment = torchrun(r, r == 2 ? 4 : 3, port);
    environment.emplace_back("START_STAY_MS", "1500");  // rank 0 is there to tell who comes last
    environment.emplace_back("VCOLL_TIMEOUT_MS", "3000");
    job.process(r, environment);
  }
  (void)job.wait(20);
  for (int r = 0; r < 3; ++r) {
    const Verdict verdict = job.verdict(r);
    expectFailure(verdict, "env", vcollMismatch, verdict.number("env.start"), 4, {"3", "4"});
  }
  std::printf("  %s\n", job.verdict(0).text("env.text").c_str());
}

// ---- a rank that comes too late ----

// Tries again until it is in a world, as elastic launchers do, then works for a while.
void againRank() {
  const char* delay = getenv("START_DELAY_MS");
  if (delay != nullptr) sleepMs(std::atoi(delay));
  vcollComm_t comm = nullptr;
  for (const char* key : {"init", "again", "again"}) {
    told(key, nullptr, [&] { return vcollCommInitFromEnv(&comm); });
    if (comm != nullptr) break;
  }
  if (comm == nullptr) return;
  (void)vcollCommCount(comm, &ranks);
  (void)vcollCommUserRank(comm, &rank);
  const char* stay = getenv("START_STAY_MS");
  const double end = now() + (stay == nullptr ? 0 : std::atoi(stay) / 1e3);
  // The same number of calls on every rank.
  int more = 1;
  vcollResult_t result = vcollSuccess;
  while (more > 0 && result == vcollSuccess) {
    result = told("call", comm, [&] { return gather(comm); });
    const size_t counts[] = {1, 0, 0};
    if (rank == 0) more = now() < end;
    if (result == vcollSuccess) {
      result = vcollAllGatherV(&more, counts[rank], &more, counts, nullptr, vcollInt32, comm, nullptr);
    }
    sleepMs(5);
  }
  told("destroy", nullptr, [&] { return vcollCommDestroy(comm); });
}

void expectWorks(const Job& job, int rankOfJob) {
  const Verdict verdict = job.verdict(rankOfJob);
  for (const char* key : {"call", "destroy"}) {
    CHECK(verdict.text(std::string(key) + ".result") == kSuccess, "rank {} {}: \"{}\" {}", rankOfJob, key,
          verdict.text(std::string(key) + ".result"), verdict.text(std::string(key) + ".text"));
  }
  CHECK(verdict.text("data").empty(), "{}", verdict.text("data"));
}

void lateJoiner() {
  const auto environment = [](int r, int size, int port, int timeoutMs, int delayMs, int stayMs) {
    Environment all = torchrun(r, size, port);
    all.back().second = std::to_string(timeoutMs);
    all.emplace_back("START_DELAY_MS", std::to_string(delayMs));
    all.emplace_back("START_STAY_MS", std::to_string(stayMs));
    return all;
  };
  {  // The others have given up once and try again: the late rank is in the next world.
    Job job("again");
    const int port = freePort();
    for (int r = 0; r < 3; ++r) job.process(r, environment(r, 3, port, 3000, r == 2 ? 3700 : 0, 0));
    (void)job.wait(30);
    for (const int r : {0, 1}) {
      const Verdict verdict = job.verdict(r);
      expectFailure(verdict, "init", vcollTimeout, verdict.number("init.start"), 4, {"still missing rank 2 of 3"});
    }
    for (int r = 0; r < 3; ++r) expectWorks(job, r);
  }
  {  // The others have given up for good, and a smaller world works at the same address.
    const int port = freePort();
    Job first("lone");
    for (int r = 0; r < 2; ++r) first.process(r, environment(r, 3, port, 800, 0, 0));
    (void)first.wait(20);
    for (int r = 0; r < 2; ++r) {
      const Verdict verdict = first.verdict(r);
      expectFailure(verdict, "env", vcollTimeout, verdict.number("env.start"), 1.8, {"still missing rank 2 of 3"});
    }
    Job smaller("again");
    for (int r = 0; r < 2; ++r) smaller.process(r, environment(r, 2, port, 10000, 0, 3500));
    for (int r = 0; r < 2; ++r) CHECK(smaller.waitFor(r, "call.result", 10), "rank {} did not come up", r);
    Job late("lone");
    late.process(2, environment(2, 3, port, 1500, 0, 0));
    (void)late.wait(20);
    const Verdict verdict = late.verdict(2);
    expectFailure(verdict, "env", vcollTimeout, verdict.number("env.start"), 2.5, {say("127.0.0.1:{}", port)});
    std::printf("  %s\n", verdict.text("env.text").c_str());
    CHECK(smaller.verdict(0).values.count("destroy.result") == 0, "the smaller world ended before the late rank came");
    (void)smaller.wait(20);
    for (int r = 0; r < 2; ++r) expectWorks(smaller, r);
  }
}

// Somebody else has the port.
void takenPort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 && listen(fd, 1) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  CHECK(bound, "cannot listen");
  Job job("lone");
  const int port = ntohs(address.sin_port);
  Environment environment = torchrun(0, 2, port);
  environment.emplace_back("VCOLL_TIMEOUT_MS", "2000");
  job.process(0, environment);
  (void)job.wait(20);
  const Verdict verdict = job.verdict(0);
  const std::string where = say("127.0.0.1:{}", port);
  CHECK(verdict.text("env.result") != kSuccess, "listened at a taken port");
  for (const std::string& word : {where, std::string(std::strerror(EADDRINUSE))}) {
    CHECK(verdict.text("env.text").find(word) != std::string::npos, "\"{}\" does not say {}", verdict.text("env.text"),
          word);
  }
  CHECK(verdict.number("env.end") - verdict.number("env.start") < 3, "slow");
  std::printf("  %s\n", verdict.text("env.text").c_str());
  close(fd);
}

// ---- strangers ----

int connectTo(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

// Connections that are not ours come before, between and after the ranks.
void strangers() {
  Job job("plain");
  const int port = freePort();
  job.process(0, torchrun(0, 3, port));
  std::vector<int> open;
  const double end = now() + 10;
  while (now() < end && open.size() < 40) {
    const int fd = connectTo(port);
    if (fd < 0) {
      sleepMs(5);
      continue;
    }
    static constexpr char kWeb[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    std::vector<char> noise(8192, '\xff');
    const size_t kind = open.size() % 5;
    if (kind == 1) (void)send(fd, kWeb, sizeof kWeb - 1, MSG_NOSIGNAL);
    if (kind == 2) (void)send(fd, noise.data(), noise.size(), MSG_NOSIGNAL);
    if (kind == 3) (void)send(fd, noise.data(), 3, MSG_NOSIGNAL);
    if (kind == 4) shutdown(fd, SHUT_RDWR);
    open.push_back(fd);
    if (open.size() == 15) job.process(1, torchrun(1, 3, port));
    if (open.size() == 30) job.process(2, torchrun(2, 3, port));
  }
  CHECK(open.size() == 40, "only {} strangers reached the port", open.size());
  if (open.size() < 40) return;
  expectWorld(&job, 3, 1);
  for (const int fd : open) close(fd);
}

// ---- the machine ----

void initOnlyRank() {
  const int before = openDescriptors();
  const double start = now();
  const double cpu = cpuSeconds();
  const vcollComm_t comm = initFromEnv();
  tell("seconds", now() - start);
  tell("cpu", cpuSeconds() - cpu);
  tell("fds", openDescriptors() - before);
  told("call", comm, [&] { return gather(comm); });
  told("destroy", nullptr, [&] { return vcollCommDestroy(comm); });
}

void manyRanks() {
  constexpr int kRanks = 32;
  Job job("init-only");
  const int port = freePort();
  for (int r = 0; r < kRanks; ++r) {
    Environment environment = torchrun(r, kRanks, port);
    environment.emplace_back("VCOLL_TIMEOUT_MS", "30000");
    environment.emplace_back("VCOLL_HOSTID", say("node{}", r / 8));
    job.process(r, environment);
  }
  (void)job.wait(50);
  double slowest = 0;
  double cpu = 0;
  double most = 0;
  for (int r = 0; r < kRanks; ++r) {
    const Verdict verdict = job.verdict(r);
    CHECK(verdict.text("call.result") == kSuccess, "rank {}: {} {}", r, verdict.text("init.text"),
          verdict.text("call.text"));
    slowest = std::max(slowest, verdict.number("seconds"));
    cpu += verdict.number("cpu");
    most = std::max(most, verdict.number("fds"));
  }
  std::printf("  %d ranks on 4 nodes: init %.2f s, %.3f CPU-s in all, at most %.0f descriptors a rank\n", kRanks,
              slowest, cpu, most);
  CHECK(most <= 16, "{} descriptors before the first collective", most);
}

// Eight ranks with 64 descriptors each come up; with far too few they say what ran out.
void fewDescriptors() {
  for (const int limit : {64, 7}) {
    Job job("init-only");
    const int port = freePort();
    for (int r = 0; r < 8; ++r) job.process(r, torchrun(r, 8, port), limit);
    (void)job.wait(40);
    for (int r = 0; r < 8; ++r) {
      const Verdict verdict = job.verdict(r);
      const std::string text = verdict.text("init.text") + verdict.text("call.text");
      if (limit == 64) {
        CHECK(verdict.text("call.result") == kSuccess, "rank {}: {}", r, text);
      } else {
        CHECK(text.find(std::strerror(EMFILE)) != std::string::npos, "rank {}: \"{}\"", r, text);
      }
      if (r == 0) std::printf("  limit %d: %s\n", limit, text.empty() ? "came up" : text.c_str());
    }
  }
}

// ---- affinity ----

std::string maskOf(const std::string& status) {
  std::ifstream file(status);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("Cpus_allowed:", 0) == 0) return line.substr(line.find_first_not_of(" \t", 13));
  }
  return "";
}

void affinityRank() {
  // One core, so that a change would show.
  cpu_set_t all;
  sched_getaffinity(0, sizeof all, &all);
  int core = 0;
  while (core < CPU_SETSIZE && !CPU_ISSET(core, &all)) ++core;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  sched_setaffinity(0, sizeof one, &one);
  const std::string before = maskOf("/proc/self/status");
  const auto compare = [&](const char* when) {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      const std::string mask = maskOf(task.path().string() + "/status");
      if (mask == before) continue;
      std::ifstream name(task.path().string() + "/comm");
      std::string thread;
      std::getline(name, thread);
      tell("changed", say("{}: thread {} has {}, not {}", when, thread, mask, before));
    }
  };
  const vcollComm_t comm = initFromEnv();
  compare("init");
  vcollStream_t stream = nullptr;
  (void)vcollHostStreamCreate(&stream);
  compare("stream");
  told("call", comm, [&] { return gatherMuch(comm, 1 << 20); });
  compare("AllGatherV");
  told("reduce", comm, [&] { return reduceMuch(comm, 1 << 18); });
  compare("ReduceScatterV");
  (void)vcollHostStreamDestroy(stream);
  (void)vcollCommDestroy(comm);
  compare("destroy");
  tell("threads", static_cast<double>(std::distance(std::filesystem::directory_iterator("/proc/self/task"), {})));
}

void affinity() {
  Job job("affinity");
  job.mpirun(2, {}, {0, 1});
  (void)job.wait(30);
  for (const int r : {0, 1}) {
    const Verdict verdict = job.verdict(r);
    CHECK(verdict.text("reduce.result") == kSuccess, "{}", verdict.text("reduce.text"));
    CHECK(verdict.text("changed").empty(), "{}", verdict.text("changed"));
    CHECK(verdict.number("threads") <= 2, "{} threads after destroy", verdict.number("threads"));
  }
}

}  // namespace

const std::vector<Case>& startCases() {
  static const auto* const cases = new std::vector<Case>{
      {"launchers", launchers},    {"ipv6", ipv6},
      {"late-root", lateRoot},     {"singletons", singletons},
      {"wrong-size", wrongSize},   {"taken-port", takenPort},
      {"late-joiner", lateJoiner}, {"strangers", strangers},
      {"many-ranks", manyRanks},   {"few-descriptors", fewDescriptors},
      {"affinity", affinity},
  };
  return *cases;
}

const std::vector<Role>& startRoles() {
  static const auto* const roles = new std::vector<Role>{{"plain", plainRank},
                                                         {"again", againRank},
                                                         {"lone", loneRank},
                                                         {"init-only", initOnlyRank},
                                                         {"affinity", affinityRank}};
  return *roles;
}

}  // namespace launch
