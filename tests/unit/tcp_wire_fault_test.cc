// SPDX-License-Identifier: Apache-2.0
// The tcp wire when things go wrong: injected short transfers and resets, strangers, peers that break the protocol.
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "support/wire_group.h"
#include "transport/host/tcp_connection.h"
#include "transport/host/tcp_wire.h"

namespace vcoll {
namespace {

using namespace wiretest;

// Says hello to a rank as if it were another one; the rest of the connection is up to the test.
int dialRaw(const Group& group, int to, const std::vector<uint32_t>& hello) {
  int fd = -1;
  const Status status =
      connectTo(group.endpoint(to), tcpWireNonce(group.nonce().data(), to), Purpose::kWire, hello.data(),
                hello.size() * sizeof(uint32_t), "test", Deadline::afterMs(10000), nullptr, &fd);
  INFO(status.text());
  REQUIRE(status.ok());
  return fd;
}

TcpFrame frameOf(uint32_t kind) {
  TcpFrame frame;
  frame.kind = kind;
  return frame;
}

void sendRaw(int fd, const void* data, size_t bytes) {
  REQUIRE(send(fd, data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes));
}

// The other side closes within some seconds.
bool closedByPeer(int fd) {
  const Deadline deadline = Deadline::afterMs(10000);
  while (!deadline.passed()) {
    std::byte buffer[256];
    const ssize_t n = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

// Injected faults: what each call does follows from the seed and the number of the call.
namespace faults {
std::atomic<uint64_t> seed{0};
std::atomic<uint64_t> calls{0};
std::atomic<uint64_t> resetAt{0};  // this call and all after it fail with ECONNRESET; 0: none

// -1 with errno, or how many bytes may be moved.
int64_t plan() {
  const uint64_t call = calls.fetch_add(1) + 1;
  const uint64_t reset = resetAt.load();
  if (reset != 0 && call >= reset) {
    errno = ECONNRESET;
    return -1;
  }
  const uint64_t dice = mix64(seed.load() ^ mix64(call));
  switch (dice % 8) {
    case 0:
      errno = EINTR;
      return -1;
    case 1:
      errno = EAGAIN;
      return -1;
    case 2:
      return 1;
    case 3:
    case 4:
      return static_cast<int64_t>(1 + (dice >> 8) % 50);
    case 5:
      return static_cast<int64_t>(1 + (dice >> 8) % 9000);
    default:
      return INT64_MAX;
  }
}

// The first `limit` bytes of the message's vector.
std::vector<iovec> cut(const msghdr* message, int64_t limit) {
  std::vector<iovec> parts;
  auto left = static_cast<uint64_t>(limit);
  for (size_t i = 0; i < message->msg_iovlen && left > 0; i++) {
    iovec part = message->msg_iov[i];
    part.iov_len = std::min<size_t>(part.iov_len, left);
    left -= part.iov_len;
    parts.push_back(part);
  }
  return parts;
}

ssize_t sendSome(int fd, const msghdr* message, int flags) {
  const int64_t limit = plan();
  if (limit < 0) return -1;
  std::vector<iovec> parts = cut(message, limit);
  msghdr shorter{};
  shorter.msg_iov = parts.data();
  shorter.msg_iovlen = parts.size();
  return sendmsg(fd, &shorter, flags);
}

ssize_t receiveSome(int fd, msghdr* message, int flags) {
  const int64_t limit = plan();
  if (limit < 0) return -1;
  std::vector<iovec> parts = cut(message, limit);
  msghdr shorter{};
  shorter.msg_iov = parts.data();
  shorter.msg_iovlen = parts.size();
  return recvmsg(fd, &shorter, flags);
}

constexpr wiretest::Io kIo = {sendSome, receiveSome};

struct Guard {
  explicit Guard(uint64_t newSeed, uint64_t newResetAt = 0) {
    seed = newSeed;
    calls = 0;
    resetAt = newResetAt;
    wiretest::io = &kIo;
  }
  ~Guard() { wiretest::io = nullptr; }
};
}  // namespace faults

}  // namespace

TEST_CASE("tcp wire: short transfers, EINTR and EAGAIN change nothing", "[tcp_wire]") {
  for (uint64_t seed = 1; seed <= 200; seed++) {
    INFO("seed " << seed);
    constexpr size_t kBytes = 100000;
    Group group(2, kBytes + 16);
    const faults::Guard guard(seed);
    group.connectAll();
    Random random(seed);
    std::array<std::vector<std::byte>, 2> data = {hashBytes(seed * 2, kBytes), hashBytes(seed * 2 + 1, kBytes)};
    std::array<size_t, 2> offset{};
    std::array<uint64_t, 2> puts{};
    std::array<uint64_t, 2> signals{};
    while (offset[0] < kBytes || offset[1] < kBytes) {
      const int from = offset[0] >= kBytes ? 1 : offset[1] >= kBytes ? 0 : static_cast<int>(random.below(2));
      const auto self = static_cast<size_t>(from);
      const size_t size = std::min(kBytes - offset[self], 1 + random.below(random.below(2) == 0 ? 100 : 30000));
      REQUIRE(group.put(from, 1 - from, data[self].data() + offset[self], size, offset[self], 1));
      offset[self] += size;
      puts[self]++;
      for (uint64_t i = random.below(4); i > 0; i--) {
        const auto counter = static_cast<uint32_t>(1 + random.below(2));
        wire().signal(group.comm(from), 1 - from, counter, counter == 1 ? 0 : 1000);
        signals[self] += counter == 1 ? 0 : 1000;
      }
    }
    for (int rank = 0; rank < 2; rank++) {
      const auto peer = static_cast<size_t>(1 - rank);
      REQUIRE(group.host(rank).waitCounter(1, puts[peer]));
      REQUIRE(group.host(rank).waitCounter(2, signals[peer]));
      REQUIRE(group.host(rank).counter(1) == puts[peer]);
      REQUIRE(group.host(rank).counter(2) == signals[peer]);
      REQUIRE(memcmp(group.host(rank).window.data(), data[peer].data(), kBytes) == 0);
      for (size_t i = 0; i < 16; i++) REQUIRE(group.host(rank).window[kBytes + i] == std::byte{0});
      REQUIRE(group.flush(rank));
      REQUIRE(group.host(rank).lostCount() == 0);
    }
  }
}

TEST_CASE("tcp wire: a reset is reported once on each side and nobody hangs", "[tcp_wire]") {
  for (uint64_t seed = 1; seed <= 40; seed++) {
    INFO("seed " << seed);
    constexpr size_t kBytes = 1u << 20;
    Group group(2, kBytes);
    group.connectAll();
    const std::vector<std::byte> data = hashBytes(seed, kBytes);
    {
      const faults::Guard guard(seed, 1 + Random(seed).below(60));
      for (size_t i = 0; i < 64; i++) {
        REQUIRE(group.put(0, 1, data.data() + i * 16384, 16384, i * 16384, 1));
        wire().signal(group.comm(1), 0, 2, 1);
      }
      REQUIRE(group.host(0).waitLost(1));
      REQUIRE(group.host(1).waitLost(1));
      REQUIRE(group.flush(0));
      REQUIRE(wire().ready(group.comm(0), 1) == 1);
      // Dropped, without another report.
      wire().put(group.comm(0), 1, data.data(), 100, kWindow, 0, 1, 1);
    }
    group.close(0, true);
    group.close(1, true);
    CHECK(group.host(0).lostCount() == 1);
    CHECK(group.host(1).lostCount() == 1);
    CHECK(group.host(0).lost[0].first == 1);
    CHECK_THAT(group.host(0).lost[0].second, Catch::Contains("rank 1 at ") && Catch::Contains(":"));
    CHECK_THAT(group.host(1).lost[0].second, Catch::Contains("rank 0 at "));
  }
}

TEST_CASE("tcp wire: a put outside the window ends the connection and writes nothing", "[tcp_wire]") {
  Group group(2, 1000);
  group.connectAll();
  const std::vector<std::byte> data = hashBytes(5, 4096);
  REQUIRE(group.put(0, 1, data.data(), 900, 0, 1));
  SECTION("beyond the end") { wire().put(group.comm(0), 1, data.data(), 101, kWindow, 900, 1, 1); }
  SECTION("offset overflows") { wire().put(group.comm(0), 1, data.data(), 64, kWindow, UINT64_MAX - 20, 1, 1); }
  SECTION("another window") { wire().put(group.comm(0), 1, data.data(), 64, kWindow + 1, 0, 1, 1); }
  REQUIRE(group.host(1).waitLost(1));
  REQUIRE(group.host(0).waitLost(1));
  CHECK_THAT(group.host(1).lost[0].second, Catch::Contains("rank 0 at ") && Catch::Contains("not ours to write"));
  CHECK_THAT(group.host(0).lost[0].second, Catch::Contains("rank 1 at "));
  CHECK(group.host(1).counter(1) == 1);
  CHECK(memcmp(group.host(1).window.data(), data.data(), 900) == 0);
  for (size_t i = 900; i < 1000; i++) REQUIRE(group.host(1).window[i] == std::byte{0});
}

TEST_CASE("tcp wire: strangers and wrong frames", "[tcp_wire]") {
  Group group(2, 1000);
  const std::vector<uint32_t> hello = {1, 0, 1, 2};
  SECTION("malformed and duplicated hellos are dropped, the right one works") {
    for (const std::vector<uint32_t>& bad : std::vector<std::vector<uint32_t>>{
             {}, {1, 0, 1}, {1, 0, 1, 2, 0}, {2, 0, 1, 2}, {1, 0, 1, 3}, {1, 1, 1, 2}, {1, 0, 0, 2}, {1, 5, 1, 2}}) {
      const int fd = dialRaw(group, 1, bad);
      CHECK(closedByPeer(fd));
      close(fd);
    }
    group.connectAll();
    const int late = dialRaw(group, 1, hello);
    CHECK(closedByPeer(late));
    close(late);
    const std::byte data{42};
    REQUIRE(group.put(0, 1, &data, 1, 10, 1));
    CHECK(group.host(1).waitCounter(1, 1));
    CHECK(group.host(1).window[10] == data);
    CHECK(group.host(0).lostCount() + group.host(1).lostCount() == 0);
  }
  SECTION("of two live hellos the first counts; of a dead and a live one the live one") {
    const int dead = dialRaw(group, 1, hello);
    std::this_thread::sleep_for(20ms);  // its hello is accepted
    close(dead);
    std::this_thread::sleep_for(20ms);
    const int first = dialRaw(group, 1, hello);
    std::this_thread::sleep_for(20ms);
    const int second = dialRaw(group, 1, hello);
    CHECK(closedByPeer(second));
    const TcpFrame up = frameOf(TcpFrame::kUp);
    sendRaw(first, &up, sizeof up);
    CHECK(group.connect(1, {0}) == "");
    close(first);
    close(second);
    CHECK(group.host(1).waitLost(1));
  }
  SECTION("garbage before the connection is up fails connect()") {
    const int fd = dialRaw(group, 1, hello);
    const std::string garbage(100, 'x');
    sendRaw(fd, garbage.data(), garbage.size());
    CHECK_THAT(group.connect(1, {0}), Catch::Contains("rank 0 at ") && Catch::Contains("broke the protocol"));
    CHECK(closedByPeer(fd));
    close(fd);
    CHECK(group.host(1).lostCount() == 0);
    group.connectAll();
  }
  SECTION("afterwards it is a loss") {
    const int fd = dialRaw(group, 1, hello);
    TcpFrame frame = frameOf(TcpFrame::kUp);
    sendRaw(fd, &frame, sizeof frame);
    REQUIRE(group.connect(1, {0}) == "");
    SECTION("unknown kind") { frame = frameOf(TcpFrame::kMagic | 9); }
    SECTION("another byte order") { frame.kind = __builtin_bswap32(TcpFrame::kSignal); }
    SECTION("up again") { frame = frameOf(TcpFrame::kUp); }
    SECTION("reserved bits") {
      frame = frameOf(TcpFrame::kSignal);
      frame.zero = 1;
    }
    SECTION("a put of no bytes") {
      frame = frameOf(TcpFrame::kPut);
      frame.window = kWindow;
    }
    SECTION("frames after bye") {
      frame = frameOf(TcpFrame::kBye);
      sendRaw(fd, &frame, sizeof frame);
      frame = frameOf(TcpFrame::kSignal);
    }
    sendRaw(fd, &frame, sizeof frame);
    CHECK(group.host(1).waitLost(1));
    CHECK(closedByPeer(fd));
    close(fd);
    group.close(1, true);
    CHECK(group.host(1).lostCount() == 1);
  }
  SECTION("a window that goes away while a put comes in is not written any more") {
    const int fd = dialRaw(group, 1, hello);
    const TcpFrame up = frameOf(TcpFrame::kUp);
    sendRaw(fd, &up, sizeof up);
    REQUIRE(group.connect(1, {0}) == "");
    TcpFrame frame = frameOf(TcpFrame::kPut);
    frame.window = kWindow;
    frame.bytes = 1000;
    const std::vector<std::byte> data(1000, std::byte{1});
    sendRaw(fd, &frame, sizeof frame);
    sendRaw(fd, data.data(), 10);
    std::this_thread::sleep_for(50ms);
    wire().windowRemove(group.comm(1), kWindow + 1);
    CHECK(group.host(1).lostCount() == 0);
    wire().windowRemove(group.comm(1), kWindow);
    CHECK(group.host(1).lostCount() == 1);
    (void)send(fd, data.data() + 10, 500, MSG_NOSIGNAL);
    std::this_thread::sleep_for(50ms);
    CHECK(group.host(1).window[9] == std::byte{1});
    CHECK(group.host(1).window[10] == std::byte{0});
    close(fd);
  }
}

}  // namespace vcoll
