// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/acceptor.h"

#include <sys/epoll.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"

namespace vcoll {
namespace {

constexpr int kAcceptsPerEvent = 64;  // others on the progress thread get their turn in a flood
constexpr int64_t kPauseMs = 100;

}  // namespace

Status Acceptor::open(const Endpoint& at, OnConnection onConnection, std::unique_ptr<Acceptor>* acceptor) {
  Engine* engine = nullptr;
  VCOLL_TRY(Engine::get(&engine));
  std::unique_ptr<Acceptor> fresh(new Acceptor(engine, std::move(onConnection)));
  VCOLL_TRY(listenAt(at, &fresh->fd_, &fresh->endpoint_));
  VCOLL_TRY(engine->add(fresh->fd_, EPOLLIN, fresh.get()));
  *acceptor = std::move(fresh);
  return {};
}

Acceptor::~Acceptor() {
  if (fd_ < 0) return;
  engine_->remove(fd_);  // resumeTimer_ is not written after this
  engine_->cancelTimer(resumeTimer_);
  closeFd(fd_);
}

void Acceptor::onEvents(uint32_t) {
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    sockaddr_storage storage{};
    socklen_t length = sizeof storage;
    const int fd = ::accept4(fd_, reinterpret_cast<sockaddr*>(&storage), &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      onConnection_(fd, fromSockaddr(storage));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      pause(errno);
      return;
    }
    // Every other error belongs to one connection that is gone already.
  }
}

// Out of descriptors: the socket stays readable, so polling it would spin.
void Acceptor::pause(int errnoValue) {
  logWarn("accepting a connection at {}: {} (errno {}); trying again", endpoint_.text(), std::strerror(errnoValue),
          errnoValue);
  if (!engine_->modify(fd_, 0, this).ok()) return;
  resumeTimer_ = engine_->addTimer(Deadline::afterMs(kPauseMs), [this] {
    const Status resumed = engine_->modify(fd_, EPOLLIN, this);  // fails while the destructor runs
    if (!resumed.ok()) logTrace("{}", resumed.text());
  });
}

}  // namespace vcoll
