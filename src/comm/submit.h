// SPDX-License-Identifier: Apache-2.0
// Comm::submit: runs a call in its turn, here or on a stream.
#pragma once

#include <memory>
#include <utility>

#include "comm/comm.h"

namespace vcoll {

template <typename Work>
Status Comm::inTurn(uint64_t ticket, Work& work, CallNeeds needs) {
  for (uint64_t served = served_.load(); served != ticket; served = served_.load()) served_.wait(served);
  Status status;
  if (needs == kHealthy && group_->raised()) {
    status = group_->failure();
  } else if (needs == kHealthy && finalized_) {
    status = makeError(vcollInvalidUsage, "the communicator was finalized");
  } else {
    status = work();
  }
  if (!status.ok()) status = withName(status);
  served_.store(ticket + 1);
  served_.notify_all();
  return status;
}

template <typename Work>
Status Comm::submit(HostStream* stream, Work work, CallNeeds needs) {
  const uint64_t ticket = nextTicket_.fetch_add(1);
  if (stream == nullptr) return inTurn(ticket, work, needs);
  stream->enqueue([this, ticket, needs, kept = std::move(work)]() mutable { return inTurn(ticket, kept, needs); });
  return {};
}

}  // namespace vcoll
