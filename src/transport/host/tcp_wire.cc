// SPDX-License-Identifier: Apache-2.0
#include "transport/host/tcp_wire.h"

#include <poll.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "bootstrap/engine.h"
#include "bootstrap/listener.h"
#include "bootstrap/socket.h"
#include "transport/host/tcp_connection.h"

struct vcollWireComm {
  vcoll::TcpShared shared;
  vcoll::Engine* engine = nullptr;
  vcoll::Listener* listener = nullptr;
  uint64_t nonce[2] = {};
  int rank = 0;
  int nranks = 0;
  std::vector<std::unique_ptr<vcoll::TcpConnection>> connections;  // by peer; written under shared.mutex
  bool attended = false;
  std::vector<vcoll::TcpConnection*> held;  // while attended: signals may wait in these
  std::map<int, int> accepted;              // peer to fd: said hello, waits for our connect(); under shared.mutex
};

namespace vcoll {
namespace {

constexpr int kErrorBytes = 512;
constexpr int64_t kPollMs = 20;  // how often a wait looks at *cancelled

// The payload of the hello: who connects to whom.
struct Hello {
  uint32_t version;
  uint32_t from;
  uint32_t to;
  uint32_t nranks;
};
constexpr uint32_t kHelloVersion = 1;

static_assert(std::is_trivially_copyable_v<Endpoint> && sizeof(Endpoint) <= VCOLL_WIRE_ADDRESS_BYTES);

int fail(char* error, int code, const std::string& text) {
  snprintf(error, kErrorBytes, "%s", text.c_str());
  return code;
}

int fail(char* error, const Status& status) {
  const int code = status.code() == vcollTimeout ? ETIMEDOUT : status.code() == vcollAborted ? ECANCELED : EIO;
  return fail(error, code, status.text());
}

bool peerGone(int fd) {
  pollfd wanted{fd, POLLRDHUP, 0};
  return poll(&wanted, 1, 0) != 0;
}

// A peer said hello. The connection waits until this rank lists the peer in its connect().
void onHello(vcollWireComm* comm, int fd, const std::vector<std::byte>& payload) {
  Hello hello{};
  bool good = payload.size() == sizeof hello;
  if (good) {
    memcpy(&hello, payload.data(), sizeof hello);
    good = hello.version == kHelloVersion && hello.to == static_cast<uint32_t>(comm->rank) && hello.from < hello.to &&
           hello.nranks == static_cast<uint32_t>(comm->nranks);
  }
  const std::lock_guard lock(comm->shared.mutex);
  const int peer = static_cast<int>(hello.from);
  if (good && comm->connections[hello.from] == nullptr) {
    int& waiting = comm->accepted.try_emplace(peer, -1).first->second;
    if (waiting < 0 || peerGone(waiting)) {  // gone: the peer gave up before and tries again
      std::swap(waiting, fd);
      comm->shared.changed.notify_all();
    }
  }
  if (fd >= 0) closeFd(fd);
}

const char* unusable() { return nullptr; }

int openWire(const vcollWireHost_v1* host, const uint64_t nonce[2], int rank, int nranks,
             unsigned char address[VCOLL_WIRE_ADDRESS_BYTES], vcollWireComm** result, char* error) {
  auto comm = std::make_unique<vcollWireComm>();
  if (const Status status = Engine::get(&comm->engine); !status.ok()) return fail(error, status);
  if (const Status status = Listener::get(&comm->listener); !status.ok()) return fail(error, status);
  if (const Status status = comm->shared.sockets.open(comm->engine); !status.ok()) return fail(error, status);
  comm->shared.host = *host;
  memcpy(comm->nonce, nonce, sizeof comm->nonce);
  comm->rank = rank;
  comm->nranks = nranks;
  comm->connections.resize(static_cast<size_t>(nranks));
  const Endpoint& endpoint = comm->listener->endpoint();
  memset(address, 0, VCOLL_WIRE_ADDRESS_BYTES);
  memcpy(address, &endpoint, sizeof endpoint);
  vcollWireComm* raw = comm.release();
  raw->listener->expect(tcpWireNonce(nonce, rank), Purpose::kWire,
                        [raw](int fd, const std::vector<std::byte>& payload) { onHello(raw, fd, payload); });
  *result = raw;
  return 0;
}

// One call of connect().
class ConnectRound {
 public:
  ConnectRound(vcollWireComm* comm, const unsigned char* addresses, Deadline deadline, const volatile int* cancelled,
               char* error)
      : comm_(comm), addresses_(addresses), deadline_(deadline), cancelled_(cancelled), error_(error) {}

  int run(const int* peers, int npeers) {
    for (int i = 0; i < npeers; i++) {
      if (const int code = take(peers[i]); code != 0) return code;
    }
    for (const int peer : peers_) {
      if (peer < comm_->rank) continue;
      if (const int code = dial(peer); code != 0) return giveUp(code);
    }
    const int code = await();
    return code == 0 ? 0 : giveUp(code);
  }

 private:
  TcpConnection* at(int peer) { return comm_->connections[static_cast<size_t>(peer)].get(); }
  bool cancelled() const { return cancelled_ != nullptr && __atomic_load_n(cancelled_, __ATOMIC_RELAXED) != 0; }

  Endpoint endpointOf(int peer) const {
    Endpoint endpoint;
    memcpy(&endpoint, addresses_ + static_cast<size_t>(peer) * VCOLL_WIRE_ADDRESS_BYTES, sizeof endpoint);
    return endpoint;
  }
  std::string nameOf(int peer) const { return formatText("rank {} at {}", peer, endpointOf(peer).text()); }

  int take(int peer) {
    if (peer < 0 || peer >= comm_->nranks || peer == comm_->rank) {
      return fail(error_, EINVAL,
                  formatText("rank {} cannot connect to rank {} of {}", comm_->rank, peer, comm_->nranks));
    }
    const Endpoint endpoint = endpointOf(peer);
    if (endpoint.family != 4 && endpoint.family != 6) {
      return fail(error_, EINVAL, formatText("the address of rank {} is not one of the tcp wire", peer));
    }
    // One that has ended counts: a peer that left after it connected has no need of more, and a lost one was reported.
    if (at(peer) != nullptr) return 0;
    if (std::find(peers_.begin(), peers_.end(), peer) == peers_.end()) peers_.push_back(peer);
    return 0;
  }

  int dial(int peer) {
    const Hello hello{kHelloVersion, static_cast<uint32_t>(comm_->rank), static_cast<uint32_t>(peer),
                      static_cast<uint32_t>(comm_->nranks)};
    int fd = -1;
    const Status status = connectTo(
        endpointOf(peer), tcpWireNonce(comm_->nonce, peer), Purpose::kWire, &hello, sizeof hello,
        formatText("connecting to {}", nameOf(peer)), deadline_, [this] { return cancelled(); }, &fd);
    if (!status.ok()) return fail(error_, status);
    return install(peer, fd);
  }

  int install(int peer, int fd) {
    auto made = std::make_unique<TcpConnection>(comm_->engine, &comm_->shared, peer, nameOf(peer), fd);
    TcpConnection* connection = made.get();
    {
      const std::lock_guard lock(comm_->shared.mutex);
      comm_->connections[static_cast<size_t>(peer)] = std::move(made);
    }
    const Status status = connection->start();
    return status.ok() ? 0 : fail(error_, status);
  }

  // Takes one accepted connection of this round: false if there is none.
  bool takeAccepted(int* peer, int* fd) {
    for (const int candidate : peers_) {
      const auto found = comm_->accepted.find(candidate);
      if (at(candidate) != nullptr || found == comm_->accepted.end()) continue;
      *peer = candidate;
      *fd = found->second;
      comm_->accepted.erase(found);
      if (!peerGone(*fd)) return true;
      closeFd(*fd);
    }
    return false;
  }

  // Installs what lower ranks dial until all peers are up.
  int await() {
    std::unique_lock lock(comm_->shared.mutex);
    while (true) {
      int peer = -1;
      int fd = -1;
      while (takeAccepted(&peer, &fd)) {
        lock.unlock();
        const int code = install(peer, fd);
        lock.lock();
        if (code != 0) return code;
      }
      int missing = -1;
      for (const int candidate : peers_) {
        const TcpConnection* connection = at(candidate);
        if (connection != nullptr && connection->up()) continue;
        if (connection != nullptr && !connection->failure().empty()) {
          return fail(error_, ECONNABORTED, connection->failure());
        }
        missing = candidate;
      }
      if (missing < 0) return 0;
      if (cancelled()) return fail(error_, ECANCELED, "cancelled while waiting for " + nameOf(missing));
      if (deadline_.passed()) {
        return fail(error_, ETIMEDOUT,
                    formatText("time-out: {} {}", nameOf(missing),
                               at(missing) == nullptr ? "has not connected" : "has not answered"));
      }
      comm_->shared.changed.wait_for(lock, std::chrono::milliseconds(std::min(deadline_.leftMs(), kPollMs)));
    }
  }

  // Drops what is not up, so that the peers notice and another round can start clean.
  int giveUp(int code) {
    const std::lock_guard serving(comm_->shared.sockets.mutex());
    for (const int peer : peers_) {
      std::unique_ptr<TcpConnection> half;
      {
        const std::lock_guard lock(comm_->shared.mutex);
        if (at(peer) != nullptr && !at(peer)->up()) half = std::move(comm_->connections[static_cast<size_t>(peer)]);
      }
      if (half != nullptr) TcpConnection::release(std::move(half), false);
    }
    return code;
  }

  vcollWireComm* const comm_;
  const unsigned char* const addresses_;
  const Deadline deadline_;
  const volatile int* const cancelled_;
  char* const error_;
  std::vector<int> peers_;  // not connected before
};

int connectWire(vcollWireComm* comm, const unsigned char* addresses, const int* peers, int npeers, int64_t timeoutMs,
                const volatile int* cancelled, char* error) {
  return ConnectRound(comm, addresses, Deadline::afterMs(timeoutMs), cancelled, error).run(peers, npeers);
}

int windowAdd(vcollWireComm*, uint32_t, void*, uint64_t, char*) { return 0; }

// Once it returns nothing writes into the window any more (resolve() must refuse it already).
void windowRemove(vcollWireComm* comm, uint32_t window) {
  if (inForkedChild()) return;
  const std::lock_guard serving(comm->shared.sockets.mutex());
  std::vector<TcpConnection*> all;
  {
    const std::lock_guard lock(comm->shared.mutex);
    for (const auto& connection : comm->connections) {
      if (connection != nullptr) all.push_back(connection.get());
    }
  }
  for (TcpConnection* connection : all) connection->forgetWindow(window);
}

TcpConnection* connectionTo(vcollWireComm* comm, int peer) {
  TcpConnection* connection = comm->connections[static_cast<size_t>(peer)].get();
  assert(connection != nullptr);
  return connection;
}

int ready(vcollWireComm* comm, int peer) { return connectionTo(comm, peer)->ready() ? 1 : 0; }

void put(vcollWireComm* comm, int peer, const void* source, uint64_t bytes, uint32_t window, uint64_t offset,
         uint32_t counter, uint64_t add) {
  TcpConnection* connection = connectionTo(comm, peer);
  if (bytes == 0) {
    connection->signal(counter, add, false);
  } else {
    connection->put(source, bytes, window, offset, counter, add);
  }
}

void signal(vcollWireComm* comm, int peer, uint32_t counter, uint64_t add) {
  TcpConnection* connection = connectionTo(comm, peer);
  connection->signal(counter, add, comm->attended);
  if (comm->attended && std::find(comm->held.begin(), comm->held.end(), connection) == comm->held.end()) {
    comm->held.push_back(connection);
  }
}

int flushed(vcollWireComm* comm) { return comm->shared.unflushed.load(std::memory_order_acquire) == 0 ? 1 : 0; }

void flushHeld(vcollWireComm* comm) {
  for (TcpConnection* connection : comm->held) connection->flush();
  comm->held.clear();
}

void attend(vcollWireComm* comm, int on) {
  comm->attended = on != 0;
  flushHeld(comm);
  comm->shared.sockets.attend(on != 0);
}

int serve(vcollWireComm* comm) {
  flushHeld(comm);
  return comm->shared.sockets.poll() ? 1 : 0;
}

void closeWire(vcollWireComm* comm, int graceful) {
  // A forked child has no progress thread, and the connections are its parent's.
  if (inForkedChild()) return;
  comm->listener->forget(tcpWireNonce(comm->nonce, comm->rank), Purpose::kWire);
  {
    const std::lock_guard serving(comm->shared.sockets.mutex());
    for (auto& connection : comm->connections) {
      if (connection != nullptr) TcpConnection::release(std::move(connection), graceful != 0);
    }
  }
  for (const auto& [peer, fd] : comm->accepted) closeFd(fd);
  delete comm;
}

}  // namespace

Nonce tcpWireNonce(const uint64_t nonce[2], int rank) {
  const uint64_t salt = mix64(static_cast<uint64_t>(rank) + 1);
  return {mix64(nonce[0] ^ salt), mix64(nonce[1] + salt)};
}

const vcollWire_v1* tcpWire() {
  static constexpr vcollWire_v1 kTable = {
      VCOLL_WIRE_VERSION, "tcp",  unusable, openWire, connectWire, windowAdd, windowRemove, ready, put, signal, flushed,
      closeWire,          attend, serve,
  };
  return &kTable;
}

}  // namespace vcoll
