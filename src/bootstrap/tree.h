// SPDX-License-Identifier: Apache-2.0
// One rank's place in a group's tree: parent (rank - 1) / 2. Contributions and errors travel up to rank 0, results and
// the verdict travel down. Everything that touches a link runs on the progress thread; callers wait on a condition
// variable.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "bootstrap/engine.h"
#include "bootstrap/frame_link.h"
#include "bootstrap/gather.h"

namespace vcoll {

// A callback that fires once, on the progress thread, and can be taken back.
class CallbackOnce {
 public:
  // True if the event was before: the caller posts fire() again.
  bool set(std::function<void()> callback);
  void fire();
  // When it returns the callback is not running and will not run. engine: null if there was none yet.
  void clear(const Engine* engine);

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  std::function<void()> callback_;
  bool fired_ = false;
  bool running_ = false;
};

class TreeNode : public std::enable_shared_from_this<TreeNode> {
 public:
  TreeNode(Engine* engine, int rank, int size);

  static int parentOf(int rank) { return (rank - 1) / 2; }

  // ---- set-up ----
  void acceptChild(int fd, const std::vector<std::byte>& payload);  // progress thread; payload: its rank
  void attachParent(int fd);                                        // any thread
  Status awaitChildren(Deadline deadline);

  // ---- as in Group; any thread ----
  Status allGather(std::string_view what, const std::vector<std::byte>& mine, std::vector<std::vector<std::byte>>* all,
                   Deadline deadline);
  void raise(const Status& error);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  bool raised() const { return raised_.load(std::memory_order_acquire); }
  Status failure();
  void onRaised(std::function<void()> callback);
  // Returns when the goodbye was written or can only be written later.
  void leave(uint64_t calls);
  int leftBefore(uint64_t call) const {
    return leftCalls_.load(std::memory_order_acquire) < call ? leftRank_.load(std::memory_order_relaxed) : -1;
  }
  // Before the owner of the callback goes.
  void dropCallback() { callback_.clear(engine_); }

 private:
  struct Neighbour {
    int rank = -1;  // -1: none
    std::unique_ptr<FrameLink> link;
    bool left = false;  // said goodbye
    bool gone = false;  // the connection ended
  };
  static constexpr size_t kParent = 0;

  // Progress thread only, down to the data.
  bool isTop() const { return rank_ == 0 || neighbours_[kParent].left || neighbours_[kParent].gone; }
  void onFrame(size_t from, uint32_t type, const SharedBytes& payload);
  void onEnd(size_t from, int errnoValue);
  void onChildFrame(size_t from, uint32_t type, const SharedBytes& payload);
  void onParentFrame(uint32_t type, const SharedBytes& payload);
  void contribute(uint64_t sequence, const SharedBytes& frame);
  void collect(const SharedBytes& frame);  // rank 0
  void checkGather();                      // rank 0
  void deliver(const SharedBytes& frame);
  void timedOut(int rank, uint64_t sequence, const std::string& what, int64_t ms, const SharedBytes& frame);
  void rankLeft(size_t from, int rank, uint64_t calls);
  void onGoodbye(size_t from, uint64_t calls);
  void parentCannotAnswer();
  void raiseHere(const Status& error);
  void raiseHere(const Status& error, uint32_t upType, const SharedBytes& upFrame);
  void decide(const Status& verdict);
  void broken(size_t from, const char* what);
  void sendUp(uint32_t type, const SharedBytes& payload);
  void sendDown(uint32_t type, const SharedBytes& payload);
  void leaveHere(uint64_t calls);
  void closeLinks();

  Engine* const engine_;
  const int rank_;
  const int size_;
  std::array<Neighbour, 3> neighbours_;  // parent, two children
  Gather gather_;                        // rank 0 only
  std::vector<bool> leavers_;            // rank 0 only: ranks that said goodbye
  uint64_t graceTimer_ = 0;
  uint64_t verdictTimer_ = 0;
  uint64_t lingerTimer_ = 0;
  uint64_t sentUp_ = 0;  // the last exchange of which something went up, and of which the result came down
  uint64_t cameDown_ = 0;
  std::optional<Status> firstError_;
  bool hasVerdict_ = false;
  bool leaving_ = false;

  // Shared with the callers.
  CallbackOnce callback_;
  std::atomic<bool> raised_{false};
  std::atomic<bool> failed_{false};
  // Of those that left, the rank that had made the fewest calls. Written by the progress thread, the rank first.
  std::atomic<int> leftRank_{-1};
  std::atomic<uint64_t> leftCalls_{UINT64_MAX};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Status> ownError_;
  std::optional<Status> verdict_;
  std::vector<int> childrenMissing_;  // ranks that have not connected yet
  uint64_t sequence_ = 0;
  bool waiting_ = false;
  SharedBytes result_;
  bool hasLeft_ = false;
};

}  // namespace vcoll
