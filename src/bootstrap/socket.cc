// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/params.h"
#include "bootstrap/engine.h"

namespace vcoll {

socklen_t toSockaddr(const Endpoint& endpoint, sockaddr_storage* storage) {
  *storage = {};
  if (endpoint.family == 6) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(endpoint.port);
    address.sin6_scope_id = endpoint.scope;
    std::memcpy(&address.sin6_addr, endpoint.address.data(), 16);
    std::memcpy(storage, &address, sizeof address);
    return sizeof address;
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(endpoint.port);
  std::memcpy(&address.sin_addr, endpoint.address.data(), 4);
  std::memcpy(storage, &address, sizeof address);
  return sizeof address;
}

Endpoint fromSockaddr(const sockaddr_storage& storage) {
  Endpoint endpoint;
  if (storage.ss_family == AF_INET6) {
    sockaddr_in6 address;
    std::memcpy(&address, &storage, sizeof address);
    endpoint.family = 6;
    endpoint.port = ntohs(address.sin6_port);
    endpoint.scope = address.sin6_scope_id;
    std::memcpy(endpoint.address.data(), &address.sin6_addr, 16);
  } else if (storage.ss_family == AF_INET) {
    sockaddr_in address;
    std::memcpy(&address, &storage, sizeof address);
    endpoint.family = 4;
    endpoint.port = ntohs(address.sin_port);
    std::memcpy(endpoint.address.data(), &address.sin_addr, 4);
  }
  return endpoint;
}

bool isLinkLocal(const Endpoint& endpoint) {
  return endpoint.family == 6 && endpoint.address[0] == 0xfe && (endpoint.address[1] & 0xc0) == 0x80;
}

std::string Endpoint::text() const {
  char buffer[INET6_ADDRSTRLEN] = "?";
  inet_ntop(family == 6 ? AF_INET6 : AF_INET, address.data(), buffer, sizeof buffer);
  if (family != 6) return formatText("{}:{}", buffer, port);
  if (scope != 0) return formatText("[{}%{}]:{}", buffer, scope, port);
  return formatText("[{}]:{}", buffer, port);
}

Status parseHostPort(std::string_view text, std::string_view source, std::string* host, uint16_t* port) {
  const size_t colon = text.rfind(':');
  std::string_view name = text.substr(0, colon == std::string_view::npos ? 0 : colon);
  const bool bracketed = name.size() > 2 && name.front() == '[' && name.back() == ']';
  if (bracketed) name = name.substr(1, name.size() - 2);
  uint16_t number = 0;
  const char* end = text.data() + text.size();
  const char* begin = colon == std::string_view::npos ? end : text.data() + colon + 1;
  const auto [stop, error] = std::from_chars(begin, end, number);
  const bool odd = name.find_first_of(bracketed ? "[]" : ":[]") != std::string_view::npos;
  if (name.empty() || odd || error != std::errc() || stop != end || number == 0) {
    return makeError(vcollInvalidArgument, "{} is \"{}\": it must be host:port or [ipv6]:port", source, text);
  }
  *host = name;
  *port = number;
  return {};
}

Status resolveHost(const std::string& host, uint16_t port, std::vector<Endpoint>* endpoints, bool* literal) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* list = nullptr;
  int error = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  *literal = error == 0;
  if (error != 0) {
    Params fresh;
    VCOLL_TRY(readParams(&fresh));
    if (fresh.socketFamily == "AF_INET") hints.ai_family = AF_INET;
    if (fresh.socketFamily == "AF_INET6") hints.ai_family = AF_INET6;
    hints.ai_flags = 0;
    error = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  }
  if (error != 0) return makeError(vcollSystemError, "looking up the host \"{}\": {}", host, gai_strerror(error));
  endpoints->clear();
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    sockaddr_storage storage{};
    std::memcpy(&storage, entry->ai_addr, std::min<size_t>(entry->ai_addrlen, sizeof storage));
    Endpoint endpoint = fromSockaddr(storage);
    endpoint.port = port;
    if (endpoint.family != 0) endpoints->push_back(endpoint);
  }
  freeaddrinfo(list);
  if (endpoints->empty()) return makeError(vcollSystemError, "the host \"{}\" has no IPv4 or IPv6 address", host);
  return {};
}

Endpoint anyAddress(uint16_t port) {
  Endpoint endpoint;
  endpoint.port = port;
  const int probe = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  endpoint.family = probe >= 0 ? 6 : 4;  // a kernel may have no IPv6
  if (probe >= 0) ::close(probe);
  return endpoint;
}

Status listenAt(const Endpoint& endpoint, int* fd, Endpoint* bound) {
  const int family = endpoint.family == 6 ? AF_INET6 : AF_INET;
  const int sock = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (sock < 0) return systemError(formatText("socket to listen at {}", endpoint.text()));
  const int one = 1;
  ::setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (endpoint.family == 6) {
    const bool any = std::all_of(endpoint.address.begin(), endpoint.address.end(), [](auto byte) { return byte == 0; });
    const int only = any ? 0 : 1;
    ::setsockopt(sock, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
  }
  sockaddr_storage storage;
  socklen_t length = toSockaddr(endpoint, &storage);
  if (::bind(sock, reinterpret_cast<sockaddr*>(&storage), length) != 0 || ::listen(sock, SOMAXCONN) != 0) {
    Status status = systemError(formatText("listening at {}", endpoint.text()));
    ::close(sock);
    return status;
  }
  length = sizeof storage;
  if (::getsockname(sock, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    Status status = systemError(formatText("getsockname of the listener at {}", endpoint.text()));
    ::close(sock);
    return status;
  }
  *fd = sock;
  *bound = fromSockaddr(storage);
  return {};
}

void setNoDelay(int fd) {
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

void setKeepAlive(int fd) {
  const int one = 1;
  const int idleSeconds = 20;
  const int probeSeconds = 10;
  const int probes = 4;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idleSeconds, sizeof idleSeconds);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &probeSeconds, sizeof probeSeconds);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

void closeFd(int fd) {
  if (fd >= 0 && !inForkedChild()) ::close(fd);
}

WaitResult waitFd(int fd, short pollEvents, Deadline deadline, const Cancelled& cancelled) {
  for (;;) {
    if (cancelled && cancelled()) return WaitResult::kCancelled;
    int64_t ms = std::min<int64_t>(deadline.leftMs(), 1'000'000);
    if (cancelled) ms = std::min<int64_t>(ms, 50);
    pollfd entry{fd, pollEvents, 0};
    if (::poll(&entry, 1, static_cast<int>(ms)) > 0) return WaitResult::kReady;
    if (deadline.passed()) return WaitResult::kTimeout;
  }
}

}  // namespace vcoll
