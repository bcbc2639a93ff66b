// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/tree.h"

#include <cerrno>
#include <utility>

#include "base/log.h"
#include "bootstrap/group.h"
#include "bootstrap/packing.h"
#include "bootstrap/socket.h"

namespace vcoll {
namespace {

enum FrameType : uint32_t {
  kContribution = 1,  // up: rank, exchange, name, blob
  kAll = 2,           // down: exchange, blobs
  kError = 3,         // up: status
  kVerdict = 4,       // down: status
  kTimedOut = 5,      // up: rank, exchange, name, milliseconds
  kLeft = 6,          // up, and down if it is news: rank, calls
  kGoodbye = 7,       // to all neighbours: calls
};

constexpr int64_t kVerdictMs = 500;  // then a rank keeps its own error
constexpr int64_t kGraceMs = 100;    // for more ranks to show which calls they are in, before a mismatch is reported
constexpr int64_t kLingerMs = 10000;

SharedBytes share(std::vector<std::byte> bytes) {
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

}  // namespace

bool CallbackOnce::set(std::function<void()> callback) {
  std::lock_guard lock(mutex_);
  callback_ = std::move(callback);
  return fired_;
}

void CallbackOnce::fire() {
  std::function<void()> callback;
  {
    std::lock_guard lock(mutex_);
    fired_ = true;
    if (!callback_) return;
    callback = std::exchange(callback_, nullptr);
    running_ = true;
  }
  callback();
  callback = nullptr;  // what it holds goes before clear() returns
  {
    std::lock_guard lock(mutex_);
    running_ = false;
  }
  done_.notify_all();
}

void CallbackOnce::clear(const Engine* engine) {
  std::unique_lock lock(mutex_);
  callback_ = nullptr;
  if (engine == nullptr || !engine->onProgressThread()) done_.wait(lock, [&] { return !running_; });
}

TreeNode::TreeNode(Engine* engine, int rank, int size)
    : engine_(engine), rank_(rank), size_(size), gather_(rank == 0 ? size : 0) {
  if (rank == 0) leavers_.resize(static_cast<size_t>(size));
  for (size_t i = 0; i < neighbours_.size(); ++i) {
    const int other = i == kParent ? (rank == 0 ? -1 : parentOf(rank)) : 2 * rank + static_cast<int>(i);
    if (other < 0 || other >= size) continue;
    neighbours_[i].rank = other;
    neighbours_[i].link = std::make_unique<FrameLink>(
        engine, [this, i](uint32_t type, const SharedBytes& payload) { onFrame(i, type, payload); },
        [this, i](int errnoValue) { onEnd(i, errnoValue); });
    if (i != kParent) childrenMissing_.push_back(other);
  }
}

// ---- set-up ----

void TreeNode::acceptChild(int fd, const std::vector<std::byte>& payload) {
  int32_t child = -1;
  Unpacker(payload).value(&child);
  for (size_t i = 1; i < neighbours_.size(); ++i) {
    Neighbour& neighbour = neighbours_[i];
    if (neighbour.rank != child || child < 0 || neighbour.link->isOpen() || neighbour.gone || leaving_) continue;
    setKeepAlive(fd);
    const Status opened = neighbour.link->open(fd);
    if (!opened.ok()) {
      raiseHere(opened);
      return;
    }
    {
      std::lock_guard lock(mutex_);
      std::erase(childrenMissing_, child);
    }
    changed_.notify_all();
    return;
  }
  logInfo("rank {}: dropped a tree connection that says it is rank {}", rank_, child);
  closeFd(fd);
}

void TreeNode::attachParent(int fd) {
  setKeepAlive(fd);
  engine_->post([self = shared_from_this(), fd] {
    if (self->leaving_) {
      closeFd(fd);
      return;
    }
    const Status opened = self->neighbours_[kParent].link->open(fd);
    if (!opened.ok()) self->raiseHere(opened);
  });
}

Status TreeNode::awaitChildren(Deadline deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline.at(), [&] { return childrenMissing_.empty() || raised(); });
  if (childrenMissing_.empty()) return {};
  if (raised()) {
    lock.unlock();
    return failure();
  }
  return makeError(vcollTimeout, "rank {}: {} did not connect to it in time", rank_, rankList(childrenMissing_));
}

// ---- callers ----

Status TreeNode::allGather(std::string_view what, const std::vector<std::byte>& mine,
                           std::vector<std::vector<std::byte>>* all, Deadline deadline) {
  if (inForkedChild()) return makeError(vcollInvalidUsage, "{}: called in a forked child", what);
  if (raised()) return failure();
  const int64_t ms = deadline.leftMs();
  uint64_t sequence = 0;
  {
    std::lock_guard lock(mutex_);
    if (waiting_) return makeError(vcollInvalidUsage, "{}: another thread is in an exchange of this group", what);
    waiting_ = true;
    result_.reset();
    sequence = ++sequence_;
  }
  if (mine.size() > Gather::kMaxBytes) {
    raise(makeError(vcollInvalidUsage, "exchange {} ({}): {} bytes of rank {} are more than the {} allowed", sequence,
                    what, mine.size(), rank_, Gather::kMaxBytes));
  } else {
    Packer packer;
    packer.value<int32_t>(rank_).value(sequence).text(what).blob(mine.data(), mine.size());
    engine_->post(
        [self = shared_from_this(), sequence, frame = share(packer.take())] { self->contribute(sequence, frame); });
  }
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline.at(), [&] { return result_ != nullptr || raised(); });
  waiting_ = false;
  const SharedBytes result = std::exchange(result_, nullptr);
  lock.unlock();
  if (result != nullptr) {
    if (unpackAll(*result, size_, all)) return {};
    raise(makeError(vcollInternalError, "exchange {} ({}): rank {} got a malformed result", sequence, what, rank_));
  } else if (!raised()) {
    Packer packer;
    packer.value<int32_t>(rank_).value(sequence).text(what).value(ms);
    engine_->post([self = shared_from_this(), sequence, ms, name = std::string(what), frame = share(packer.take())] {
      self->timedOut(self->rank_, sequence, name, ms, frame);
    });
    // Until the progress thread has come to it there is no error to wait for.
    std::unique_lock again(mutex_);
    changed_.wait_for(again, std::chrono::milliseconds(kVerdictMs), [&] { return raised(); });
    if (!raised()) ownError_ = makeError(vcollTimeout, "exchange {} ({}): no result after {} ms", sequence, what, ms);
    raised_ = true;
  }
  return failure();
}

void TreeNode::raise(const Status& error) {
  if (inForkedChild()) return;
  {
    std::lock_guard lock(mutex_);
    if (!ownError_) ownError_ = error;
    raised_ = true;
  }
  changed_.notify_all();
  engine_->post([self = shared_from_this(), error] { self->raiseHere(error); });
}

Status TreeNode::failure() {
  std::unique_lock lock(mutex_);
  if (!raised()) return {};
  if (!engine_->onProgressThread()) {
    changed_.wait_for(lock, std::chrono::milliseconds(2 * kVerdictMs), [&] { return verdict_.has_value(); });
  }
  if (verdict_) return *verdict_;
  return ownError_ ? *ownError_ : makeError(vcollInternalError, "the group failed without a reason");
}

void TreeNode::onRaised(std::function<void()> callback) {
  if (!callback) {
    dropCallback();
    return;
  }
  if (!callback_.set(std::move(callback))) return;
  engine_->post([self = shared_from_this()] { self->callback_.fire(); });
}

void TreeNode::leave(uint64_t calls) {
  if (inForkedChild()) return;
  if (engine_->onProgressThread()) {
    leaveHere(calls);
    return;
  }
  engine_->post([self = shared_from_this(), calls] { self->leaveHere(calls); });
  // A process may exit right after this: the goodbye must be with the kernel by then, or the peers take us for lost.
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::seconds(1), [&] { return hasLeft_; });
}

// ---- progress thread: exchanges ----

void TreeNode::contribute(uint64_t sequence, const SharedBytes& frame) {
  if (hasVerdict_ || leaving_) return;
  if (rank_ == 0) {
    collect(frame);
  } else {
    sentUp_ = sequence;
    if (isTop()) return parentCannotAnswer();
    sendUp(kContribution, frame);
  }
}

void TreeNode::collect(const SharedBytes& frame) {
  if (firstError_) return;
  Unpacker reader(*frame);
  int32_t rank = -1;
  uint64_t sequence = 0;
  std::string name;
  std::vector<std::byte> blob;
  if (!reader.value(&rank) || !reader.value(&sequence) || !reader.text(&name) || !reader.blob(&blob)) {
    return raiseHere(makeError(vcollInternalError, "rank 0 got a malformed contribution to an exchange"));
  }
  const Status added = gather_.add(rank, sequence, std::move(name), std::move(blob));
  if (!added.ok()) return raiseHere(added);
  checkGather();
}

void TreeNode::checkGather() {
  if (firstError_ || gather_.empty()) return;
  const Status mismatch = gather_.mismatch();
  if (gather_.complete()) {
    engine_->cancelTimer(std::exchange(graceTimer_, 0));
    if (!mismatch.ok()) return raiseHere(mismatch);
    const SharedBytes all = gather_.take();
    sendDown(kAll, all);
    return deliver(all);
  }
  if (!mismatch.ok()) {
    if (graceTimer_ != 0) return;
    graceTimer_ = engine_->addTimer(Deadline::afterMs(kGraceMs), [self = shared_from_this()] {
      self->graceTimer_ = 0;
      const Status found = self->gather_.mismatch();
      if (!found.ok()) self->raiseHere(found);
    });
    return;
  }
  for (int rank = 0; rank < size_; ++rank) {
    if (!leavers_[static_cast<size_t>(rank)] || gather_.has(rank)) continue;
    return raiseHere(makeError(vcollRemoteError, "exchange {} ({}): rank {} has left the communicator",
                               gather_.sequence(), gather_.name(), rank));
  }
}

void TreeNode::deliver(const SharedBytes& frame) {
  cameDown_ = sequenceOf(*frame);
  {
    std::lock_guard lock(mutex_);
    if (!waiting_ || cameDown_ != sequence_) return;
    result_ = frame;
  }
  changed_.notify_all();
}

void TreeNode::timedOut(int rank, uint64_t sequence, const std::string& what, int64_t ms, const SharedBytes& frame) {
  if (firstError_ || hasVerdict_ || leaving_) return;
  const std::string start = formatText("{}: exchange {} timed out after {} ms on rank {}", what, sequence, ms, rank);
  if (rank_ == 0) {
    const Status mismatch = gather_.mismatch();
    if (!mismatch.ok()) return raiseHere(mismatch);
    if (sequence != gather_.sequence()) {
      return raiseHere(makeError(vcollTimeout, "{}, while its result was on the way", start));
    }
    return raiseHere(makeError(vcollTimeout, "{}, waiting for {}", start, rankList(gather_.missing())));
  }
  // Rank 0 knows who is missing. If it does not answer, that is what is known.
  const int parent = neighbours_[kParent].rank;
  raiseHere(makeError(vcollTimeout, "{}; rank 0, which collects it, does not answer{}", start,
                      parent == 0 ? "" : formatText(" through rank {}", parent)),
            kTimedOut, frame);
}

// The tree falls apart where a rank leaves, but each of its parts has a neighbour of that rank in it. So every rank
// that stays learns of at least the first one that left.
void TreeNode::rankLeft(size_t from, int rank, uint64_t calls) {
  if (rank < 0 || rank >= size_) return broken(from, "the goodbye of a rank that is none");
  const SharedBytes frame = share(Packer().value<int32_t>(rank).value(calls).take());
  if (from != kParent) sendUp(kLeft, frame);
  if (calls < leftCalls_.load(std::memory_order_relaxed)) {
    leftRank_.store(rank, std::memory_order_relaxed);
    leftCalls_.store(calls, std::memory_order_release);
    for (size_t i = 1; i < neighbours_.size(); ++i) {
      if (i != from && neighbours_[i].link != nullptr) neighbours_[i].link->send(kLeft, frame);
    }
  }
  if (rank_ != 0) return;
  leavers_[static_cast<size_t>(rank)] = true;
  checkGather();
}

void TreeNode::onGoodbye(size_t from, uint64_t calls) {
  neighbours_[from].left = true;
  rankLeft(from, neighbours_[from].rank, calls);
  if (from != kParent) return;
  if (firstError_ && !hasVerdict_) return decide(*firstError_);
  if (sentUp_ > cameDown_) parentCannotAnswer();
}

void TreeNode::parentCannotAnswer() {
  raiseHere(makeError(vcollRemoteError, "exchange {}: rank {} has left the communicator", sentUp_,
                      neighbours_[kParent].rank));
}

// ---- progress thread: errors ----

void TreeNode::raiseHere(const Status& error) { raiseHere(error, kError, share(Packer().status(error).take())); }

void TreeNode::raiseHere(const Status& error, uint32_t upType, const SharedBytes& upFrame) {
  if (firstError_ || hasVerdict_ || leaving_) return;
  firstError_ = error;
  logInfo("rank {} of {}: {}: {}", rank_, size_, resultName(error.code()), error.text());
  if (isTop()) return decide(error);
  sendUp(upType, upFrame);
  verdictTimer_ = engine_->addTimer(Deadline::afterMs(kVerdictMs), [self = shared_from_this()] {
    self->verdictTimer_ = 0;
    self->decide(*self->firstError_);
  });
  {
    std::lock_guard lock(mutex_);
    if (!ownError_) ownError_ = error;
    raised_ = true;
  }
  changed_.notify_all();
  callback_.fire();
}

void TreeNode::decide(const Status& verdict) {
  if (hasVerdict_) return;
  hasVerdict_ = true;
  if (!firstError_) firstError_ = verdict;
  engine_->cancelTimer(std::exchange(verdictTimer_, 0));
  engine_->cancelTimer(std::exchange(graceTimer_, 0));
  gather_ = Gather(rank_ == 0 ? size_ : 0);
  sendDown(kVerdict, share(Packer().status(verdict).take()));
  {
    std::lock_guard lock(mutex_);
    verdict_ = verdict;
    raised_ = true;
    failed_ = true;
  }
  changed_.notify_all();
  callback_.fire();
}

void TreeNode::broken(size_t from, const char* what) {
  raiseHere(makeError(vcollInternalError, "rank {} got {} from rank {}", rank_, what, neighbours_[from].rank));
}

// ---- progress thread: links ----

void TreeNode::sendUp(uint32_t type, const SharedBytes& payload) {
  if (!isTop()) neighbours_[kParent].link->send(type, payload);
}

void TreeNode::sendDown(uint32_t type, const SharedBytes& payload) {
  for (size_t i = 1; i < neighbours_.size(); ++i) {
    if (neighbours_[i].link != nullptr) neighbours_[i].link->send(type, payload);
  }
}

void TreeNode::onFrame(size_t from, uint32_t type, const SharedBytes& payload) {
  if (leaving_) return;
  if (type == kGoodbye) {
    uint64_t calls = Group::kManyCalls;
    if (!Unpacker(*payload).value(&calls)) return broken(from, "a malformed goodbye");
    return onGoodbye(from, calls);
  }
  if (from == kParent) return onParentFrame(type, payload);
  onChildFrame(from, type, payload);
}

void TreeNode::onParentFrame(uint32_t type, const SharedBytes& payload) {
  if (type == kAll) {
    if (hasVerdict_) return;
    sendDown(kAll, payload);
    return deliver(payload);
  }
  if (type == kLeft) {
    Unpacker reader(*payload);
    int32_t rank = -1;
    uint64_t calls = 0;
    if (!reader.value(&rank) || !reader.value(&calls)) return broken(kParent, "a malformed frame");
    return rankLeft(kParent, rank, calls);
  }
  Status verdict;
  if (type != kVerdict || !Unpacker(*payload).status(&verdict)) return broken(kParent, "a malformed frame");
  decide(verdict);
}

void TreeNode::onChildFrame(size_t from, uint32_t type, const SharedBytes& payload) {
  Unpacker reader(*payload);
  int32_t rank = -1;
  uint64_t sequence = 0;
  int64_t ms = 0;
  std::string what;
  Status error;
  switch (type) {
    case kContribution:
      if (!reader.value(&rank) || !reader.value(&sequence)) break;
      return contribute(sequence, payload);
    case kError:
      if (!reader.status(&error)) break;
      return raiseHere(error, kError, payload);
    case kTimedOut:
      if (!reader.value(&rank) || !reader.value(&sequence) || !reader.text(&what) || !reader.value(&ms)) break;
      return timedOut(rank, sequence, what, ms, payload);
    case kLeft:
      if (!reader.value(&rank) || !reader.value(&sequence)) break;
      return rankLeft(from, rank, sequence);
    default:
      break;
  }
  broken(from, "a malformed frame");
}

void TreeNode::onEnd(size_t from, int errnoValue) {
  Neighbour& neighbour = neighbours_[from];
  neighbour.gone = true;
  if (leaving_) {
    for (const Neighbour& other : neighbours_) {
      if (other.link != nullptr && other.link->isOpen()) return;
    }
    // Not here: dropping the timer may free this, and the link that called.
    engine_->post([self = shared_from_this()] { self->closeLinks(); });
    return;
  }
  if (neighbour.left || hasVerdict_) return;
  if (errnoValue == EPROTO) return broken(from, "bytes that are no frame");
  logInfo("rank {}: the connection of rank {} ended without a goodbye (errno {})", rank_, neighbour.rank, errnoValue);
  if (from == kParent && firstError_) return decide(*firstError_);
  // The same words whoever sees it, so that parent and children of a lost rank agree.
  raiseHere(makeError(vcollRemoteError, "rank {} was lost: connection closed without a goodbye", neighbour.rank));
}

void TreeNode::leaveHere(uint64_t calls) {
  if (leaving_) return;
  if (firstError_ && !hasVerdict_) decide(*firstError_);
  leaving_ = true;
  engine_->cancelTimer(std::exchange(graceTimer_, 0));
  bool open = false;
  const SharedBytes goodbye = share(Packer().value(calls).take());
  for (Neighbour& neighbour : neighbours_) {
    if (neighbour.link == nullptr) continue;
    neighbour.link->send(kGoodbye, goodbye);
    if (neighbour.link->isOpen()) {
      neighbour.link->finish();
      open = true;
    } else {
      neighbour.link->close();
    }
  }
  if (open) {
    lingerTimer_ = engine_->addTimer(Deadline::afterMs(kLingerMs), [self = shared_from_this()] {
      self->lingerTimer_ = 0;
      self->closeLinks();
    });
  }
  {
    std::lock_guard lock(mutex_);
    hasLeft_ = true;
  }
  changed_.notify_all();
}

void TreeNode::closeLinks() {
  engine_->cancelTimer(std::exchange(lingerTimer_, 0));
  for (Neighbour& neighbour : neighbours_) {
    if (neighbour.link != nullptr) neighbour.link->close();
  }
}

}  // namespace vcoll
