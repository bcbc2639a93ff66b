// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/frame_link.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.h"
#include "bootstrap/socket.h"

namespace vcoll {
namespace {

constexpr int kEnd = -1;                        // readStep: an orderly end
constexpr int kReadsPerEvent = 64;              // then others on the progress thread get their turn
constexpr size_t kGrowth = size_t{256} * 1024;  // memory follows the bytes that come, not the length that is announced

}  // namespace

Status FrameLink::open(int fd) {
  fd_ = fd;
  events_ = EPOLLIN;
  const Status added = engine_->add(fd, events_, this);
  if (!added.ok()) {
    closeFd(std::exchange(fd_, -1));
    ended_ = true;
    return added;
  }
  flush();
  return {};
}

void FrameLink::send(uint32_t type, SharedBytes payload) {
  if (ended_ || finishing_ || !writable_) return;
  FrameHeader header;
  header.type = type;
  header.bytes = payload == nullptr ? 0 : payload->size();
  queue_.push_back({header, std::move(payload), 0});
  if (fd_ >= 0) flush();
}

void FrameLink::finish() {
  if (finishing_) return;
  finishing_ = true;
  if (fd_ >= 0) flush();
}

void FrameLink::close() {
  ended_ = true;
  queue_.clear();
  if (fd_ < 0) return;
  engine_->remove(fd_);
  closeFd(std::exchange(fd_, -1));
}

void FrameLink::end(int errnoValue) {
  close();
  onEnd_(errnoValue);
}

void FrameLink::flush() {
  bool blocked = false;
  while (!queue_.empty() && !blocked) {
    Outgoing& next = queue_.front();
    const size_t total = sizeof next.header + static_cast<size_t>(next.header.bytes);
    std::array<iovec, 2> parts{};
    size_t count = 0;
    if (next.sent < sizeof next.header) {
      parts[count++] = {reinterpret_cast<char*>(&next.header) + next.sent, sizeof next.header - next.sent};
    }
    const size_t done = next.sent < sizeof next.header ? 0 : next.sent - sizeof next.header;
    if (next.header.bytes > done) {
      void* rest = const_cast<std::byte*>(next.payload->data() + done);  // iovec has no const; sendmsg only reads
      parts[count++] = {rest, static_cast<size_t>(next.header.bytes) - done};
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (sent >= 0) {
      next.sent += static_cast<size_t>(sent);
      if (next.sent == total) queue_.pop_front();
    } else if (errno == EAGAIN) {
      blocked = true;
    } else if (errno != EINTR) {
      writable_ = false;  // the reading side finds out why
      queue_.clear();
    }
  }
  if (finishing_ && queue_.empty()) ::shutdown(fd_, SHUT_WR);
  const uint32_t events = blocked ? EPOLLIN | EPOLLOUT : EPOLLIN;
  if (events == events_) return;
  events_ = events;
  const Status changed = engine_->modify(fd_, events, this);
  if (!changed.ok()) logWarn("{}", changed.text());
}

void FrameLink::onEvents(uint32_t epollEvents) {
  if ((epollEvents & EPOLLOUT) != 0) flush();
  if ((epollEvents & ~static_cast<uint32_t>(EPOLLOUT)) != 0) read();
}

void FrameLink::read() {
  bool more = true;
  for (int i = 0; i < kReadsPerEvent && more && fd_ >= 0; ++i) {
    const int error = readStep(&more);
    if (error != 0) {
      if (fd_ >= 0) end(error == kEnd ? 0 : error);
      return;
    }
  }
}

int FrameLink::readStep(bool* more) {
  const bool inHeader = got_ < sizeof header_;
  void* target = nullptr;
  size_t wanted = 0;
  if (inHeader) {
    target = reinterpret_cast<std::byte*>(&header_) + got_;
    wanted = sizeof header_ - got_;
  } else {
    const size_t have = got_ - sizeof header_;
    const auto bytes = static_cast<size_t>(header_.bytes);
    if (have == payload_.size()) payload_.resize(std::min(bytes, std::max(kGrowth, have * 2)));
    target = payload_.data() + have;
    wanted = payload_.size() - have;
  }
  const ssize_t count = ::recv(fd_, target, wanted, 0);
  if (count == 0) return kEnd;
  if (count < 0) {
    if (errno == EINTR) return 0;
    *more = false;
    return errno == EAGAIN ? 0 : errno;
  }
  got_ += static_cast<size_t>(count);
  if (got_ < sizeof header_) return 0;
  if (header_.magic != FrameHeader::kMagic || header_.bytes > FrameHeader::kMaxBytes) return EPROTO;
  if (got_ - sizeof header_ < header_.bytes) return 0;
  got_ = 0;
  onFrame_(header_.type, std::make_shared<const std::vector<std::byte>>(std::exchange(payload_, {})));
  return 0;
}

}  // namespace vcoll
