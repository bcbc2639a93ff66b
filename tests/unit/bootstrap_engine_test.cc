// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/engine.h"

#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>

#include "bootstrap/frame_link.h"
#include "bootstrap/packing.h"
#include "bootstrap/socket.h"
#include "unit/bootstrap_support.h"

using namespace vcoll;
using namespace vcoll::test;
using Catch::Matchers::Contains;

extern char** environ;

namespace {

Engine& engine() {
  Engine* instance = nullptr;
  REQUIRE(Engine::get(&instance).ok());
  return *instance;
}

struct CountingHandler final : EventHandler {
  explicit CountingHandler(int watched) : fd(watched) {}
  void onEvents(uint32_t) override {
    uint64_t value = 0;
    if (::read(fd, &value, sizeof value) == sizeof value) ++count;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ++done;
  }
  int fd;
  std::atomic<int> count{0};
  std::atomic<int> done{0};
};

void signalFd(int fd) {
  const uint64_t one = 1;
  REQUIRE(::write(fd, &one, sizeof one) == sizeof one);
}

std::string progressThreadFile(const char* file) {
  const std::string base = "/proc/self/task/";
  DIR* dir = ::opendir(base.c_str());
  std::string found;
  while (const dirent* entry = ::readdir(dir)) {
    std::string name;
    std::ifstream(base + entry->d_name + "/comm") >> name;
    if (name == "vcoll-progress") found = base + entry->d_name + "/" + file;
  }
  ::closedir(dir);
  return found;
}

std::string toHex(const vcollUniqueId& id) {
  std::string text;
  for (const char byte : id.internal) text += formatText("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

// This program again, as one rank of a group.
pid_t spawnPeer(const vcollUniqueId& id, int nranks, int rank, const char* mode) {
  const std::vector<std::string> values = {
      "BOOTSTRAP_TEST_ID=" + toHex(id), "BOOTSTRAP_TEST_NRANKS=" + std::to_string(nranks),
      "BOOTSTRAP_TEST_RANK=" + std::to_string(rank), std::string("BOOTSTRAP_TEST_MODE=") + mode};
  std::vector<char*> env;
  for (const std::string& value : values) env.push_back(const_cast<char*>(value.c_str()));
  for (char** entry = environ; *entry != nullptr; ++entry) env.push_back(*entry);
  env.push_back(nullptr);
  const char* argv[] = {"peer", "a peer process of another test", "-o", "/dev/null", nullptr};
  pid_t pid = -1;
  REQUIRE(::posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, const_cast<char**>(argv), env.data()) == 0);
  return pid;
}

}  // namespace

TEST_CASE("tasks run in order, timers at their time", "[bootstrap]") {
  std::vector<int> order;
  std::atomic<int> ran{0};
  for (int i = 0; i < 100; ++i) {
    engine().post([&, i] {
      order.push_back(i);
      ++ran;
    });
  }
  REQUIRE(eventually([&] { return ran == 100; }));
  for (int i = 0; i < 100; ++i) REQUIRE(order[static_cast<size_t>(i)] == i);
  std::vector<int> timers;
  std::atomic<int> fired{0};
  const auto add = [&](int ms) {
    return engine().addTimer(Deadline::afterMs(ms), [&, ms] {
      timers.push_back(ms);
      ++fired;
    });
  };
  add(60);
  const uint64_t cancelled = add(40);
  add(20);
  engine().cancelTimer(cancelled);
  REQUIRE(eventually([&] { return fired == 2; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  REQUIRE(timers == std::vector<int>{20, 60});
}

TEST_CASE("after remove and cancelTimer nothing runs any more", "[bootstrap]") {
  for (int round = 0; round < 50; ++round) {
    const int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    auto handler = std::make_unique<CountingHandler>(fd);
    REQUIRE(engine().add(fd, EPOLLIN, handler.get()).ok());
    signalFd(fd);
    if (round % 2 == 0) eventually([&] { return handler->count > 0; });
    engine().remove(fd);
    REQUIRE(handler->count == handler->done);
    handler.reset();
    signalFd(fd);
    ::close(fd);

    auto flag = std::make_unique<std::atomic<int>>(0);
    const uint64_t timer = engine().addTimer(Deadline::afterMs(round % 3), [raw = flag.get()] {
      ++*raw;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++*raw;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    engine().cancelTimer(timer);
    const int value = *flag;
    REQUIRE((value == 0 || value == 2));
    flag.reset();
  }
}

TEST_CASE("a handler that removes itself and a reused descriptor get no stale events", "[bootstrap]") {
  struct SelfRemoving final : EventHandler {
    void onEvents(uint32_t) override {
      ++calls;
      loop->remove(fd);
    }
    Engine* loop = nullptr;
    int fd = -1;
    std::atomic<int> calls{0};
  } handler;
  handler.loop = &engine();
  handler.fd = ::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
  REQUIRE(engine().add(handler.fd, EPOLLIN, &handler).ok());
  REQUIRE(eventually([&] { return handler.calls == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  REQUIRE(handler.calls == 1);
  REQUIRE_FALSE(engine().modify(handler.fd, EPOLLIN, &handler).ok());
  ::close(handler.fd);
  REQUIRE(engine().add(handler.fd, EPOLLIN, &handler).code() == vcollSystemError);
}

TEST_CASE("the progress thread sleeps when idle and takes no signals", "[bootstrap]") {
  std::atomic<bool> here{false};
  engine().post([&] { here = engine().onProgressThread(); });
  REQUIRE(eventually([&] { return here.load(); }));
  REQUIRE_FALSE(engine().onProgressThread());
  const std::string file = progressThreadFile("status");
  REQUIRE(file != "");
  const auto field = [&](const std::string& name) {
    std::ifstream status(file);
    for (std::string line; std::getline(status, line);) {
      if (line.rfind(name, 0) == 0) return line.substr(name.size());
    }
    return std::string();
  };
  const std::string blocked = field("SigBlk:");
  const auto mask = std::stoull(blocked, nullptr, 16);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGALRM}) REQUIRE((mask >> (number - 1) & 1) == 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::string before = field("voluntary_ctxt_switches:");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  REQUIRE(field("voluntary_ctxt_switches:") == before);
}

TEST_CASE("a forked child is refused", "[bootstrap]") {
  engine();
  const pid_t pid = ::fork();
  if (pid == 0) {
    vcollUniqueId id;
    const bool refused = inForkedChild() && makeUniqueId(&id).code() == vcollInvalidUsage;
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(status == 0);
  REQUIRE_FALSE(inForkedChild());
}

TEST_CASE("malformed frames end a link and nothing else", "[bootstrap]") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  std::atomic<int> frames{0};
  std::atomic<int> ended{-1};
  auto link = std::make_unique<FrameLink>(
      &engine(), [&](uint32_t type, const SharedBytes& payload) { frames += static_cast<int>(type + payload->size()); },
      [&](int error) { ended = error; });
  engine().post([&] { (void)link->open(ends[0]).ok(); });
  FrameHeader good;
  good.type = 7;
  good.bytes = 3;
  REQUIRE(::write(ends[1], &good, sizeof good) == sizeof good);
  REQUIRE(::write(ends[1], "abc", 3) == 3);
  REQUIRE(eventually([&] { return frames == 10; }));
  FrameHeader huge;
  huge.bytes = FrameHeader::kMaxBytes + 1;
  SECTION("a length beyond the cap") { REQUIRE(::write(ends[1], &huge, sizeof huge) == sizeof huge); }
  SECTION("another protocol") { REQUIRE(::write(ends[1], "GET / HTTP/1.1\r\n\r\n", 18) == 18); }
  REQUIRE(eventually([&] { return ended == EPROTO; }));
  REQUIRE(frames == 10);
  ::close(ends[1]);
  std::atomic<bool> gone{false};
  engine().post([&] {
    link.reset();
    gone = true;
  });
  REQUIRE(eventually([&] { return gone.load(); }));
}

TEST_CASE("reading past the end of a message fails and stays failed", "[bootstrap]") {
  const std::vector<std::byte> bytes = Packer().value<uint32_t>(5).text("hello").take();
  Unpacker good(bytes);
  uint32_t value = 0;
  std::string text;
  REQUIRE(good.value(&value));
  REQUIRE(good.text(&text));
  REQUIRE(value == 5);
  REQUIRE(text == "hello");
  REQUIRE(good.atEnd());
  std::vector<std::byte> cut(bytes.begin(), bytes.end() - 1);
  Unpacker bad(cut);
  REQUIRE(bad.value(&value));
  REQUIRE_FALSE(bad.text(&text));
  char letter = 0;
  REQUIRE_FALSE(bad.value(&letter));
}

// ---- peers as processes ----

TEST_CASE("a peer process of another test", "[.peer]") {
  const std::string hex = std::getenv("BOOTSTRAP_TEST_ID");
  const std::string mode = std::getenv("BOOTSTRAP_TEST_MODE");
  vcollUniqueId id;
  for (size_t i = 0; i < sizeof id.internal; ++i) {
    id.internal[i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  std::unique_ptr<Group> group;
  REQUIRE(joinGroup(id, std::stoi(std::getenv("BOOTSTRAP_TEST_NRANKS")), std::stoi(std::getenv("BOOTSTRAP_TEST_RANK")),
                    Deadline::afterMs(20000), &group)
              .ok());
  std::vector<Blob> all;
  REQUIRE(group->allGather("Ready", {}, &all, Deadline::afterMs(20000)).ok());
  if (mode == "exit") {  // orderly, and gone at once
    group.reset();
    ::_exit(0);
  }
  // A child that holds copies of all descriptors must not keep the connections up.
  if (mode == "fork" && ::fork() == 0) {
    ::sleep(5);
    ::_exit(0);
  }
  if (mode == "stop") ::raise(SIGSTOP);
  ::sleep(30);  // until it is killed
  ::_exit(0);
}

TEST_CASE("a killed process is noticed while idle, by name, on every rank", "[bootstrap]") {
  constexpr int kRanks = 7;
  constexpr int kVictim = 2;  // has a parent and two children
  const char* mode = GENERATE("idle", "fork");
  vcollUniqueId id;
  REQUIRE(makeUniqueId(&id).ok());
  const pid_t pid = spawnPeer(id, kRanks, kVictim, mode);
  World world(kRanks);
  const auto joined = runRanks(kRanks, [&](int rank) -> Status {
    if (rank == kVictim) return {};
    auto& group = world[static_cast<size_t>(rank)];
    VCOLL_TRY(joinGroup(id, kRanks, rank, Deadline::afterMs(20000), &group));
    std::vector<Blob> all;
    return group->allGather("Ready", {}, &all, Deadline::afterMs(20000));
  });
  REQUIRE(firstError(joined) == "");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // it has forked by now
  const Deadline bound = Deadline::afterMs(3000);
  REQUIRE(::kill(pid, SIGKILL) == 0);
  for (const auto& group : world) {
    if (group == nullptr) continue;
    REQUIRE(eventually([&] { return group->failed(); }, 3000));
    REQUIRE(group->failure().code() == vcollRemoteError);
    REQUIRE_THAT(group->failure().text(), Contains("rank 2 was lost"));
    REQUIRE(group->failure().text() == world[0]->failure().text());
  }
  REQUIRE_FALSE(bound.passed());
  REQUIRE(::waitpid(pid, nullptr, 0) == pid);
}

TEST_CASE("a stopped process holds up an exchange no longer than its time-out", "[bootstrap]") {
  constexpr int kRanks = 4;
  const int victim = GENERATE(0, 1);
  vcollUniqueId id;
  REQUIRE(makeUniqueId(&id).ok());
  const pid_t pid = spawnPeer(id, kRanks, victim, "stop");
  World world(kRanks);
  const auto results = runRanks(kRanks, [&](int rank) -> Status {
    if (rank == victim) return {};
    auto& group = world[static_cast<size_t>(rank)];
    VCOLL_TRY(joinGroup(id, kRanks, rank, Deadline::afterMs(20000), &group));
    std::vector<Blob> all;
    VCOLL_TRY(group->allGather("Ready", {}, &all, Deadline::afterMs(20000)));
    int status = 0;
    if (rank == 2) ::waitpid(pid, &status, WUNTRACED);
    const Deadline bound = Deadline::afterMs(1000 + 1000);
    const Status late = group->allGather("Held", {}, &all, Deadline::afterMs(1000));
    if (bound.passed() || late.code() != vcollTimeout) return makeError(vcollInternalError, "late: {}", late.text());
    const bool named = late.text().find(victim == 0 ? "rank 0" : "rank 1") != std::string::npos ||
                       (victim == 1 && late.text().find("waiting for ranks 1, 3") != std::string::npos);
    return named ? Status() : late;
  });
  ::kill(pid, SIGKILL);
  REQUIRE(::waitpid(pid, nullptr, 0) == pid);
  REQUIRE(firstError(results) == "");
}

TEST_CASE("a process that leaves and exits at once is not taken for lost", "[bootstrap]") {
  vcollUniqueId id;
  REQUIRE(makeUniqueId(&id).ok());
  const pid_t pid = spawnPeer(id, 2, 1, "exit");
  std::unique_ptr<Group> group;
  REQUIRE(joinGroup(id, 2, 0, Deadline::afterMs(20000), &group).ok());
  std::vector<Blob> all;
  REQUIRE(group->allGather("Ready", {}, &all, Deadline::afterMs(20000)).ok());
  int status = -1;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(status == 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  REQUIRE_FALSE(group->raised());
}

TEST_CASE("a poll set is served by the progress thread, or by who attends", "[bootstrap]") {
  CountingHandler handler(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  {
    PollSet sockets;
    REQUIRE(sockets.open(&engine()).ok());
    REQUIRE(sockets.add(handler.fd, EPOLLIN, &handler).ok());
    signalFd(handler.fd);
    REQUIRE(eventually([&] { return handler.done == 1; }));
    REQUIRE_FALSE(sockets.poll());

    sockets.attend(true);
    signalFd(handler.fd);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    REQUIRE(handler.count == 1);
    REQUIRE(eventually([&] { return sockets.poll(); }));
    REQUIRE(handler.done == 2);
    signalFd(handler.fd);
    sockets.attend(false);
    REQUIRE(eventually([&] { return handler.done == 3; }));

    {
      const std::lock_guard serving(sockets.mutex());
      sockets.remove(handler.fd);
    }
    signalFd(handler.fd);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    REQUIRE(handler.count == 3);
    REQUIRE_FALSE(sockets.modify(handler.fd, EPOLLIN, &handler).ok());
  }
  ::close(handler.fd);
}
