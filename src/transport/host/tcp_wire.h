// SPDX-License-Identifier: Apache-2.0
// The built-in wire: one TCP connection per pair of ranks, served by the process's progress thread.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <atomic>

#include "bootstrap/listener.h"
#include "transport/host/wire.h"

namespace vcoll {

const vcollWire_v1* tcpWire();

// What a rank's hello carries, from the communicator's nonce. Several ranks of a group may live in one process, and so
// behind one listener: each has its own.
Nonce tcpWireNonce(const uint64_t nonce[2], int rank);

// For tests only: replaces sendmsg and recvmsg, to inject short transfers and errors.
namespace wiretest {
struct Io {
  ssize_t (*send)(int fd, const msghdr* message, int flags);
  ssize_t (*receive)(int fd, msghdr* message, int flags);
};
// nullptr: the system's calls. The table must stay alive while any connection is.
extern std::atomic<const Io*> io;
}  // namespace wiretest

}  // namespace vcoll
