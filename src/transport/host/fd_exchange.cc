// SPDX-License-Identifier: Apache-2.0
#include "transport/host/fd_exchange.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace vcoll {

namespace {

struct Message {
  Nonce nonce;
  uint64_t round;
  int32_t rank;
  int32_t reserved;
};

// Between two looks while a peer's short queue is full or its descriptor has not come.
constexpr int kPollMs = 2;

socklen_t nameOf(const Nonce& nonce, int rank, sockaddr_un* address) {
  std::memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  const std::string name = formatText("vcoll-{:016x}{:016x}-{}", nonce[0], nonce[1], rank);
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

}  // namespace

Status FdExchange::open(const Nonce& nonce, int rank, FdExchange* exchange) {
  UniqueFd made(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made) return systemError("cannot create a Unix socket for ranks of this machine");
  const int on = 1;
  if (setsockopt(made.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) return systemError("SO_PASSCRED");
  sockaddr_un address;
  const socklen_t length = nameOf(nonce, rank, &address);
  if (bind(made.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    return systemError(formatText("cannot bind the Unix socket of rank {}", rank));
  }
  exchange->socket_ = std::move(made);
  exchange->nonce_ = nonce;
  exchange->rank_ = rank;
  return {};
}

FdExchange::Sent FdExchange::send(uint64_t round, int fd, int peer, Status* error) {
  Message message{nonce_, round, rank_, 0};
  iovec part = {&message, sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  sockaddr_un address;
  msghdr header{};
  header.msg_name = &address;
  header.msg_namelen = nameOf(nonce_, peer, &address);
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  cmsghdr* entry = CMSG_FIRSTHDR(&header);
  entry->cmsg_level = SOL_SOCKET;
  entry->cmsg_type = SCM_RIGHTS;
  entry->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(entry), &fd, sizeof fd);
  if (sendmsg(socket_.get(), &header, MSG_NOSIGNAL) >= 0) return Sent::kYes;
  if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ETOOMANYREFS) return Sent::kLater;
  if (errno == ECONNREFUSED || errno == ENOENT) return Sent::kUnreachable;
  *error = systemError(formatText("cannot hand a memory descriptor to rank {}", peer));
  return Sent::kUnreachable;
}

Status FdExchange::receiveAll() {
  for (;;) {
    Message message{};
    iovec part = {&message, sizeof message};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(ucred))] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t got = recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return {};
      return systemError("cannot receive a memory descriptor");
    }
    UniqueFd fd;
    bool sameUser = false;
    for (cmsghdr* entry = CMSG_FIRSTHDR(&header); entry != nullptr; entry = CMSG_NXTHDR(&header, entry)) {
      if (entry->cmsg_level != SOL_SOCKET) continue;
      if (entry->cmsg_type == SCM_RIGHTS && entry->cmsg_len == CMSG_LEN(sizeof(int))) {
        int value = -1;
        std::memcpy(&value, CMSG_DATA(entry), sizeof value);
        fd = UniqueFd(value);
      } else if (entry->cmsg_type == SCM_CREDENTIALS) {
        ucred who{};
        std::memcpy(&who, CMSG_DATA(entry), sizeof who);
        sameUser = who.uid == geteuid() || who.uid == 0;
      }
    }
    if ((header.msg_flags & MSG_CTRUNC) != 0 && !fd) {
      return makeError(vcollSystemError, "a memory descriptor did not arrive: out of file descriptors? (ulimit -n)");
    }
    if (got != sizeof message || message.nonce != nonce_ || !sameUser || !fd) continue;
    arrived_[{message.round, message.rank}] = std::move(fd);
  }
}

Status FdExchange::exchange(uint64_t round, int fd, const std::vector<int>& peers, bool mustReach, Deadline deadline,
                            const std::function<bool()>& cancelled, std::vector<UniqueFd>* fds) {
  fds->clear();
  fds->resize(peers.size());
  std::vector<bool> sent(peers.size(), false);
  std::vector<bool> gone(peers.size(), false);
  for (;;) {
    size_t missing = 0;
    Status error;
    for (size_t i = 0; i < peers.size(); ++i) {
      if (gone[i]) continue;
      if (!sent[i]) {
        const Sent result = send(round, fd, peers[i], &error);
        if (!error.ok()) return error;
        sent[i] = result == Sent::kYes;
        if (result == Sent::kUnreachable) {
          if (mustReach)
            return makeError(vcollRemoteError, "rank {} can no longer be reached on this machine", peers[i]);
          gone[i] = true;
          continue;
        }
      }
      if (!(*fds)[i]) {
        const auto found = arrived_.find({round, peers[i]});
        if (found != arrived_.end()) {
          (*fds)[i] = std::move(found->second);
          arrived_.erase(found);
        }
      }
      if (!sent[i] || !(*fds)[i]) ++missing;
    }
    if (missing == 0) return {};
    if (cancelled())
      return makeError(vcollRemoteError, "the communicator failed during an exchange of memory descriptors");
    if (deadline.passed()) {
      if (!mustReach) return {};
      for (size_t i = 0; i < peers.size(); ++i) {
        if (!(*fds)[i])
          return makeError(vcollTimeout, "timed out waiting for a memory descriptor of rank {}", peers[i]);
      }
      return makeError(vcollTimeout, "timed out handing a memory descriptor to a rank of this machine");
    }
    pollfd waiting = {socket_.get(), POLLIN, 0};
    poll(&waiting, 1, kPollMs);
    VCOLL_TRY(receiveAll());
  }
}

}  // namespace vcoll
