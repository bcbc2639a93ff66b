// SPDX-License-Identifier: Apache-2.0
// How the ranks of a new group find each other: each says who it is to one server, and learns where its parent in the
// tree listens once all are there. The server is a state machine on the progress thread: no thread per rank, nothing
// blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "bootstrap/acceptor.h"
#include "bootstrap/listener.h"

namespace vcoll {

constexpr int kMaxRanks = 1 << 20;

// What a rank says: the payload of its hello.
struct JoinRequest {
  uint32_t version = VCOLL_VERSION_CODE;
  int32_t nranks = 0;
  int32_t rank = 0;
  int32_t reserved = 0;
  int64_t timeoutMs = 0;  // the server answers before the rank gives up
  Endpoint tree;          // where this rank's children connect, with this nonce
  Nonce treeNonce{};
};

static_assert(sizeof(JoinRequest) == 64);

// What it is told.
struct JoinAnswer {
  Nonce groupNonce{};
  Endpoint parent;  // of no meaning on rank 0
  Nonce parentNonce{};
};
static_assert(sizeof(JoinAnswer) == 56);

// Frames of the server.
constexpr uint32_t kJoinAccepted = 1;  // a JoinAnswer
constexpr uint32_t kJoinRefused = 2;   // a packed Status

// Serves one rendezvous for a unique id. Costs no descriptor until ranks connect; late comers are told why they are
// late.
Status serveRendezvous(const Nonce& nonce);

// Serves the rendezvous of a well-known address: at `at` and at the process's listener. Stopped when it is done, a
// moment after it failed, or by the next call for the same nonce.
Status serveRendezvousAt(const Endpoint& at, const Nonce& nonce);
// Ends it with an error if it is still waiting for ranks.
void failRendezvousAt(const Nonce& nonce, const Status& error);

// Joins at one of endpoints. retryLost: an ended connection is no error before the deadline (a well-known address may
// still be served by an earlier group). `where` names the address in errors.
Status joinRendezvous(const std::vector<Endpoint>& endpoints, const std::string& where, const Nonce& nonce,
                      const JoinRequest& request, Deadline deadline, bool retryLost, JoinAnswer* answer);

}  // namespace vcoll
