// SPDX-License-Identifier: Apache-2.0
// Socket helpers: addresses, listening, bounded connects. Nothing here knows about groups.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "bootstrap/listener.h"

namespace vcoll {

socklen_t toSockaddr(const Endpoint& endpoint, sockaddr_storage* storage);
Endpoint fromSockaddr(const sockaddr_storage& storage);
bool isLinkLocal(const Endpoint& endpoint);

// "host:port", "1.2.3.4:5" or "[::1]:5". `source` names where the text came from in the error.
Status parseHostPort(std::string_view text, std::string_view source, std::string* host, uint16_t* port);
// All addresses of host, those of VCOLL_SOCKET_FAMILY only if it is set. *literal: host is an address, not a name.
Status resolveHost(const std::string& host, uint16_t port, std::vector<Endpoint>* endpoints, bool* literal);

// All addresses of this host, IPv4 and IPv6.
Endpoint anyAddress(uint16_t port);
// A non-blocking listening socket. The address "::" takes IPv4 connections too. *bound gets the port the system chose.
Status listenAt(const Endpoint& endpoint, int* fd, Endpoint* bound);

void setNoDelay(int fd);
// The kernel probes a silent connection, so that a host that vanished is noticed within about a minute.
void setKeepAlive(int fd);
// close(), but not in a forked child: there the fds are closed already and the numbers may be others' by now.
void closeFd(int fd);

// Empty cancelled: never cancelled.
using Cancelled = std::function<bool()>;

struct ConnectWish {
  std::string what;          // starts the error text: "joining the rendezvous"
  Deadline deadline;         // of everything
  int64_t refusedMs = -1;    // give up when refused for so long; -1: retry until the deadline
  Cancelled cancelled = {};  // polled at least every 50 ms
};
// Tries the endpoints in turn, with growing pauses, and says hello on the first connection. As connectTo.
Status connectAny(const std::vector<Endpoint>& endpoints, const Nonce& nonce, Purpose purpose, const void* payload,
                  size_t bytes, const ConnectWish& wish, int* fd);

enum class WaitResult { kReady, kTimeout, kCancelled };
// Waits for poll events on a fd; bounded.
WaitResult waitFd(int fd, short pollEvents, Deadline deadline, const Cancelled& cancelled);

}  // namespace vcoll
