// SPDX-License-Identifier: Apache-2.0
// The one listening socket of the process. A connection must open with a hello frame that carries the magic, a nonce
// somebody here expects and a purpose; everything else (strangers, port scanners, silent connections) is dropped within
// a few seconds and never disturbs a communicator.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"

namespace vcoll {

// Where a process listens. Plain bytes: travels in exchanges and unique ids.
struct Endpoint {
  std::array<unsigned char, 16> address{};  // network order; IPv4 uses the first 4
  uint16_t port = 0;                        // host order
  uint16_t family = 0;                      // 4 or 6
  uint32_t scope = 0;                       // IPv6 zone of link-local addresses
  std::string text() const;                 // "10.0.0.1:4000", "[::1]:4000"
};

using Nonce = std::array<uint64_t, 2>;
Nonce randomNonce();

enum class Purpose : uint32_t { kRendezvous = 1, kTree = 2, kWire = 3 };

class Listener {
 public:
  // Opens the process's listener at first use: address by VCOLL_SOCKET_IFNAME / VCOLL_SOCKET_FAMILY, port chosen by the
  // system.
  static Status get(Listener** listener);
  const Endpoint& endpoint() const;

  // Runs on the progress thread for each connection that says hello with this nonce and purpose; the callee owns fd
  // (non-blocking, TCP_NODELAY). payload is the hello's payload (at most 4 KiB).
  using Accept = std::function<void(int fd, std::vector<std::byte> payload)>;
  void expect(const Nonce& nonce, Purpose purpose, Accept accept);
  // When it returns no such callback runs any more.
  void forget(const Nonce& nonce, Purpose purpose);
};

// Connects (retrying with jitter while refused, until the deadline) and says hello. The fd is non-blocking,
// TCP_NODELAY, CLOEXEC. Errors name the endpoint, `what` and the errno. Polls *cancelled (may be null) at least every
// 50 ms.
Status connectTo(const Endpoint& endpoint, const Nonce& nonce, Purpose purpose, const void* payload, size_t bytes,
                 const std::string& what, Deadline deadline, const std::function<bool()>& cancelled, int* fd);

}  // namespace vcoll
