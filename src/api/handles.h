// SPDX-License-Identifier: Apache-2.0
// Which handles are alive. A handle is looked up before it is dereferenced, so that a destroyed or foreign one is an
// error and not a crash.
#pragma once

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace vcoll {

enum class HandleKind { kComm, kPlan, kWindow, kStream, kPublishStream };

class Handles {
 public:
  static Handles& get() {
    static Handles* const instance = new Handles;  // never destroyed: no work at exit
    return *instance;
  }
  void add(const void* handle, HandleKind kind) {
    std::unique_lock lock(mutex_);
    kinds_[handle] = kind;
  }
  // False if it was not there.
  bool remove(const void* handle, HandleKind kind) {
    std::unique_lock lock(mutex_);
    const auto found = kinds_.find(handle);
    if (found == kinds_.end() || found->second != kind) return false;
    kinds_.erase(found);
    return true;
  }
  bool has(const void* handle, HandleKind kind) {
    std::shared_lock lock(mutex_);
    const auto found = kinds_.find(handle);
    return found != kinds_.end() && found->second == kind;
  }
  template <typename Visit>
  void forEach(HandleKind kind, const Visit& visit) {
    std::shared_lock lock(mutex_);
    for (const auto& [handle, handleKind] : kinds_) {
      if (handleKind == kind) visit(handle);
    }
  }

 private:
  std::shared_mutex mutex_;
  std::unordered_map<const void*, HandleKind> kinds_;
};

}  // namespace vcoll
