// SPDX-License-Identifier: Apache-2.0
#include "comm/stream.h"

#include <pthread.h>
#include <signal.h>

#include <memory>
#include <system_error>

namespace vcoll {

Status HostStream::create(HostStream** stream) {
  std::unique_ptr<HostStream> made(new HostStream);
  // The application's signals are for its own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Status status;
  try {
    made->thread_ = std::thread([self = made.get()] { self->loop(); });
    pthread_setname_np(made->thread_.native_handle(), "vcoll-stream");
  } catch (const std::system_error& error) {
    status = systemError("cannot start a host stream's thread", error.code().value());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (status.ok()) *stream = made.release();
  return status;
}

HostStream::~HostStream() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void HostStream::enqueue(std::function<Status()> work) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  changed_.notify_all();
}

Status HostStream::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty() && !busy_; });
  return std::exchange(firstError_, Status());
}

Status HostStream::query() {
  std::lock_guard lock(mutex_);
  if (!queue_.empty() || busy_) return {vcollInProgress, "work remains on the stream"};
  return std::exchange(firstError_, Status());
}

void HostStream::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::function<Status()> work = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    Status status = work();
    work = nullptr;  // what it captured ends before the stream counts as idle
    lock.lock();
    busy_ = false;
    if (!status.ok() && firstError_.ok()) firstError_ = std::move(status);
    changed_.notify_all();
  }
}

}  // namespace vcoll
