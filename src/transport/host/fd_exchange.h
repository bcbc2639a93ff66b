// SPDX-License-Identifier: Apache-2.0
// Hands file descriptors to ranks of the same machine over an abstract Unix datagram socket: no file system entry, one
// descriptor whatever the number of ranks. That a descriptor arrives is the proof that two ranks can share memory.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "bootstrap/listener.h"
#include "memory/shared_memory.h"

namespace vcoll {

class FdExchange {
 public:
  // nonce: of the communicator; a datagram without it, or from another user, is dropped.
  static Status open(const Nonce& nonce, int rank, FdExchange* exchange);
  bool isOpen() const { return static_cast<bool>(socket_); }

  // Sends fd to each of peers and receives theirs. `round` is equal on both sides and grows. Peers that cannot be
  // reached get no descriptor in *fds (in the order of peers); with `mustReach` that is an error instead. cancelled()
  // ends the wait.
  Status exchange(uint64_t round, int fd, const std::vector<int>& peers, bool mustReach, Deadline deadline,
                  const std::function<bool()>& cancelled, std::vector<UniqueFd>* fds);

 private:
  enum class Sent { kYes, kLater, kUnreachable };
  Sent send(uint64_t round, int fd, int peer, Status* error);
  Status receiveAll();

  UniqueFd socket_;
  Nonce nonce_{};
  int rank_ = 0;
  std::map<std::pair<uint64_t, int>, UniqueFd> arrived_;  // by round and rank
};

}  // namespace vcoll
