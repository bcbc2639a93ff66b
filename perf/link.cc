// SPDX-License-Identifier: Apache-2.0
#include "perf/link.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "perf/options.h"

namespace vcoll::perf {
namespace {

constexpr size_t kPiece = size_t{256} << 10;
constexpr size_t kSent = size_t{96} << 20;
constexpr int kAttempts = 3;

struct Place {
  char host[256];
  uint16_t port;
};

class Ring {
 public:
  explicit Ring(const Member& member) : member_(member) {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    socklen_t length = sizeof address;
    if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        listen(listener, 1) != 0 || getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      fail("listen");
    }
    Place mine{};
    gethostname(mine.host, sizeof mine.host - 1);
    mine.port = ntohs(address.sin_port);
    const std::vector<Place> all = member.gather(mine);
    const Place& next = all[static_cast<size_t>((member.rank() + 1) % member.ranks())];
    next_ = connectTo(std::strcmp(next.host, mine.host) == 0 ? "127.0.0.1" : next.host, next.port);
    previous_ = accept(listener, nullptr, nullptr);
    if (previous_ < 0) fail("accept");
    close(listener);
  }
  ~Ring() {
    close(next_);
    close(previous_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // Best speed of `kAttempts`: the slowest rank counts.
  double measure(bool sends, bool receives, const char* from, char* to, size_t bytes) const {
    double best = 0;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      member_.barrier();
      const auto begin = std::chrono::steady_clock::now();
      std::thread sender;
      if (sends) sender = std::thread([&] { move(bytes, [&](size_t at, size_t n) { return sendTo(from + at, n); }); });
      if (receives) move(bytes, [&](size_t at, size_t n) { return receiveTo(to + at, n); });
      if (sender.joinable()) sender.join();
      const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
      const std::vector<double> all = member_.gather(us);
      best = std::max(best, static_cast<double>(kSent) / *std::max_element(all.begin(), all.end()));
    }
    return best;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    member_.world().fail(kExitInternal, fmt::format("measuring the link: {}: {}", what, std::strerror(errno)));
  }

  int connectTo(const char* host, uint16_t port) const {
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(host, std::to_string(port).c_str(), &hints, &found) != 0 || found == nullptr) fail(host);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) != 0) fail("connect");
    freeaddrinfo(found);
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
  }

  ssize_t sendTo(const char* from, size_t n) const { return send(next_, from, n, MSG_NOSIGNAL); }
  ssize_t receiveTo(char* to, size_t n) const { return recv(previous_, to, n, 0); }

  template <typename Piece>
  void move(size_t bytes, const Piece& piece) const {
    for (size_t done = 0; done < kSent;) {
      const size_t at = done % bytes;
      const ssize_t n = piece(at, std::min({kPiece, kSent - done, bytes - at}));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail("send or receive");
      done += static_cast<size_t>(n);
    }
  }

  const Member& member_;
  int next_ = -1;
  int previous_ = -1;
};

}  // namespace

LinkSpeed measureLink(const Member& member, const char* from, char* to, size_t bytes) {
  if (member.ranks() < 2) return {};
  const Ring ring(member);
  LinkSpeed speed;
  speed.stream = ring.measure(member.rank() == 0, member.rank() == 1, from, to, bytes);
  speed.ring = ring.measure(true, true, from, to, bytes);
  return speed;
}

}  // namespace vcoll::perf
