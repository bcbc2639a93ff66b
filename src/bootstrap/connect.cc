// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <thread>

#include "bootstrap/hello.h"
#include "bootstrap/socket.h"

namespace vcoll {
namespace {

bool worthRetrying(int error) {
  switch (error) {
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EADDRNOTAVAIL:  // no local port is free just now
    case EAGAIN:
      return true;
    default:
      return false;
  }
}

// TCP connects a socket to itself when the port it tries is the local port the system picked for it.
bool connectedToItself(int fd) {
  sockaddr_storage local{};
  sockaddr_storage remote{};
  socklen_t localLength = sizeof local;
  socklen_t remoteLength = sizeof remote;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &localLength) != 0) return false;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&remote), &remoteLength) != 0) return false;
  return localLength == remoteLength && std::memcmp(&local, &remote, localLength) == 0;
}

// One attempt. 0 and *fd, or an errno; ECANCELED when cancelled.
int connectOnce(const Endpoint& endpoint, Deadline deadline, const Cancelled& cancelled, int* fd) {
  Endpoint target = endpoint;
  Listener* listener = nullptr;
  // The zone of a link-local address counts on the machine that uses it, not on the one that sent the address.
  if (isLinkLocal(target) && Listener::get(&listener).ok() && isLinkLocal(listener->endpoint())) {
    target.scope = listener->endpoint().scope;
  }
  sockaddr_storage storage;
  const socklen_t length = toSockaddr(target, &storage);
  const int sock = ::socket(storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (sock < 0) return errno;
  int error = 0;
  if (::connect(sock, reinterpret_cast<sockaddr*>(&storage), length) != 0) error = errno;
  if (error == EINPROGRESS || error == EINTR) {
    const WaitResult result = waitFd(sock, POLLOUT, deadline, cancelled);
    socklen_t size = sizeof error;
    if (result == WaitResult::kTimeout) {
      error = ETIMEDOUT;
    } else if (result == WaitResult::kCancelled) {
      error = ECANCELED;
    } else if (::getsockopt(sock, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
      error = errno;
    }
  }
  if (error == 0 && connectedToItself(sock)) error = ECONNREFUSED;
  if (error != 0) {
    ::close(sock);
    return error;
  }
  setNoDelay(sock);
  *fd = sock;
  return 0;
}

int sendHello(int fd, const Nonce& nonce, Purpose purpose, const void* payload, size_t bytes, Deadline deadline,
              const Cancelled& cancelled) {
  HelloHeader header;
  header.purpose = static_cast<uint32_t>(purpose);
  header.nonce = nonce;
  header.payloadBytes = static_cast<uint32_t>(bytes);
  std::vector<std::byte> message(sizeof header + bytes);
  std::memcpy(message.data(), &header, sizeof header);
  if (bytes > 0) std::memcpy(message.data() + sizeof header, payload, bytes);
  size_t sent = 0;
  while (sent < message.size()) {
    const ssize_t count = ::send(fd, message.data() + sent, message.size() - sent, MSG_NOSIGNAL);
    if (count >= 0) {
      sent += static_cast<size_t>(count);
    } else if (errno == EAGAIN) {
      const WaitResult result = waitFd(fd, POLLOUT, deadline, cancelled);
      if (result == WaitResult::kTimeout) return ETIMEDOUT;
      if (result == WaitResult::kCancelled) return ECANCELED;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

// Sleeps ms or until the deadline or the cancellation.
void pauseFor(int64_t ms, Deadline deadline, const Cancelled& cancelled) {
  const Deadline end = Deadline::afterMs(std::min(ms, deadline.leftMs()));
  while (!end.passed() && !(cancelled && cancelled())) {
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min<int64_t>(end.leftMs(), 50)));
  }
}

std::string joinTexts(const std::vector<Endpoint>& endpoints) {
  std::string text;
  for (const Endpoint& endpoint : endpoints) text += (text.empty() ? "" : ", ") + endpoint.text();
  return text;
}

}  // namespace

Status connectAny(const std::vector<Endpoint>& endpoints, const Nonce& nonce, Purpose purpose, const void* payload,
                  size_t bytes, const ConnectWish& wish, int* fd) {
  if (bytes > kMaxHelloPayload) return makeError(vcollInternalError, "a hello of {} bytes", bytes);
  std::minstd_rand random(static_cast<unsigned>(nonce[0] ^ reinterpret_cast<uintptr_t>(&endpoints)));
  const Deadline refusedEnd = Deadline::afterMs(wish.refusedMs < 0 ? wish.deadline.leftMs() : wish.refusedMs);
  int64_t pauseMs = 4;
  for (size_t attempt = 0;; ++attempt) {
    const Endpoint& endpoint = endpoints[attempt % endpoints.size()];
    const int64_t attemptMs = endpoints.size() == 1 ? wish.deadline.leftMs() : 3000;
    const Deadline attemptEnd = Deadline::afterMs(std::min(attemptMs, wish.deadline.leftMs()));
    int sock = -1;
    int error = connectOnce(endpoint, attemptEnd, wish.cancelled, &sock);
    if (error == 0) error = sendHello(sock, nonce, purpose, payload, bytes, attemptEnd, wish.cancelled);
    if (error == 0) {
      *fd = sock;
      return {};
    }
    if (sock >= 0) ::close(sock);
    if (error == ECANCELED || (wish.cancelled && wish.cancelled())) {
      return makeError(vcollAborted, "{}: cancelled while connecting to {}", wish.what, endpoint.text());
    }
    if (wish.deadline.passed()) {
      return makeError(vcollTimeout,
                       "{}: time-out after {} attempts to connect to {}; the last one failed with: {} (errno {})",
                       wish.what, attempt + 1, joinTexts(endpoints), std::strerror(error), error);
    }
    const bool refusedTooLong = error == ECONNREFUSED && refusedEnd.passed();
    // Of several addresses of one host some may be of no use here; what counts is the deadline.
    if (refusedTooLong || (!worthRetrying(error) && endpoints.size() == 1)) {
      return systemError(formatText("{}: connecting to {}", wish.what, endpoint.text()), error);
    }
    if (attempt + 1 < endpoints.size()) continue;
    pauseFor(pauseMs + static_cast<int64_t>(random() % static_cast<unsigned>(pauseMs)), wish.deadline, wish.cancelled);
    pauseMs = std::min<int64_t>(pauseMs * 2, 200);
  }
}

Status connectTo(const Endpoint& endpoint, const Nonce& nonce, Purpose purpose, const void* payload, size_t bytes,
                 const std::string& what, Deadline deadline, const std::function<bool()>& cancelled, int* fd) {
  return connectAny({endpoint}, nonce, purpose, payload, bytes, {what, deadline, -1, cancelled}, fd);
}

}  // namespace vcoll
