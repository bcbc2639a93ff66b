// SPDX-License-Identifier: Apache-2.0
// Threads as ranks, for the bootstrap tests. Catch2 is used on the main thread only.
#pragma once

#include <dirent.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "bootstrap/group.h"

namespace vcoll::test {

inline std::vector<Status> runRanks(int n, const std::function<Status(int)>& body) {
  std::vector<Status> results(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] { results[static_cast<size_t>(rank)] = body(rank); });
  }
  for (auto& thread : threads) thread.join();
  return results;
}

using World = std::vector<std::unique_ptr<Group>>;

inline std::vector<Status> joinWorld(int n, World* world, int64_t ms = 20000) {
  vcollUniqueId id;
  const Status made = makeUniqueId(&id);
  if (!made.ok()) return {made};
  world->clear();
  world->resize(static_cast<size_t>(n));
  return runRanks(
      n, [&](int rank) { return joinGroup(id, n, rank, Deadline::afterMs(ms), &(*world)[static_cast<size_t>(rank)]); });
}

inline std::string firstError(const std::vector<Status>& results) {
  for (const Status& status : results) {
    if (!status.ok()) return status.text();
  }
  return {};
}

inline Blob blobOf(const std::string& text) {
  Blob blob(text.size());
  if (!text.empty()) std::memcpy(blob.data(), text.data(), text.size());
  return blob;
}
inline std::string textOf(const Blob& blob) { return {reinterpret_cast<const char*>(blob.data()), blob.size()}; }

inline int countEntries(const char* directory) {
  DIR* dir = ::opendir(directory);
  if (dir == nullptr) return -1;
  int count = 0;
  while (::readdir(dir) != nullptr) ++count;
  ::closedir(dir);
  return count;
}
inline int openFds() { return countEntries("/proc/self/fd"); }
inline int threadCount() { return countEntries("/proc/self/task"); }

// Waits until the condition holds; false after ms.
inline bool eventually(const std::function<bool()>& condition, int64_t ms = 8000) {
  const Deadline deadline = Deadline::afterMs(ms);
  while (!condition()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

// An environment variable for the time of a scope; nullptr: unset.
class ScopedEnv {
 public:
  ScopedEnv(std::string name, const char* value) : name_(std::move(name)) {
    const char* before = std::getenv(name_.c_str());
    had_ = before != nullptr;
    if (had_) before_ = before;
    set(value);
  }
  ~ScopedEnv() { set(had_ ? before_.c_str() : nullptr); }
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  void set(const char* value) {
    if (value == nullptr) {
      ::unsetenv(name_.c_str());
    } else {
      ::setenv(name_.c_str(), value, 1);
    }
  }
  std::string name_;
  std::string before_;
  bool had_ = false;
};

}  // namespace vcoll::test
