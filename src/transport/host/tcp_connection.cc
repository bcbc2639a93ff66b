// SPDX-License-Identifier: Apache-2.0
#include "transport/host/tcp_connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "transport/host/tcp_wire.h"

namespace vcoll {

namespace wiretest {
std::atomic<const Io*> io{nullptr};
}  // namespace wiretest

namespace {

// The queue is full beyond either.
constexpr size_t kQueueEntries = 16;
constexpr uint64_t kQueueBytes = 2u << 20;
// What one sendmsg and one recvmsg may move, so that the other connections get their turn.
constexpr size_t kCallEntries = 32;
constexpr uint64_t kCallBytes = 1u << 20;
// What one turn of a connection may move in one direction.
constexpr uint64_t kTurnBytes = 2u << 20;
// Behind the rest of a long payload, room for a few frames is enough: more would only be copied.
constexpr uint64_t kLongPayload = 16u << 10;
constexpr size_t kShortAhead = 8 * sizeof(TcpFrame);
constexpr int64_t kLingerMs = 10000;

ssize_t sendMessage(int fd, const msghdr* message) {
  const wiretest::Io* io = wiretest::io.load(std::memory_order_acquire);
  ssize_t n;
  do {
    constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
    n = io != nullptr ? io->send(fd, message, kFlags) : sendmsg(fd, message, kFlags);
  } while (n < 0 && errno == EINTR);
  return n;
}

ssize_t receiveMessage(int fd, msghdr* message) {
  const wiretest::Io* io = wiretest::io.load(std::memory_order_acquire);
  ssize_t n;
  do {
    n = io != nullptr ? io->receive(fd, message, MSG_DONTWAIT) : recvmsg(fd, message, MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  return n;
}

bool wouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

std::string errnoText(int error) { return formatText("{} (errno {})", std::generic_category().message(error), error); }

// Connections that linger with data the kernel has not taken yet. A process that exits right after close() waits for
// them, else puts that were promised would vanish.
std::atomic<int> lingeringUnsent{0};

void waitForLingering() {
  const Deadline deadline = Deadline::afterMs(kLingerMs);
  while (lingeringUnsent.load(std::memory_order_acquire) > 0 && !inForkedChild() && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void countLingering(int change) {
  static const int registered = std::atexit(waitForLingering);
  (void)registered;
  lingeringUnsent.fetch_add(change, std::memory_order_acq_rel);
}

}  // namespace

// One sendmsg.
struct TcpConnection::Batch {
  std::array<iovec, 2 * kCallEntries> parts;
  msghdr message;
  uint64_t bytes;
};

TcpConnection::TcpConnection(Engine* engine, TcpShared* shared, int peer, std::string name, int fd)
    : engine_(engine), shared_(shared), peer_(peer), name_(std::move(name)), fd_(fd) {}

TcpConnection::~TcpConnection() {
  if (fd_ >= 0) close(fd_);
}

Status TcpConnection::start() {
  VCOLL_TRY(shared_->sockets.add(fd_, EPOLLIN, this));
  TcpFrame frame;
  frame.kind = TcpFrame::kUp;
  send(frame, nullptr, false);
  return {};
}

// --- Sending ---------------------------------------------------------------------------------------------------------

void TcpConnection::put(const void* source, uint64_t bytes, uint32_t window, uint64_t offset, uint32_t counter,
                        uint64_t add) {
  TcpFrame frame;
  frame.kind = TcpFrame::kPut;
  frame.window = window;
  frame.offset = offset;
  frame.bytes = bytes;
  frame.counter = counter;
  frame.add = add;
  send(frame, source, false);
}

void TcpConnection::signal(uint32_t counter, uint64_t add, bool hold) {
  TcpFrame frame;
  frame.kind = TcpFrame::kSignal;
  frame.counter = counter;
  frame.add = add;
  send(frame, nullptr, hold);
}

void TcpConnection::send(const TcpFrame& frame, const void* source, bool hold) {
  const std::lock_guard lock(mutex_);
  if (sendClosed_) return;
  Entry entry{frame, static_cast<const std::byte*>(source), nullptr, 0};
  const bool first = queue_.empty() && !hold;
  if (first) {
    std::array<iovec, 2> parts{{{&entry.frame, sizeof(TcpFrame)}, {const_cast<void*>(source), frame.bytes}}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = source != nullptr ? 2 : 1;
    const ssize_t n = sendMessage(fd_, &message);
    if (n < 0 && !wouldBlock(errno)) {
      failSend(errno);
      return;
    }
    entry.sent = n > 0 ? static_cast<uint64_t>(n) : 0;
    if (entry.left() == 0) return;
  } else if (source == nullptr && !queue_.empty() && mergeSignal(frame)) {
    return;
  }
  queuedBytes_ += entry.left();
  queue_.push_back(std::move(entry));
  if (source != nullptr) shared_->unflushed.fetch_add(1, std::memory_order_relaxed);
  if (hold) return;
  if (!first && !armed_) sendNow();  // with what was held
  updateFull();
  if (!armed_ && !queue_.empty()) {
    if (const Status status = listen(true); !status.ok()) failSend(EIO);
  }
}

void TcpConnection::flush() {
  const std::lock_guard lock(mutex_);
  if (queue_.empty() || armed_) return;
  sendNow();
  updateFull();
  if (!queue_.empty()) {
    if (const Status status = listen(true); !status.ok()) failSend(EIO);
  }
}

// What the socket takes at once, on the caller's thread; mutex_ held.
void TcpConnection::sendNow() {
  if (inFlight_ != 0) return;  // who serves is at it
  Batch batch;
  gather(&batch);
  inFlight_ = 0;
  const ssize_t n = sendMessage(fd_, &batch.message);
  if (n >= 0) {
    (void)consume(static_cast<uint64_t>(n));
  } else if (!wouldBlock(errno)) {
    failSend(errno);
  }
}

// Adds the signal to the last queued frame, if nothing of that one is on its way.
bool TcpConnection::mergeSignal(const TcpFrame& frame) {
  Entry& last = queue_.back();
  if (frame.kind != TcpFrame::kSignal || last.sent > 0 || queue_.size() <= inFlight_) return false;
  if (last.frame.kind != TcpFrame::kPut && last.frame.kind != TcpFrame::kSignal) return false;
  if (last.frame.counter != frame.counter && last.frame.add != 0) return false;
  last.frame.counter = frame.counter;
  last.frame.add += frame.add;
  return true;
}

void TcpConnection::updateFull() {
  full_.store(queue_.size() >= kQueueEntries || queuedBytes_ >= kQueueBytes, std::memory_order_release);
}

Status TcpConnection::listen(bool output) {
  armed_ = output;
  const uint32_t events = output ? EPOLLIN | EPOLLOUT : EPOLLIN;
  return shared_ != nullptr ? shared_->sockets.modify(fd_, events, this) : engine_->modify(fd_, events, this);
}

// The kernel has taken so many bytes from the front of the queue. True when that flushed the communicator's last put.
bool TcpConnection::consume(uint64_t bytes) {
  bool last = false;
  queuedBytes_ -= bytes;
  while (bytes > 0) {
    Entry& front = queue_.front();
    const uint64_t part = std::min(bytes, front.left());
    front.sent += part;
    bytes -= part;
    if (front.left() > 0) break;
    if (front.source != nullptr && !front.own) {
      last |= shared_->unflushed.fetch_sub(1, std::memory_order_acq_rel) == 1;
    }
    queue_.pop_front();
  }
  return last;
}

void TcpConnection::dropQueue() {
  for (const Entry& entry : queue_) {
    if (entry.source != nullptr && !entry.own) shared_->unflushed.fetch_sub(1, std::memory_order_release);
  }
  queue_.clear();
  queuedBytes_ = 0;
  sendClosed_ = true;
  updateFull();
}

// What the peer sent before the connection broke may still lie in the socket, even its bye. So only stop sending, and
// let the receiving side find the end and tell what it was.
void TcpConnection::failSend(int error) {
  sendError_ = error;
  dropQueue();
  shutdown(fd_, SHUT_RDWR);
}

// The front of the queue, as much as one call may move; inFlight_ counts the entries.
void TcpConnection::gather(Batch* batch) {
  size_t count = 0;
  batch->bytes = 0;
  inFlight_ = 0;
  for (Entry& entry : queue_) {
    if (inFlight_ == kCallEntries || batch->bytes >= kCallBytes) break;
    inFlight_++;
    const uint64_t skip = entry.sent;
    if (skip < sizeof(TcpFrame)) {
      batch->parts[count++] = {reinterpret_cast<std::byte*>(&entry.frame) + skip, sizeof(TcpFrame) - skip};
      batch->bytes += sizeof(TcpFrame) - skip;
    }
    if (entry.source == nullptr || batch->bytes >= kCallBytes) continue;
    const uint64_t done = skip > sizeof(TcpFrame) ? skip - sizeof(TcpFrame) : 0;
    const uint64_t bytes = std::min(entry.frame.bytes - done, kCallBytes - batch->bytes);
    batch->parts[count++] = {const_cast<std::byte*>(entry.source) + done, bytes};
    batch->bytes += bytes;
  }
  batch->message = {};
  batch->message.msg_iov = batch->parts.data();
  batch->message.msg_iovlen = count;
}

void TcpConnection::sendQueued() {
  std::unique_lock lock(mutex_);
  const bool wasFull = full_.load(std::memory_order_relaxed);
  bool flushed = false;
  uint64_t turn = 0;
  while (!queue_.empty() && turn < kTurnBytes) {
    Batch batch;
    gather(&batch);
    lock.unlock();
    const ssize_t n = sendMessage(fd_, &batch.message);
    const int error = errno;
    lock.lock();
    inFlight_ = 0;
    if (n < 0) {
      if (!wouldBlock(error)) failSend(error);
      break;
    }
    flushed |= consume(static_cast<uint64_t>(n));
    if (static_cast<uint64_t>(n) < batch.bytes) break;  // the socket is full
    turn += batch.bytes;
  }
  updateFull();
  const bool empty = queue_.empty();
  if (shared_ != nullptr && empty == armed_) {
    (void)listen(!empty);
  } else if (empty && armed_) {
    (void)listen(false);
  }
  if (shared_ == nullptr) {
    if (empty && counted_) {
      shutdown(fd_, SHUT_WR);
      counted_ = false;
      countLingering(-1);
    }
    return;
  }
  const bool room = wasFull && !full_.load(std::memory_order_relaxed);
  lock.unlock();
  if (room || flushed) shared_->host.wake(shared_->host.context);
}

// --- Receiving -------------------------------------------------------------------------------------------------------

void TcpConnection::onEvents(uint32_t epollEvents) {
  if ((epollEvents & EPOLLOUT) != 0) sendQueued();
  if ((epollEvents & ~static_cast<uint32_t>(EPOLLOUT)) == 0) return;
  if (shared_ == nullptr) {
    discard();
  } else {
    receive();
  }
}

void TcpConnection::receive() {
  uint64_t turn = 0;
  while (turn < kTurnBytes) {
    std::array<iovec, 2> parts;
    size_t count = 0;
    const uint64_t wanted = std::min(left_, kCallBytes);
    if (wanted > 0) parts[count++] = {target_, wanted};
    uint64_t asked = wanted;
    if (wanted == left_) {
      const size_t room = left_ > kLongPayload ? kShortAhead : kAheadBytes - aheadEnd_;
      parts[count++] = {ahead_ + aheadEnd_, room};
      asked += room;
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t n = receiveMessage(fd_, &message);
    if (n < 0) {
      if (wouldBlock(errno)) return;
      if (byeSeen_) {
        endOrderly();
      } else {
        lose(errnoText(errno) + " while receiving");
      }
      return;
    }
    if (n == 0) {
      if (byeSeen_) {
        endOrderly();
      } else {
        lose(sendError_ != 0 ? errnoText(sendError_) + " while sending" : "closed by the peer");
      }
      return;
    }
    const auto got = static_cast<uint64_t>(n);
    const uint64_t direct = std::min(got, wanted);
    target_ += direct;
    left_ -= direct;
    aheadEnd_ += got - direct;
    if (!parse()) return;
    if (got < asked) return;  // the socket is empty; epoll tells when it is not
    turn += got;
  }
}

// Takes what is complete in ahead_. False when the connection is over.
bool TcpConnection::parse() {
  size_t at = 0;
  while (true) {
    if (left_ > 0) {
      const size_t part = std::min<uint64_t>(left_, aheadEnd_ - at);
      memcpy(target_, ahead_ + at, part);
      target_ += part;
      left_ -= part;
      at += part;
      if (left_ > 0) break;
    }
    if (inPut_) {
      inPut_ = false;
      if (current_.add != 0) shared_->host.signal(shared_->host.context, current_.counter, current_.add);
    }
    if (aheadEnd_ - at < sizeof(TcpFrame)) break;
    memcpy(&current_, ahead_ + at, sizeof(TcpFrame));
    at += sizeof(TcpFrame);
    if (!accept(current_)) return false;
  }
  aheadEnd_ -= at;
  if (at > 0 && aheadEnd_ > 0) memmove(ahead_, ahead_ + at, aheadEnd_);
  return true;
}

// Begins the frame. False when it breaks the protocol.
bool TcpConnection::accept(const TcpFrame& frame) {
  const bool first = !up_.load(std::memory_order_relaxed);
  const bool known = frame.kind == TcpFrame::kUp || frame.kind == TcpFrame::kPut || frame.kind == TcpFrame::kSignal ||
                     frame.kind == TcpFrame::kBye;
  if (!known || frame.zero != 0 || byeSeen_ || first != (frame.kind == TcpFrame::kUp)) {
    lose(formatText("broke the protocol: unexpected frame of kind {:#x}", frame.kind));
    return false;
  }
  const vcollWireHost_v1& host = shared_->host;
  switch (frame.kind) {
    case TcpFrame::kUp: {
      const std::lock_guard lock(shared_->mutex);
      up_.store(true, std::memory_order_release);
      shared_->changed.notify_all();
      return true;
    }
    case TcpFrame::kSignal:
      host.signal(host.context, frame.counter, frame.add);
      return true;
    case TcpFrame::kBye:
      byeSeen_ = true;
      return true;
    default:
      break;
  }
  void* target = frame.bytes == 0 ? nullptr : host.resolve(host.context, frame.window, frame.offset, frame.bytes);
  if (target == nullptr) {
    lose(formatText("broke the protocol: {} bytes at offset {} of window {} are not ours to write", frame.bytes,
                    frame.offset, frame.window));
    return false;
  }
  target_ = static_cast<std::byte*>(target);
  left_ = frame.bytes;
  inPut_ = true;
  return true;
}

void TcpConnection::forgetWindow(uint32_t window) {
  if (fd_ >= 0 && inPut_ && current_.window == window) {
    lose(formatText("window {} was removed while {} bytes were still to come into it", window, left_));
  }
}

// --- The end ---------------------------------------------------------------------------------------------------------

void TcpConnection::closeSocket() {
  shared_->sockets.remove(fd_);
  const std::lock_guard lock(mutex_);
  dropQueue();
  close(fd_);
  fd_ = -1;
  over_.store(true, std::memory_order_release);
}

void TcpConnection::lose(const std::string& why) {
  const vcollWireHost_v1& host = shared_->host;
  const std::string text = formatText("connection to {}: {}", name_, why);
  closeSocket();
  if (up_.load(std::memory_order_relaxed)) {
    host.lost(host.context, peer_, text.c_str());
    host.wake(host.context);
    return;
  }
  const std::lock_guard lock(shared_->mutex);
  failure_ = text;
  shared_->changed.notify_all();
}

// The peer has said bye and reads no more; what we still had for it has no use.
void TcpConnection::endOrderly() {
  closeSocket();
  shared_->host.wake(shared_->host.context);
}

void TcpConnection::release(std::unique_ptr<TcpConnection> connection, bool graceful) {
  if (connection->fd_ < 0) return;
  if (connection->sendClosed_ || !connection->up()) {
    connection->closeSocket();
    return;
  }
  connection.release()->beginLinger(graceful);
}

// From here on the connection owns itself.
void TcpConnection::beginLinger(bool deliver) {
  shared_->sockets.remove(fd_);
  {
    const std::lock_guard lock(mutex_);
    if (!deliver) {
      // Whoever closes after an error is not lost: the peers learn of the error itself. A frame that was begun must
      // end.
      const bool begun = !queue_.empty() && queue_.front().sent > 0;
      while (queue_.size() > (begun ? 1u : 0u)) {
        queuedBytes_ -= queue_.back().left();
        queue_.pop_back();
      }
    }
    for (Entry& entry : queue_) {
      if (entry.source == nullptr) continue;
      const uint64_t done = entry.sent > sizeof(TcpFrame) ? entry.sent - sizeof(TcpFrame) : 0;
      entry.own = std::make_unique<std::byte[]>(entry.frame.bytes);
      memcpy(entry.own.get() + done, entry.source + done, entry.frame.bytes - done);
      entry.source = entry.own.get();
    }
    shared_ = nullptr;
    Entry bye;
    bye.frame.kind = TcpFrame::kBye;
    queuedBytes_ += bye.left();
    queue_.push_back(std::move(bye));
    counted_ = deliver;
    if (deliver) countLingering(1);
    armed_ = false;
  }
  sendQueued();  // now, as far as it goes: the process may be about to exit
  engine_->post([this] { linger(); });
}

void TcpConnection::linger() {
  timer_ = engine_->addTimer(Deadline::afterMs(kLingerMs), [this] { endLinger(); });
  armed_ = !queue_.empty();
  if (!engine_->add(fd_, armed_ ? EPOLLIN | EPOLLOUT : EPOLLIN, this).ok()) endLinger();
}

// Reads to the end, so that closing with unread data does not reset the connection under what we sent.
void TcpConnection::discard() {
  for (int calls = 0; calls < 8; calls++) {
    const ssize_t n = recv(fd_, nullptr, 1u << 20, MSG_TRUNC | MSG_DONTWAIT);  // TCP drops the bytes without a copy
    if (n > 0 || (n < 0 && errno == EINTR)) continue;
    if (n < 0 && wouldBlock(errno)) return;
    endLinger();
    return;
  }
}

void TcpConnection::endLinger() {
  engine_->cancelTimer(timer_);
  engine_->remove(fd_);
  if (counted_) countLingering(-1);
  engine_->post([this] { delete this; });
}

}  // namespace vcoll
