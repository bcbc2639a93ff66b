// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "bootstrap/frame_link.h"
#include "bootstrap/packing.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/socket.h"

namespace vcoll {
namespace {

constexpr size_t kMaxAnswer = size_t{64} * 1024;
constexpr int64_t kRefusedMs = 2000;  // the maker of a unique id listens before anybody has the id
constexpr int64_t kRetryMs = 50;

// Receives exactly bytes. 0, kLost, ETIMEDOUT or another errno.
constexpr int kLost = -1;
int receive(int fd, void* target, size_t bytes, Deadline deadline) {
  size_t got = 0;
  while (got < bytes) {
    const ssize_t count = ::recv(fd, static_cast<char*>(target) + got, bytes - got, 0);
    if (count > 0) {
      got += static_cast<size_t>(count);
    } else if (count == 0) {
      return kLost;
    } else if (errno == EAGAIN) {
      if (waitFd(fd, POLLIN, deadline, {}) != WaitResult::kReady) return ETIMEDOUT;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

int receiveFrame(int fd, FrameHeader* header, std::vector<std::byte>* payload, Deadline deadline) {
  const int error = receive(fd, header, sizeof *header, deadline);
  if (error != 0) return error;
  if (header->magic != FrameHeader::kMagic || header->bytes > kMaxAnswer) return EPROTO;
  payload->resize(static_cast<size_t>(header->bytes));
  return receive(fd, payload->data(), payload->size(), deadline);
}

}  // namespace

Status joinRendezvous(const std::vector<Endpoint>& endpoints, const std::string& where, const Nonce& nonce,
                      const JoinRequest& request, Deadline deadline, bool retryLost, JoinAnswer* answer) {
  const std::string what = formatText("rank {} joining the rendezvous at {}", request.rank, where);
  for (;;) {
    JoinRequest fresh = request;
    fresh.timeoutMs = deadline.leftMs();
    int fd = -1;
    const ConnectWish wish{what, deadline, retryLost ? -1 : kRefusedMs, {}};
    VCOLL_TRY(connectAny(endpoints, nonce, Purpose::kRendezvous, &fresh, sizeof fresh, wish, &fd));
    FrameHeader header;
    std::vector<std::byte> payload;
    const int error = receiveFrame(fd, &header, &payload, deadline);
    closeFd(fd);
    const bool lost = error == kLost || error == ECONNRESET || error == EPIPE;
    if (lost && retryLost && !deadline.passed()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(std::min(kRetryMs, deadline.leftMs())));
      continue;
    }
    if (error == ETIMEDOUT) {
      return makeError(vcollTimeout, "{}: no answer in time; have all {} ranks been started?", what, request.nranks);
    }
    if (lost) {
      return makeError(
          vcollRemoteError,
          "{}: it closed the connection without an answer; the unique id is of another run, or the process "
          "that made it has ended",
          what);
    }
    if (error == EPROTO) return makeError(vcollRemoteError, "{}: what listens there is not vcoll", what);
    if (error != 0) return systemError(what, error);
    Unpacker reader(payload);
    Status refusal;
    if (header.type == kJoinAccepted && reader.value(answer)) return {};
    if (header.type == kJoinRefused && reader.status(&refusal)) return refusal;
    return makeError(vcollInternalError, "{}: a malformed answer", what);
  }
}

}  // namespace vcoll
