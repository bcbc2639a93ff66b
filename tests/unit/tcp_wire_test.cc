// SPDX-License-Identifier: Apache-2.0
// The tcp wire between ranks of one process: order, sizes, injected short transfers, losses, orderly ends, descriptors.
#include "transport/host/tcp_wire.h"

#include <dirent.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/hash.h"
#include "transport/host/tcp_connection.h"

namespace vcoll {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kWindow = 7;
constexpr uint32_t kCounters = 16;

std::byte hashByte(uint64_t seed, uint64_t position) { return static_cast<std::byte>(mix64(seed ^ mix64(position))); }

std::vector<std::byte> hashBytes(uint64_t seed, size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < bytes; i++) data[i] = hashByte(seed, i);
  return data;
}

// A repeatable series of numbers.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(mix64(seed)) {}
  uint64_t below(uint64_t bound) { return mix64(state_++) % bound; }

 private:
  uint64_t state_;
};

// The host fabric's side: a window, counters, and a record of what was reported.
struct FakeHost {
  explicit FakeHost(size_t windowBytes) : window(windowBytes) {}

  vcollWireHost_v1 table() {
    vcollWireHost_v1 host{};
    host.context = this;
    host.resolve = [](void* context, uint32_t id, uint64_t offset, uint64_t bytes) -> void* {
      auto* self = static_cast<FakeHost*>(context);
      if (self->resolveDelay.count() > 0) std::this_thread::sleep_for(self->resolveDelay);
      const size_t size = self->window.size();
      if (id != kWindow || offset > size || bytes > size - offset) return nullptr;
      return self->window.data() + offset;
    };
    host.signal = [](void* context, uint32_t counter, uint64_t add) {
      static_cast<FakeHost*>(context)->counters.at(counter).fetch_add(add, std::memory_order_release);
    };
    host.lost = [](void* context, int peer, const char* why) {
      auto* self = static_cast<FakeHost*>(context);
      const std::lock_guard lock(self->mutex);
      self->lost.emplace_back(peer, why);
      self->changed.notify_all();
    };
    host.wake = [](void* context) {
      auto* self = static_cast<FakeHost*>(context);
      const std::lock_guard lock(self->mutex);
      self->wakes++;
      self->changed.notify_all();
    };
    return host;
  }

  uint64_t counter(uint32_t index) const { return counters.at(index).load(std::memory_order_acquire); }
  bool waitCounter(uint32_t index, uint64_t value) const {
    const Deadline deadline = Deadline::afterMs(20000);
    while (counter(index) < value) {
      if (deadline.passed()) return false;
      std::this_thread::yield();
    }
    return true;
  }
  bool waitLost(size_t count) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 20s, [&] { return lost.size() >= count; });
  }
  size_t lostCount() {
    const std::lock_guard lock(mutex);
    return lost.size();
  }
  // Sleeps until the condition holds, looking only when woken: false if a wake is missing.
  bool sleepUntil(const std::function<bool()>& condition) {
    while (true) {
      uint64_t seen;
      {
        const std::lock_guard lock(mutex);
        seen = wakes;
      }
      if (condition()) return true;
      std::unique_lock lock(mutex);
      if (!changed.wait_for(lock, 20s, [&] { return wakes != seen; })) return false;
    }
  }

  std::vector<std::byte> window;
  std::array<std::atomic<uint64_t>, kCounters> counters{};
  std::chrono::microseconds resolveDelay{0};
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::pair<int, std::string>> lost;
  uint64_t wakes = 0;
};

const vcollWire_v1& wire() { return *tcpWire(); }

// The ranks of a group, all in this process.
class Group {
 public:
  Group(int nranks, size_t windowBytes) : nranks_(nranks), nonce_(randomNonce()) {
    addresses_.resize(static_cast<size_t>(nranks) * VCOLL_WIRE_ADDRESS_BYTES);
    for (int rank = 0; rank < nranks; rank++) {
      hosts_.push_back(std::make_unique<FakeHost>(windowBytes));
      comms_.push_back(nullptr);
      const vcollWireHost_v1 table = host(rank).table();
      char error[512] = "";
      const int code =
          wire().open(&table, nonce_.data(), rank, nranks,
                      addresses_.data() + static_cast<size_t>(rank) * VCOLL_WIRE_ADDRESS_BYTES, &comms_.back(), error);
      INFO(error);
      REQUIRE(code == 0);
    }
  }
  ~Group() {
    for (int rank = 0; rank < nranks_; rank++) close(rank, true);
  }

  // "" or the error of the round.
  std::string connect(int rank, const std::vector<int>& peers, int64_t timeoutMs = 20000,
                      const volatile int* cancelled = nullptr, int* code = nullptr) {
    char error[512] = "";
    const int result = wire().connect(comm(rank), addresses_.data(), peers.data(), static_cast<int>(peers.size()),
                                      timeoutMs, cancelled, error);
    if (code != nullptr) *code = result;
    if (result == 0) return "";
    return error[0] != '\0' ? error : "no text";
  }
  // Everyone with everyone.
  void connectAll() {
    std::vector<std::string> errors(static_cast<size_t>(nranks_));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < nranks_; rank++) {
      threads.emplace_back([&, rank] {
        std::vector<int> peers;
        for (int peer = nranks_ - 1; peer >= 0; peer--) {
          if (peer != rank) peers.push_back(peer);
        }
        errors[static_cast<size_t>(rank)] = connect(rank, peers);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& error : errors) REQUIRE(error == "");
  }
  void close(int rank, bool graceful) {
    if (comm(rank) == nullptr) return;
    wire().close(comm(rank), graceful ? 1 : 0);
    comms_[static_cast<size_t>(rank)] = nullptr;
  }

  FakeHost& host(int rank) { return *hosts_[static_cast<size_t>(rank)]; }
  vcollWireComm* comm(int rank) { return comms_[static_cast<size_t>(rank)]; }
  const Nonce& nonce() const { return nonce_; }
  Endpoint endpoint(int rank) const {
    Endpoint endpoint;
    memcpy(&endpoint, addresses_.data() + static_cast<size_t>(rank) * VCOLL_WIRE_ADDRESS_BYTES, sizeof endpoint);
    return endpoint;
  }
  bool put(int from, int to, const std::byte* source, uint64_t bytes, uint64_t offset, uint32_t counter) {
    if (!host(from).sleepUntil([&] { return wire().ready(comm(from), to) != 0; })) return false;
    wire().put(comm(from), to, source, bytes, kWindow, offset, counter, 1);
    return true;
  }
  bool flush(int rank) {
    return host(rank).sleepUntil([&] { return wire().flushed(comm(rank)) != 0; });
  }

 private:
  int nranks_;
  Nonce nonce_;
  std::vector<unsigned char> addresses_;
  std::vector<std::unique_ptr<FakeHost>> hosts_;
  std::vector<vcollWireComm*> comms_;
};

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

size_t openFds() {
  size_t count = 0;
  DIR* dir = opendir("/proc/self/fd");
  while (readdir(dir) != nullptr) count++;
  closedir(dir);
  return count;
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

TEST_CASE("tcp wire: puts of any size land in order, each before its signal", "[tcp_wire]") {
  constexpr size_t kBytes = 24u << 20;
  Group group(2, kBytes);
  group.connectAll();
  const std::vector<std::byte> data = hashBytes(1, kBytes);
  std::vector<size_t> sizes;
  Random random(2);
  for (size_t total = 0; total < kBytes;) {
    const size_t classes[] = {1, 40, 4097, 70000, 1u << 20};
    const size_t size = std::min(kBytes - total, 1 + random.below(classes[random.below(5)]));
    sizes.push_back(size);
    total += size;
  }
  bool sent = true;
  std::thread sender([&] {
    size_t offset = 0;
    for (const size_t size : sizes) {
      sent = sent && group.put(0, 1, data.data() + offset, size, offset, 3);
      if (size % 3 == 0) wire().signal(group.comm(0), 1, 4, 5);
      offset += size;
    }
    sent = sent && group.flush(0);
  });
  size_t offset = 0;
  size_t wrong = 0;
  uint64_t signals = 0;
  for (size_t i = 0; i < sizes.size(); i++) {
    if (!group.host(1).waitCounter(3, i + 1)) {
      wrong++;
      break;
    }
    if (memcmp(group.host(1).window.data() + offset, data.data() + offset, sizes[i]) != 0) wrong++;
    if (sizes[i] % 3 == 0) signals += 5;
    offset += sizes[i];
  }
  sender.join();
  CHECK(sent);
  CHECK(wrong == 0);
  CHECK(group.host(1).waitCounter(4, signals));
  CHECK(group.host(1).counter(4) == signals);
  CHECK(group.host(1).counter(3) == sizes.size());
  CHECK(group.host(0).lostCount() + group.host(1).lostCount() == 0);
}

TEST_CASE("tcp wire: four ranks, all directions at once", "[tcp_wire]") {
  constexpr int kRanks = 4;
  constexpr size_t kRegion = 3u << 20;  // of each sender in each window
  Group group(kRanks, kRegion * kRanks);
  group.connectAll();
  std::vector<std::vector<std::byte>> data;
  for (uint64_t rank = 0; rank < kRanks; rank++) data.push_back(hashBytes(10 + rank, kRegion));
  std::array<bool, kRanks> fine{};
  std::array<uint64_t, kRanks> puts{};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; rank++) {
    threads.emplace_back([&, rank] {
      const auto self = static_cast<size_t>(rank);
      Random random(100 + self);
      bool good = true;
      for (size_t offset = 0; offset < kRegion;) {
        const size_t size = std::min(kRegion - offset, 1 + random.below(200000));
        for (int peer = 0; peer < kRanks; peer++) {
          if (peer == rank) continue;
          good = good && group.put(rank, peer, data[self].data() + offset, size, kRegion * self + offset,
                                   static_cast<uint32_t>(rank));
        }
        offset += size;
        puts[self]++;
      }
      fine[self] = good && group.flush(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < kRanks; rank++) {
    CHECK(fine[static_cast<size_t>(rank)]);
    for (size_t peer = 0; peer < kRanks; peer++) {
      if (peer == static_cast<size_t>(rank)) continue;
      CHECK(group.host(rank).waitCounter(static_cast<uint32_t>(peer), puts[peer]));
      CHECK(group.host(rank).counter(static_cast<uint32_t>(peer)) == puts[peer]);
      CHECK(memcmp(group.host(rank).window.data() + kRegion * peer, data[peer].data(), kRegion) == 0);
    }
    CHECK(group.host(rank).lostCount() == 0);
  }
}

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

TEST_CASE("tcp wire: a put of no bytes is a signal", "[tcp_wire]") {
  Group group(2, 64);
  group.connectAll();
  wire().put(group.comm(1), 0, nullptr, 0, kWindow, 0, 9, 4);
  CHECK(group.host(0).waitCounter(9, 4));
  CHECK(group.host(0).lostCount() == 0);
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

TEST_CASE("tcp wire: connect ends in time and names the peer", "[tcp_wire]") {
  Group group(3, 64);
  int code = 0;
  SECTION("time-out of the accepting side, then again together") {
    const Deadline soon = Deadline::afterMs(3000);
    CHECK_THAT(group.connect(1, {0}, 100, nullptr, &code),
               Catch::Contains("rank 0 at " + group.endpoint(0).text()) && Catch::Contains("time-out"));
    CHECK(code == ETIMEDOUT);
    CHECK(!soon.passed());
    group.connectAll();
  }
  SECTION("time-out of the dialling side: the peer never takes the connection") {
    CHECK_THAT(group.connect(0, {1}, 100, nullptr, &code),
               Catch::Contains("rank 1 at " + group.endpoint(1).text()) && Catch::Contains("time-out"));
    CHECK(code == ETIMEDOUT);
    group.connectAll();
  }
  SECTION("cancelled") {
    volatile int cancelled = 0;
    std::thread canceller([&] {
      std::this_thread::sleep_for(50ms);
      cancelled = 1;
    });
    const Deadline soon = Deadline::afterMs(5000);
    CHECK_THAT(group.connect(1, {0, 2}, 20000, &cancelled, &code), Catch::Contains("cancelled"));
    canceller.join();
    CHECK(code == ECANCELED);
    CHECK(!soon.passed());
  }
  SECTION("in rounds; those connected are skipped") {
    std::string other;
    std::thread second([&] { other = group.connect(1, {0, 0}); });
    CHECK(group.connect(0, {1}) == "");
    second.join();
    CHECK(other == "");
    CHECK(group.connect(0, {1}) == "");
    group.connectAll();
    group.connectAll();
  }
  SECTION("bad peers") {
    CHECK(group.connect(0, {0}, 100, nullptr, &code) != "");
    CHECK(code == EINVAL);
    CHECK(group.connect(0, {3}, 100, nullptr, &code) != "");
    CHECK(code == EINVAL);
    CHECK(group.connect(0, {-1}, 100, nullptr, &code) != "");
    CHECK(code == EINVAL);
  }
  for (int rank = 0; rank < 3; rank++) CHECK(group.host(rank).lostCount() == 0);
}

TEST_CASE("tcp wire: an orderly end delivers what was put", "[tcp_wire]") {
  constexpr size_t kBytes = 16u << 20;
  constexpr size_t kPut = 1u << 20;
  Group group(2, kBytes);
  group.connectAll();
  const std::vector<std::byte> data = hashBytes(8, kBytes);
  std::vector<std::byte> source = data;
  group.host(1).resolveDelay = 2ms;  // so that much is in flight at the end
  for (size_t offset = 0; offset < kBytes; offset += kPut) {
    REQUIRE(group.put(0, 1, source.data() + offset, kPut, offset, 1));
    wire().signal(group.comm(1), 0, 2, 1);
  }
  group.close(0, true);
  std::fill(source.begin(), source.end(), std::byte{0});  // close() leaves no claim on the caller's memory
  REQUIRE(group.host(1).waitCounter(1, kBytes / kPut));
  CHECK(memcmp(group.host(1).window.data(), data.data(), kBytes) == 0);
  // The survivor may go on; nothing is lost, nothing hangs.
  for (int i = 0; i < 20; i++) {
    REQUIRE(group.put(1, 0, data.data(), kPut, 0, 1));
    std::this_thread::sleep_for(1ms);
  }
  REQUIRE(group.flush(1));
  CHECK(group.connect(1, {0}, 100) != "");
  group.close(1, true);
  CHECK(group.host(0).lostCount() + group.host(1).lostCount() == 0);
}

TEST_CASE("tcp wire: an abrupt end is a loss", "[tcp_wire]") {
  Group group(3, 1u << 20);
  group.connectAll();
  group.close(1, false);
  for (const int rank : {0, 2}) {
    REQUIRE(group.host(rank).waitLost(1));
    CHECK(group.host(rank).lost[0].first == 1);
    CHECK_THAT(group.host(rank).lost[0].second, Catch::Contains("rank 1 at "));
  }
  const std::byte data{1};
  REQUIRE(group.put(0, 2, &data, 1, 0, 1));
  CHECK(group.host(2).waitCounter(1, 1));
  CHECK(group.host(1).lostCount() == 0);
}

TEST_CASE("tcp wire: a stalled peer fills the queue; each wake that is needed comes", "[tcp_wire]") {
  constexpr size_t kPut = 100001;
  constexpr size_t kPuts = 400;
  Group group(2, kPut * 4);
  group.connectAll();
  group.host(1).resolveDelay = 300us;
  const std::vector<std::byte> data = hashBytes(3, kPut);
  size_t fullSeen = 0;
  for (size_t i = 0; i < kPuts; i++) {
    if (wire().ready(group.comm(0), 1) == 0) fullSeen++;
    REQUIRE(group.put(0, 1, data.data(), kPut, (i % 4) * kPut, 1));
    if (i % 50 == 49) REQUIRE(group.flush(0));
  }
  REQUIRE(group.flush(0));
  CHECK(fullSeen > 0);
  CHECK(group.host(1).waitCounter(1, kPuts));
  for (size_t i = 0; i < 4; i++) CHECK(memcmp(group.host(1).window.data() + i * kPut, data.data(), kPut) == 0);
}

TEST_CASE("tcp wire: descriptors are flat over many rounds", "[tcp_wire]") {
  size_t before = 0;
  for (int round = 0; round < 100; round++) {
    Group group(3, 4096);
    group.connectAll();
    const std::vector<std::byte> data = hashBytes(4, 4096);
    REQUIRE(group.put(round % 3, (round + 1) % 3, data.data(), 4096, 0, 1));
    REQUIRE(group.host((round + 1) % 3).waitCounter(1, 1));
    group.close(round % 3, round % 2 == 0);
    if (round == 0) {  // what a process has for good is open now
      group.close(1, true);
      group.close(2, true);
      std::this_thread::sleep_for(200ms);
      before = openFds();
    }
  }
  const Deadline deadline = Deadline::afterMs(3000);
  while (openFds() > before && !deadline.passed()) std::this_thread::sleep_for(5ms);
  CHECK(openFds() == before);
}

}  // namespace vcoll
