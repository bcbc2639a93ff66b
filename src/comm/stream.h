// SPDX-License-Identifier: Apache-2.0
// A host stream: a queue of work with a thread of its own, which sleeps when the queue is empty.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "base/status.h"

namespace vcoll {

class HostStream {
 public:
  static Status create(HostStream** stream);
  // Waits for the work.
  ~HostStream();
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  void enqueue(std::function<Status()> work);
  // Waits until the queue is empty and idle; returns and clears the first error since the last time.
  Status synchronize();
  // vcollInProgress while there is work; else as synchronize.
  Status query();

 private:
  HostStream() = default;
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<Status()>> queue_;
  bool busy_ = false;
  bool stopping_ = false;
  Status firstError_;
  std::thread thread_;
};

}  // namespace vcoll
