// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/group.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>
#include <set>

#include "unit/bootstrap_support.h"

using namespace vcoll;
using namespace vcoll::test;

namespace {

Status checkExchange(Group& group, const std::string& name, size_t bytes) {
  std::vector<Blob> all;
  const std::string fill(bytes + static_cast<size_t>(group.rank()), static_cast<char>('a' + group.rank() % 26));
  VCOLL_TRY(group.allGather(name, blobOf(fill), &all, Deadline::afterMs(20000)));
  if (all.size() != static_cast<size_t>(group.size())) return makeError(vcollInternalError, "{} blobs", all.size());
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const std::string expected(bytes + rank, static_cast<char>('a' + rank % 26));
    if (textOf(all[rank]) != expected) return makeError(vcollInternalError, "blob {} is wrong", rank);
  }
  return {};
}

Group& at(World& world, int rank) { return *world[static_cast<size_t>(rank)]; }

}  // namespace

TEST_CASE("groups of many sizes exchange blobs", "[bootstrap]") {
  const int n = GENERATE(1, 2, 3, 5, 8, 32);
  World world;
  REQUIRE(firstError(joinWorld(n, &world)) == "");
  std::set<Nonce> nonces;
  for (int rank = 0; rank < n; ++rank) {
    REQUIRE(at(world, rank).rank() == rank);
    REQUIRE(at(world, rank).size() == n);
    nonces.insert(at(world, rank).nonce());
  }
  REQUIRE(nonces.size() == 1);
  const auto results = runRanks(n, [&](int rank) -> Status {
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{1000}, size_t{20000}}) {
      VCOLL_TRY(checkExchange(at(world, rank), "Test", bytes));
    }
    return {};
  });
  REQUIRE(firstError(results) == "");
}

TEST_CASE("blobs of megabytes pass", "[bootstrap]") {
  World world;
  REQUIRE(firstError(joinWorld(3, &world)) == "");
  REQUIRE(firstError(runRanks(3, [&](int rank) { return checkExchange(at(world, rank), "Big", 2 << 20); })) == "");
}

TEST_CASE("a group of one rank uses neither descriptors nor threads", "[bootstrap]") {
  std::vector<vcollUniqueId> ids(50);
  for (vcollUniqueId& id : ids) REQUIRE(makeUniqueId(&id).ok());
  const int fds = openFds();
  const int threads = threadCount();
  std::vector<std::unique_ptr<Group>> groups(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    REQUIRE(joinGroup(ids[i], 1, 0, Deadline::afterMs(20000), &groups[i]).ok());
  }
  REQUIRE(eventually([&] { return openFds() == fds; }));  // the far ends of the rendezvous close a moment later
  REQUIRE(threadCount() == threads);
  std::vector<Blob> all;
  REQUIRE(groups[0]->allGather("One", blobOf("x"), &all, Deadline::afterMs(0)).ok());
  REQUIRE(all.size() == 1);
  std::atomic<bool> called{false};
  groups[0]->onRaised([&] { called = true; });
  groups[0]->raise(Status(vcollAborted, "stop"));
  groups[0]->raise(Status(vcollTimeout, "later"));
  REQUIRE(groups[0]->failed());
  REQUIRE(groups[0]->failure().text() == "stop");
  REQUIRE(groups[0]->allGather("One", {}, &all, Deadline::afterMs(0)).code() == vcollAborted);
  REQUIRE(eventually([&] { return called.load(); }));
}

TEST_CASE("split makes groups side by side", "[bootstrap]") {
  constexpr int kRanks = 7;
  World world;
  REQUIRE(firstError(joinWorld(kRanks, &world)) == "");
  World parts(kRanks);
  // Even ranks in reverse order; odd ranks but 5; rank 5 alone takes part only.
  const auto membersOf = [](int rank) -> std::vector<int> {
    if (rank == 5) return {};
    return rank % 2 == 0 ? std::vector<int>{6, 4, 2, 0} : std::vector<int>{1, 3};
  };
  const auto results = runRanks(kRanks, [&](int rank) -> Status {
    auto& part = parts[static_cast<size_t>(rank)];
    VCOLL_TRY(splitGroup(at(world, rank), membersOf(rank), Deadline::afterMs(20000), &part));
    return part == nullptr ? Status() : checkExchange(*part, "InPart", 100);
  });
  REQUIRE(firstError(results) == "");
  REQUIRE(parts[5] == nullptr);
  REQUIRE(at(parts, 6).rank() == 0);
  REQUIRE(at(parts, 0).rank() == 3);
  REQUIRE(at(parts, 3).rank() == 1);
  REQUIRE(at(parts, 0).nonce() == at(parts, 4).nonce());
  REQUIRE(at(parts, 0).nonce() != at(parts, 1).nonce());
  // An error in one color does not reach the other, nor the parent.
  at(parts, 2).raise(Status(vcollAborted, "even only"));
  REQUIRE(eventually([&] { return at(parts, 6).failed() && at(parts, 0).failed(); }));
  REQUIRE(firstError(runRanks(kRanks, [&](int rank) { return checkExchange(at(world, rank), "Parent", 9); })) == "");
  REQUIRE_FALSE(at(parts, 1).raised());
}

TEST_CASE("split into single ranks, and lists that differ", "[bootstrap]") {
  World world;
  REQUIRE(firstError(joinWorld(3, &world)) == "");
  World parts(3);
  REQUIRE(firstError(runRanks(3, [&](int rank) {
            return splitGroup(at(world, rank), {rank}, Deadline::afterMs(20000), &parts[static_cast<size_t>(rank)]);
          })) == "");
  for (int rank = 0; rank < 3; ++rank) REQUIRE(at(parts, rank).size() == 1);
  const auto results = runRanks(3, [&](int rank) {
    const std::vector<int> members = rank == 2 ? std::vector<int>{0, 2} : std::vector<int>{0, 1, 2};
    return splitGroup(at(world, rank), members, Deadline::afterMs(20000), &parts[static_cast<size_t>(rank)]);
  });
  for (const Status& status : results) {
    REQUIRE(status.code() == vcollMismatch);
    REQUIRE(status.text() == results[0].text());
  }
}

TEST_CASE("an error raised on any rank is the same text on all", "[bootstrap]") {
  constexpr int kRanks = 9;
  const int raiser = GENERATE(0, 3, 8);
  World world;
  REQUIRE(firstError(joinWorld(kRanks, &world)) == "");
  std::atomic<int> called{0};
  for (auto& group : world) group->onRaised([&] { ++called; });
  const std::string text = "rank " + std::to_string(raiser) + " gave up";
  const auto results = runRanks(kRanks, [&](int rank) {
    if (rank == raiser) {
      at(world, rank).raise(Status(vcollAborted, text));
      return at(world, rank).failure();
    }
    std::vector<Blob> all;
    return at(world, rank).allGather("Wait", {}, &all, Deadline::afterMs(20000));
  });
  for (const Status& status : results) {
    REQUIRE(status.code() == vcollAborted);
    REQUIRE(status.text() == text);
  }
  REQUIRE(eventually([&] { return called == kRanks; }));
}

TEST_CASE("of errors raised at once one becomes the verdict", "[bootstrap]") {
  constexpr int kRanks = 8;
  for (int round = 0; round < 10; ++round) {
    World world;
    REQUIRE(firstError(joinWorld(kRanks, &world)) == "");
    const auto results = runRanks(kRanks, [&](int rank) {
      at(world, rank).raise(Status(vcollRemoteError, "error of rank " + std::to_string(rank)));
      return at(world, rank).failure();
    });
    for (const Status& status : results) REQUIRE(status.text() == results[0].text());
  }
}

TEST_CASE("ranks in different calls get the same mismatch", "[bootstrap]") {
  constexpr int kRanks = 6;
  World world;
  REQUIRE(firstError(joinWorld(kRanks, &world)) == "");
  REQUIRE(firstError(runRanks(kRanks, [&](int rank) { return checkExchange(at(world, rank), "Same", 1); })) == "");
  SECTION("all ranks are in a call") {
    const auto results = runRanks(kRanks, [&](int rank) {
      std::vector<Blob> all;
      const char* name = rank == 2 || rank == 5 ? "WindowRegister" : "PlanCreate";
      return at(world, rank).allGather(name, {}, &all, Deadline::afterMs(20000));
    });
    for (const Status& status : results) {
      REQUIRE(status.code() == vcollMismatch);
      REQUIRE(status.text() == "exchange 2: rank 0 is in PlanCreate, rank 2 is in WindowRegister");
    }
  }
  SECTION("one rank never comes") {
    const auto results = runRanks(kRanks, [&](int rank) {
      if (rank == 4) {
        eventually([&] { return at(world, rank).raised(); });
        return at(world, rank).failure();
      }
      std::vector<Blob> all;
      return at(world, rank).allGather(rank == 1 ? "Finalize" : "CommSplit", {}, &all, Deadline::afterMs(20000));
    });
    for (const Status& status : results) {
      REQUIRE(status.text() == "exchange 2: rank 0 is in CommSplit, rank 1 is in Finalize");
    }
  }
}

TEST_CASE("an exchange that times out names the missing ranks on every rank", "[bootstrap]") {
  constexpr int kRanks = 7;
  const int first = GENERATE(0, 3);  // the rank whose time-out runs out
  World world;
  REQUIRE(firstError(joinWorld(kRanks, &world)) == "");
  const auto results = runRanks(kRanks, [&](int rank) {
    if (rank == 2 || rank == 5) {
      eventually([&] { return at(world, rank).failed(); });
      return at(world, rank).failure();
    }
    std::vector<Blob> all;
    return at(world, rank).allGather("PlanCreate", {}, &all, Deadline::afterMs(rank == first ? 300 : 20000));
  });
  for (const Status& status : results) {
    REQUIRE(status.code() == vcollTimeout);
    REQUIRE(status.text() == results[0].text());
  }
  REQUIRE_THAT(results[0].text(), Catch::Matchers::Contains("PlanCreate"));
  REQUIRE_THAT(results[0].text(),
               Catch::Matchers::EndsWith("on rank " + std::to_string(first) + ", waiting for ranks 2, 5"));
}

TEST_CASE("a rank that has left fails the next exchange at once", "[bootstrap]") {
  constexpr int kRanks = 7;
  const int leaver = GENERATE(0, 2, 6);
  World world;
  REQUIRE(firstError(joinWorld(kRanks, &world)) == "");
  world[static_cast<size_t>(leaver)].reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank != leaver) REQUIRE_FALSE(at(world, rank).raised());  // leaving is no error by itself
  }
  const Deadline start = Deadline::afterMs(5000);
  const auto results = runRanks(kRanks, [&](int rank) {
    if (rank == leaver) return Status();
    std::vector<Blob> all;
    return at(world, rank).allGather("Late", {}, &all, Deadline::afterMs(20000));
  });
  REQUIRE_FALSE(start.passed());
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == leaver) continue;
    const Status& status = results[static_cast<size_t>(rank)];
    REQUIRE(status.code() == vcollRemoteError);
    REQUIRE_THAT(status.text(),
                 Catch::Matchers::Contains("rank " + std::to_string(leaver) + " has left the communicator"));
  }
}

// Every rank that stays learns that the call can never be, whatever part of the tree it is in.
TEST_CASE("a rank that left before a call is known to all that stay", "[bootstrap]") {
  constexpr int kRanks = 15;
  const int leaver = GENERATE(0, 1, 2, 5, 14);
  World world;
  REQUIRE(firstError(joinWorld(kRanks, &world)) == "");
  const auto staying = [&](int rank) { return rank != leaver && world[static_cast<size_t>(rank)] != nullptr; };
  at(world, leaver).leave(7);
  for (int rank = 0; rank < kRanks; ++rank) {
    if (!staying(rank)) continue;
    INFO("rank " << rank);
    REQUIRE(eventually([&] { return at(world, rank).leftBefore(8) == leaver; }));
    REQUIRE(at(world, rank).leftBefore(7) == -1);  // it has made that one
    REQUIRE_FALSE(at(world, rank).raised());
  }
  // One that leaves after more calls changes nothing; one that does not count is never blamed.
  const int second = leaver == 14 ? 13 : 14;
  at(world, second).leave(9);
  world[static_cast<size_t>(second)].reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  for (int rank = 0; rank < kRanks; ++rank) {
    if (staying(rank)) REQUIRE(at(world, rank).leftBefore(20) == leaver);
  }
}

TEST_CASE("groups come and go without leaving descriptors or threads behind", "[bootstrap]") {
  World world;
  REQUIRE(firstError(joinWorld(3, &world)) == "");
  world.clear();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const int fds = openFds();
  const int threads = threadCount();
  for (int round = 0; round < 500; ++round) {
    const auto errors = joinWorld(3, &world);
    if (round % 10 == 0) {
      REQUIRE(firstError(errors) == "");
      REQUIRE(firstError(runRanks(3, [&](int rank) { return checkExchange(at(world, rank), "Round", 10); })) == "");
    }
    if (round % 7 == 0) at(world, round % 3).raise(Status(vcollAborted, "round"));
    world.clear();
  }
  REQUIRE(eventually([&] { return openFds() <= fds; }));
  REQUIRE(eventually([&] { return threadCount() <= threads; }));  // a thread that was joined may show a little longer
}

TEST_CASE("destruction while the callback runs waits for it", "[bootstrap]") {
  for (int round = 0; round < 20; ++round) {
    World world;
    REQUIRE(firstError(joinWorld(2, &world)) == "");
    auto target = std::make_unique<std::atomic<int>>(0);
    at(world, 1).onRaised([raw = target.get()] {
      ++*raw;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ++*raw;
    });
    at(world, 0).raise(Status(vcollAborted, "go"));
    if (round % 2 == 0) eventually([&] { return *target > 0; });
    world[1].reset();
    const int value = *target;
    REQUIRE((value == 0 || value == 2));
    target.reset();
  }
}

TEST_CASE("a callback set after the error still fires once", "[bootstrap]") {
  World world;
  REQUIRE(firstError(joinWorld(2, &world)) == "");
  at(world, 0).raise(Status(vcollAborted, "early"));
  REQUIRE(eventually([&] { return at(world, 1).failed(); }));
  std::atomic<int> called{0};
  at(world, 1).onRaised([&] { ++called; });
  REQUIRE(eventually([&] { return called == 1; }));
  REQUIRE(at(world, 1).failure().text() == "early");
  world.clear();
  REQUIRE(called == 1);
}
