// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/rendezvous.h"

#include <algorithm>
#include <deque>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/log.h"
#include "bootstrap/engine.h"
#include "bootstrap/frame_link.h"
#include "bootstrap/gather.h"
#include "bootstrap/packing.h"
#include "bootstrap/tree.h"

namespace vcoll {
namespace {

constexpr size_t kRemembered = 1024;        // ended rendezvous whose late comers are still told why
constexpr int64_t kFailedAddressMs = 3000;  // how long a failed rendezvous keeps its well-known address
constexpr int64_t kCloseMs = 10000;
constexpr int64_t kMaxTimeoutMs = int64_t{30} * 86400 * 1000;

std::string versionText(uint32_t code) { return formatText("{}.{}.{}", code / 10000, code / 100 % 100, code % 100); }

// Progress thread only, but for the constructor and serve().
class Server final : public std::enable_shared_from_this<Server> {
 public:
  Server(Engine* engine, Listener* listener, const Nonce& nonce)
      : engine_(engine), listener_(listener), nonce_(nonce) {}

  void serve() {
    // The listener's table keeps the server alive.
    listener_->expect(
        nonce_, Purpose::kRendezvous,
        [self = shared_from_this()](int fd, std::vector<std::byte> payload) { self->accept(fd, payload); });
  }
  Status listenHere(const Endpoint& at) {
    VCOLL_TRY(Acceptor::open(at, receiveHello, &acceptor_));
    wellKnown_ = true;
    return {};
  }
  void stop();
  void fail(const Status& error);

 private:
  struct Visitor {
    uint64_t id = 0;
    std::unique_ptr<FrameLink> link;
    std::optional<JoinRequest> request;  // of a rank that has joined
    uint64_t timer = 0;
    bool answered = false;
  };
  void accept(int fd, const std::vector<std::byte>& payload);
  Status check(const JoinRequest& request) const;
  void complete();
  void answer(Visitor& visitor, uint32_t type, std::vector<std::byte> payload);
  void onEnd(uint64_t id);
  void forgetVisitor(uint64_t id);
  void rankTimedOut(uint64_t id);
  void ended(bool failed);

  Engine* engine_;
  Listener* listener_;
  const Nonce nonce_;
  bool wellKnown_ = false;
  std::unique_ptr<Acceptor> acceptor_;  // only at a well-known address
  int nranks_ = 0;                      // 0: nobody has joined yet
  int firstRank_ = -1;                  // the rank nranks_ is from
  uint64_t lastId_ = 0;
  std::map<uint64_t, Visitor> visitors_;
  std::shared_ptr<Server> keptByVisitors_;  // this, while there are any: their links and timers call back
  std::map<int, uint64_t> joined_;          // rank: visitor
  std::optional<Status> outcome_;           // what late comers are told
  std::set<int> told_;                      // ranks that came and were or will be answered
  uint64_t stopTimer_ = 0;
};

// Servers of well-known addresses, by nonce, and the nonces of ended ones of unique ids. Progress thread only.
std::map<Nonce, std::shared_ptr<Server>>& addressServers() {
  static auto* const instance = new std::map<Nonce, std::shared_ptr<Server>>;
  return *instance;
}
std::deque<Nonce>& endedIds() {
  static auto* const instance = new std::deque<Nonce>;
  return *instance;
}

Status Server::check(const JoinRequest& request) const {
  if (request.version != VCOLL_VERSION_CODE) {
    return makeError(vcollMismatch,
                     "library versions differ: rank {} has vcoll {}, the server of the rendezvous has {}", request.rank,
                     versionText(request.version), versionText(VCOLL_VERSION_CODE));
  }
  if (outcome_) return *outcome_;
  if (request.nranks < 1 || request.nranks > kMaxRanks || request.rank < 0 || request.rank >= request.nranks) {
    return makeError(vcollInvalidArgument, "rank {} is outside of a world of {} ranks", request.rank, request.nranks);
  }
  if (nranks_ != 0 && request.nranks != nranks_) {
    const bool lower = firstRank_ < request.rank;
    return makeError(vcollMismatch, "world sizes differ: rank {} says {}, rank {} says {}",
                     lower ? firstRank_ : request.rank, lower ? nranks_ : request.nranks,
                     lower ? request.rank : firstRank_, lower ? request.nranks : nranks_);
  }
  if (joined_.contains(request.rank)) {
    return makeError(vcollInvalidUsage, "rank {} joined twice: was the unique id reused, or the rank given twice?",
                     request.rank);
  }
  return {};
}

void Server::accept(int fd, const std::vector<std::byte>& payload) {
  const uint64_t id = ++lastId_;
  keptByVisitors_ = shared_from_this();
  Visitor& visitor = visitors_[id];
  visitor.id = id;
  visitor.link = std::make_unique<FrameLink>(
      engine_, [](uint32_t, const SharedBytes&) {}, [this, id](int) { onEnd(id); });
  if (!visitor.link->open(fd).ok()) {
    forgetVisitor(id);
    return;
  }
  JoinRequest request;
  Unpacker reader(payload);
  // The version comes first and stays first: another version's request may be of another length.
  const bool whole = reader.value(&request);
  if (!whole) Unpacker(payload).value(&request.version);
  // A rank that knows of the failure tries again, before rank 0 does: it is not told of the old failure twice.
  if (wellKnown_ && outcome_ && told_.contains(request.rank)) return forgetVisitor(id);
  told_.insert(request.rank);
  Status status = check(request);
  if (status.ok() && !whole) status = makeError(vcollInternalError, "a malformed request to join");
  if (!status.ok()) {
    if (outcome_) return answer(visitor, kJoinRefused, Packer().status(status).take());
    return fail(status);
  }
  visitor.request = request;
  if (nranks_ == 0) {
    nranks_ = request.nranks;
    firstRank_ = request.rank;
  }
  joined_[request.rank] = id;
  visitor.request->timeoutMs = std::clamp<int64_t>(request.timeoutMs, 0, kMaxTimeoutMs);
  const int64_t early = std::min<int64_t>(500, visitor.request->timeoutMs / 4);
  visitor.timer =
      engine_->addTimer(Deadline::afterMs(visitor.request->timeoutMs - early), [this, id] { rankTimedOut(id); });
  if (joined_.size() == static_cast<size_t>(nranks_)) complete();
}

void Server::complete() {
  // The address is free before any rank goes on: the next group may be at it at once.
  acceptor_.reset();
  const Nonce groupNonce = randomNonce();
  outcome_ =
      makeError(vcollInvalidUsage, "unique id reused: it was already used, by a group of {} rank{} that is complete",
                nranks_, nranks_ == 1 ? "" : "s");
  for (const auto& [rank, id] : joined_) {
    JoinAnswer message;
    message.groupNonce = groupNonce;
    const JoinRequest& parent = *visitors_.at(joined_.at(rank == 0 ? 0 : TreeNode::parentOf(rank))).request;
    message.parent = parent.tree;
    message.parentNonce = parent.treeNonce;
    answer(visitors_.at(id), kJoinAccepted, Packer().value(message).take());
  }
  ended(false);
}

void Server::fail(const Status& error) {
  if (outcome_) return;
  outcome_ = error;
  logInfo("rendezvous failed: {}", error.text());
  for (auto& [id, visitor] : visitors_) answer(visitor, kJoinRefused, Packer().status(error).take());
  ended(true);
}

void Server::answer(Visitor& visitor, uint32_t type, std::vector<std::byte> payload) {
  if (std::exchange(visitor.answered, true)) return;
  engine_->cancelTimer(std::exchange(visitor.timer, 0));
  visitor.link->send(type, std::make_shared<const std::vector<std::byte>>(std::move(payload)));
  visitor.link->finish();
  // The rank closes when it has read this. One that never does is not waited for.
  const uint64_t id = visitor.id;
  visitor.timer =
      engine_->addTimer(Deadline::afterMs(kCloseMs), [self = shared_from_this(), id] { self->forgetVisitor(id); });
}

void Server::onEnd(uint64_t id) {
  Visitor& visitor = visitors_.at(id);
  engine_->cancelTimer(std::exchange(visitor.timer, 0));
  if (!visitor.answered && visitor.request) {
    visitor.answered = true;
    fail(makeError(vcollRemoteError, "rank {} left the rendezvous before all {} ranks had joined",
                   visitor.request->rank, nranks_));
  }
  // Not here: the link is in the middle of its call.
  engine_->post([self = shared_from_this(), id] { self->forgetVisitor(id); });
}

void Server::forgetVisitor(uint64_t id) {
  visitors_.erase(id);
  if (visitors_.empty()) keptByVisitors_.reset();
}

void Server::rankTimedOut(uint64_t id) {
  Visitor& visitor = visitors_.at(id);
  visitor.timer = 0;
  std::vector<int> missing;
  for (int rank = 0; rank < nranks_; ++rank) {
    if (!joined_.contains(rank)) missing.push_back(rank);
  }
  fail(makeError(vcollTimeout, "rendezvous: the time-out of rank {} ({} ms) ran out, still missing {} of {}",
                 visitor.request->rank, visitor.request->timeoutMs, rankList(missing), nranks_));
}

void Server::ended(bool failed) {
  joined_.clear();
  if (wellKnown_) {
    if (!failed) return stop();
    stopTimer_ = engine_->addTimer(Deadline::afterMs(kFailedAddressMs), [self = shared_from_this()] {
      self->stopTimer_ = 0;
      self->stop();
    });
    return;
  }
  auto& ids = endedIds();
  ids.push_back(nonce_);
  if (ids.size() <= kRemembered) return;
  const Nonce oldest = ids.front();
  ids.pop_front();
  listener_->forget(oldest, Purpose::kRendezvous);
}

void Server::stop() {
  const auto self = shared_from_this();
  acceptor_.reset();
  engine_->cancelTimer(std::exchange(stopTimer_, 0));
  listener_->forget(nonce_, Purpose::kRendezvous);
  addressServers().erase(nonce_);
}

}  // namespace

Status serveRendezvous(const Nonce& nonce) {
  Engine* engine = nullptr;
  Listener* listener = nullptr;
  VCOLL_TRY(Engine::get(&engine));
  VCOLL_TRY(Listener::get(&listener));
  std::make_shared<Server>(engine, listener, nonce)->serve();
  return {};
}

Status serveRendezvousAt(const Endpoint& at, const Nonce& nonce) {
  Engine* engine = nullptr;
  Listener* listener = nullptr;
  VCOLL_TRY(Engine::get(&engine));
  VCOLL_TRY(Listener::get(&listener));
  const auto done = std::make_shared<std::promise<Status>>();
  engine->post([=] {
    const auto earlier = addressServers().find(nonce);
    if (earlier != addressServers().end()) {
      const auto server = earlier->second;
      server->fail(makeError(vcollInvalidUsage, "another rendezvous began at the same address"));
      server->stop();
    }
    const auto server = std::make_shared<Server>(engine, listener, nonce);
    Status status = server->listenHere(at);
    if (status.ok()) {
      addressServers()[nonce] = server;
      server->serve();
    }
    done->set_value(std::move(status));
  });
  return done->get_future().get();
}

void failRendezvousAt(const Nonce& nonce, const Status& error) {
  Engine* engine = nullptr;
  if (!Engine::get(&engine).ok()) return;
  engine->post([nonce, error] {
    const auto server = addressServers().find(nonce);
    if (server != addressServers().end()) server->second->fail(error);
  });
}

}  // namespace vcoll
