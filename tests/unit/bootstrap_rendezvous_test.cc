// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "bootstrap/group.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/socket.h"
#include "unit/bootstrap_support.h"

using namespace vcoll;
using namespace vcoll::test;
using Catch::Matchers::Contains;

namespace {

vcollUniqueId freshId() {
  vcollUniqueId id;
  REQUIRE(makeUniqueId(&id).ok());
  return id;
}

int rawConnect(const Endpoint& endpoint) {
  sockaddr_storage storage;
  const socklen_t length = toSockaddr(endpoint, &storage);
  const int fd = ::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && ::connect(fd, reinterpret_cast<sockaddr*>(&storage), length) == 0) return fd;
  if (fd >= 0) ::close(fd);
  return -1;
}

// True if the far side closes within ms.
bool closedWithin(int fd, int64_t ms) {
  char byte;
  const timeval wait{ms / 1000, ms % 1000 * 1000};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  const ssize_t count = ::recv(fd, &byte, 1, 0);
  return count == 0 || (count < 0 && errno == ECONNRESET);
}

Endpoint listenerEndpoint() {
  Listener* listener = nullptr;
  REQUIRE(Listener::get(&listener).ok());
  return listener->endpoint();
}

uint16_t freePort() {
  int fd = -1;
  Endpoint bound;
  Endpoint any;
  any.family = 4;
  any.address = {127, 0, 0, 1};
  REQUIRE(listenAt(any, &fd, &bound).ok());
  ::close(fd);
  return bound.port;
}

}  // namespace

TEST_CASE("bad ids, ranks and sizes are invalid arguments", "[bootstrap]") {
  std::unique_ptr<Group> group;
  vcollUniqueId zero{};
  Status status = joinGroup(zero, 2, 0, Deadline::afterMs(100), &group);
  REQUIRE(status.code() == vcollInvalidArgument);
  REQUIRE_THAT(status.text(), Contains("unique id") && Contains("zero"));
  vcollUniqueId garbage;
  std::memset(&garbage, 0x5a, sizeof garbage);
  status = joinGroup(garbage, 1, 0, Deadline::afterMs(100), &group);
  REQUIRE(status.code() == vcollInvalidArgument);
  vcollUniqueId damaged = freshId();
  damaged.internal[20] = static_cast<char>(damaged.internal[20] ^ 1);
  status = joinGroup(damaged, 2, 0, Deadline::afterMs(100), &group);
  REQUIRE(status.code() == vcollInvalidArgument);
  REQUIRE_THAT(status.text(), Contains("unique id"));
  const vcollUniqueId id = freshId();
  REQUIRE_THAT(joinGroup(id, 0, 0, Deadline::afterMs(100), &group).text(), Contains("nranks is 0"));
  REQUIRE_THAT(joinGroup(id, 4, 4, Deadline::afterMs(100), &group).text(), Contains("rank is 4"));
  REQUIRE_THAT(joinGroup(id, 4, -1, Deadline::afterMs(100), &group).text(), Contains("rank is -1"));
  REQUIRE(group == nullptr);
}

TEST_CASE("world sizes that differ are the same error on every rank", "[bootstrap]") {
  const vcollUniqueId id = freshId();
  World world(3);
  const auto results = runRanks(3, [&](int rank) {
    if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return joinGroup(id, rank == 1 ? 4 : 3, rank, Deadline::afterMs(20000), &world[static_cast<size_t>(rank)]);
  });
  for (const Status& status : results) {
    REQUIRE(status.code() == vcollMismatch);
    REQUIRE(status.text() == "world sizes differ: rank 0 says 3, rank 1 says 4");
  }
}

TEST_CASE("a rank that joins twice is named to all", "[bootstrap]") {
  const vcollUniqueId id = freshId();
  World world(3);
  const auto results = runRanks(3, [&](int thread) {
    return joinGroup(id, 4, thread == 0 ? 0 : 3, Deadline::afterMs(20000), &world[static_cast<size_t>(thread)]);
  });
  for (const Status& status : results) {
    REQUIRE(status.code() == vcollInvalidUsage);
    REQUIRE_THAT(status.text(), Contains("rank 3 joined twice") && Contains("reused"));
  }
}

TEST_CASE("an id that was used is refused, whatever became of it", "[bootstrap]") {
  const vcollUniqueId id = freshId();
  World world(2);
  const auto join = [&](int n, int rank, int64_t ms) {
    std::unique_ptr<Group> late;
    return joinGroup(id, n, rank, Deadline::afterMs(ms), &late);
  };
  SECTION("complete") {
    REQUIRE(firstError(runRanks(2, [&](int rank) {
              return joinGroup(id, 2, rank, Deadline::afterMs(20000), &world[static_cast<size_t>(rank)]);
            })) == "");
    const Status late = join(2, 1, 20000);
    REQUIRE(late.code() == vcollInvalidUsage);
    REQUIRE_THAT(late.text(), Contains("unique id reused") && Contains("2 ranks"));
    REQUIRE(join(1, 0, 20000).text() == late.text());
    REQUIRE_FALSE(world[0]->raised());
  }
  SECTION("complete with one rank") {
    REQUIRE(joinGroup(id, 1, 0, Deadline::afterMs(20000), &world[0]).ok());
    for (const int n : {1, 2}) {
      const Status late = join(n, 0, 20000);
      REQUIRE(late.code() == vcollInvalidUsage);
      REQUIRE_THAT(late.text(), Contains("unique id reused") && Contains("1 rank that"));
    }
    REQUIRE_FALSE(world[0]->raised());
  }
  SECTION("failed") {
    const Status first = join(3, 0, 200);
    REQUIRE(first.code() == vcollTimeout);
    const Status late = join(3, 1, 20000);
    REQUIRE(late.code() == vcollTimeout);
    REQUIRE(late.text() == first.text());
  }
}

TEST_CASE("an id of a process that has ended is no long wait", "[bootstrap]") {
  // A port nobody listens at, and a listener that does not know the nonce.
  JoinRequest request;
  request.nranks = 2;
  request.rank = 1;
  JoinAnswer answer;
  Endpoint nobody;
  nobody.family = 4;
  nobody.address = {127, 0, 0, 1};
  nobody.port = freePort();
  const Deadline bound = Deadline::afterMs(10000);
  const Status refused =
      joinRendezvous({nobody}, nobody.text(), randomNonce(), request, Deadline::afterMs(30000), false, &answer);
  REQUIRE(refused.code() == vcollSystemError);
  REQUIRE_THAT(refused.text(), Contains(nobody.text()) && Contains("refused"));
  const Status unknown =
      joinRendezvous({listenerEndpoint()}, "here", randomNonce(), request, Deadline::afterMs(30000), false, &answer);
  REQUIRE(unknown.code() == vcollRemoteError);
  REQUIRE_THAT(unknown.text(), Contains("another run"));
  REQUIRE_FALSE(bound.passed());
}

TEST_CASE("ranks that never come are named when time runs out", "[bootstrap]") {
  const vcollUniqueId id = freshId();
  World world(3);
  const Deadline bound = Deadline::afterMs(3000);
  const int ranks[] = {0, 3, 4};
  const auto results = runRanks(3, [&](int thread) {
    return joinGroup(id, 6, ranks[thread], Deadline::afterMs(thread == 1 ? 600 : 20000),
                     &world[static_cast<size_t>(thread)]);
  });
  REQUIRE_FALSE(bound.passed());
  for (const Status& status : results) {
    REQUIRE(status.code() == vcollTimeout);
    REQUIRE_THAT(status.text(), Contains("still missing ranks 1, 2, 5 of 6") && Contains("rank 3"));
  }
}

TEST_CASE("a late rank is waited for", "[bootstrap]") {
  const vcollUniqueId id = freshId();
  World world(4);
  const auto results = runRanks(4, [&](int rank) {
    if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(700));
    return joinGroup(id, 4, rank, Deadline::afterMs(20000), &world[static_cast<size_t>(rank)]);
  });
  REQUIRE(firstError(results) == "");
}

TEST_CASE("another version of the library is named", "[bootstrap]") {
  const Nonce nonce = randomNonce();
  const Endpoint here = listenerEndpoint();
  REQUIRE(serveRendezvous(nonce).ok());
  const auto results = runRanks(2, [&](int rank) {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    JoinRequest request;
    request.nranks = 3;
    request.rank = rank;
    if (rank == 1) request.version = 30201;
    JoinAnswer answer;
    return joinRendezvous({here}, "here", nonce, request, Deadline::afterMs(20000), false, &answer);
  });
  for (const Status& status : results) {
    REQUIRE(status.code() == vcollMismatch);
    REQUIRE_THAT(status.text(), Contains("rank 1 has vcoll 3.2.1"));
  }
}

TEST_CASE("strangers are dropped and disturb nobody", "[bootstrap]") {
  const Endpoint endpoint = listenerEndpoint();
  const vcollUniqueId id = freshId();
  const int fds = openFds();
  World world(2);
  std::thread early([&] { (void)joinGroup(id, 2, 0, Deadline::afterMs(20000), &world[0]).ok(); });
  // While the rendezvous waits: garbage, a web browser, half a hello, a hello with an unknown nonce, silence.
  const int garbage = rawConnect(endpoint);
  const int browser = rawConnect(endpoint);
  const int half = rawConnect(endpoint);
  const int silent = rawConnect(endpoint);
  REQUIRE(silent >= 0);
  const std::string noise(100000, '\xee');
  REQUIRE(::send(garbage, noise.data(), noise.size(), MSG_NOSIGNAL) > 0);
  REQUIRE(::send(browser, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL) == 18);
  REQUIRE(::send(half, "vcollHi\n", 8, MSG_NOSIGNAL) == 8);
  REQUIRE(closedWithin(garbage, 1000));
  REQUIRE(closedWithin(browser, 1000));
  int unknown = -1;
  REQUIRE(connectTo(endpoint, randomNonce(), Purpose::kTree, nullptr, 0, "test", Deadline::afterMs(5000), {}, &unknown)
              .ok());
  char byte;
  REQUIRE(eventually([&] { return ::recv(unknown, &byte, 1, MSG_DONTWAIT) == 0; }, 1000));
  // A burst of silent connections: the cap drops the oldest, ranks still get in.
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  std::vector<int> burst(std::min<size_t>(1100, limit.rlim_cur / 4 + 20));
  for (int& fd : burst) fd = rawConnect(endpoint);
  REQUIRE(joinGroup(id, 2, 1, Deadline::afterMs(20000), &world[1]).ok());
  early.join();
  REQUIRE(closedWithin(silent, 6000));
  REQUIRE(closedWithin(half, 6000));
  REQUIRE(closedWithin(burst.back(), 6500));
  for (const int fd : burst) ::close(fd);
  for (const int fd : {garbage, browser, half, silent, unknown}) ::close(fd);
  REQUIRE(eventually([&] { return openFds() <= fds + 4; }));  // the two ranks' tree: two ends
  REQUIRE_FALSE(world[0]->raised());
  REQUIRE_FALSE(world[1]->raised());
}

TEST_CASE("a group from a launcher's address", "[bootstrap]") {
  LaunchInfo info;
  info.nranks = 4;
  info.address = "127.0.0.1:" + std::to_string(freePort());
  const auto joinAll = [&](World* world) {
    return runRanks(4, [&](int rank) {
      LaunchInfo mine = info;
      mine.rank = rank;
      if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the server starts last
      return joinGroupFromEnv(mine, Deadline::afterMs(20000), &(*world)[static_cast<size_t>(rank)]);
    });
  };
  SECTION("several groups one after the other at one address") {
    World first(4);
    World second(4);
    REQUIRE(firstError(joinAll(&first)) == "");
    REQUIRE(firstError(joinAll(&second)) == "");
    REQUIRE(first[3]->nonce() != second[3]->nonce());
  }
  SECTION("a host name") {
    info.address = "localhost" + info.address.substr(info.address.find(':'));
    World world(4);
    REQUIRE(firstError(joinAll(&world)) == "");
  }
  SECTION("an IPv6 address") {
    info.address = "[::1]" + info.address.substr(info.address.find(':'));
    World world(4);
    REQUIRE(firstError(joinAll(&world)) == "");
  }
  SECTION("the port is taken") {
    int fd = -1;
    std::string host;
    Endpoint taken;
    taken.family = 4;
    taken.address = {127, 0, 0, 1};
    REQUIRE(listenAt(taken, &fd, &taken).ok());
    info.address = taken.text();
    std::unique_ptr<Group> group;
    const Status status = joinGroupFromEnv(info, Deadline::afterMs(20000), &group);
    ::close(fd);
    REQUIRE(status.code() == vcollSystemError);
    REQUIRE_THAT(status.text(), Contains(info.address) && Contains("VCOLL_COMM_ID") &&
                                    Contains("errno " + std::to_string(EADDRINUSE)));
  }
  SECTION("a missing rank is told what it missed, then all try again") {
    World world(4);
    const auto results = runRanks(3, [&](int rank) {
      LaunchInfo mine = info;
      mine.rank = rank;
      return joinGroupFromEnv(mine, Deadline::afterMs(1200), &world[static_cast<size_t>(rank)]);
    });
    for (const Status& status : results) {
      REQUIRE(status.code() == vcollTimeout);
      REQUIRE_THAT(status.text(), Contains("still missing rank 3 of 4"));
    }
    LaunchInfo late = info;
    late.rank = 3;
    REQUIRE(joinGroupFromEnv(late, Deadline::afterMs(20000), &world[3]).text() == results[0].text());
    REQUIRE(firstError(joinAll(&world)) == "");
  }
  SECTION("rank 0 never starts") {
    std::unique_ptr<Group> group;
    info.rank = 1;
    const Status status = joinGroupFromEnv(info, Deadline::afterMs(300), &group);
    REQUIRE(status.code() == vcollTimeout);
    REQUIRE_THAT(status.text(), Contains(info.address));
  }
  SECTION("one rank needs no address") {
    std::unique_ptr<Group> group;
    REQUIRE(joinGroupFromEnv(LaunchInfo{}, Deadline::afterMs(0), &group).ok());
    REQUIRE(group->size() == 1);
  }
}
