// SPDX-License-Identifier: Apache-2.0
// The one progress thread of the process: an epoll loop that serves the sockets of all communicators, sleeps when idle,
// starts at first use and lives until exit (nothing is torn down by static destructors).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>

#include "base/deadline.h"
#include "base/status.h"

namespace vcoll {

// Serves one file descriptor. onEvents runs on the progress thread only; it must not block.
class EventHandler {
 public:
  virtual ~EventHandler() = default;
  virtual void onEvents(uint32_t epollEvents) = 0;
};

class Engine {
 public:
  // Starts the thread if needed. Fails with what the system refused (threads, fds).
  static Status get(Engine** engine);

  // Any thread. The handler must outlive its registration. Level-triggered.
  Status add(int fd, uint32_t epollEvents, EventHandler* handler);
  Status modify(int fd, uint32_t epollEvents, EventHandler* handler);
  // Any thread. When it returns, the handler is not running and will not run again. (Called on the progress thread
  // itself, e.g. inside onEvents, it returns at once with the same promise for later events.)
  void remove(int fd);

  // Runs the task on the progress thread, in order of posting.
  void post(std::function<void()> task);
  // Runs the task on the progress thread at about the deadline. Returns an id for cancelTimer.
  uint64_t addTimer(Deadline at, std::function<void()> task);
  // When it returns the task is not running and will not run (same exception as remove).
  void cancelTimer(uint64_t id);

  bool onProgressThread() const;
};

// Sockets that a thread may serve itself while it waits for them, so that the progress thread need not wake up and hand
// over. Who serves holds mutex(): handlers run under it, by one thread at a time.
class PollSet final : private EventHandler {
 public:
  PollSet() = default;
  ~PollSet() override;
  PollSet(const PollSet&) = delete;
  PollSet& operator=(const PollSet&) = delete;

  // From here on the progress thread serves the set, except while a caller attends.
  Status open(Engine* engine);

  // Any thread, like the engine's. Level-triggered.
  Status add(int fd, uint32_t epollEvents, EventHandler* handler);
  Status modify(int fd, uint32_t epollEvents, EventHandler* handler);
  // With mutex() held: the handler will not run again. A handler may remove none but itself.
  void remove(int fd);

  std::mutex& mutex() { return mutex_; }

  // One thread at a time. On: it calls poll() while it waits, and the progress thread leaves the set alone. Off: the
  // progress thread has it back, with all that happened meanwhile.
  void attend(bool on);
  // Serves what is ready and never blocks. True if there was anything.
  bool poll();

 private:
  void onEvents(uint32_t epollEvents) override;
  bool serve();  // mutex_ held

  Engine* engine_ = nullptr;
  std::mutex mutex_;
  int fd_ = -1;
  bool attended_ = false;  // the attending thread's
};

// After fork() the child has no progress thread: true there, for ever. Set by pthread_atfork.
bool inForkedChild();

}  // namespace vcoll
