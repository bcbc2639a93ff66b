// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/group.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "base/hash.h"
#include "bootstrap/engine.h"
#include "bootstrap/packing.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/socket.h"
#include "bootstrap/tree.h"

namespace vcoll {
namespace {

class TreeGroup final : public Group {
 public:
  TreeGroup(std::shared_ptr<TreeNode> node, int rank, int size, const Nonce& nonce)
      : node_(std::move(node)), rank_(rank), size_(size), nonce_(nonce) {}
  ~TreeGroup() override {
    if (inForkedChild()) return;
    node_->dropCallback();
    node_->leave(kManyCalls);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const Nonce& nonce() const override { return nonce_; }
  Status allGather(std::string_view what, const Blob& mine, std::vector<Blob>* all, Deadline deadline) override {
    return node_->allGather(what, mine, all, deadline);
  }
  void raise(const Status& error) override { node_->raise(error); }
  bool failed() const override { return node_->failed(); }
  bool raised() const override { return node_->raised(); }
  Status failure() override { return node_->failure(); }
  void onRaised(std::function<void()> callback) override { node_->onRaised(std::move(callback)); }
  void leave(uint64_t calls) override { node_->leave(calls); }
  int leftBefore(uint64_t call) const override { return node_->leftBefore(call); }

 private:
  const std::shared_ptr<TreeNode> node_;
  const int rank_;
  const int size_;
  const Nonce nonce_;
};

// One rank: no sockets, no thread.
class SoloGroup final : public Group {
 public:
  explicit SoloGroup(const Nonce& nonce) : nonce_(nonce) {}
  ~SoloGroup() override { dropCallback(); }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const Nonce& nonce() const override { return nonce_; }
  Status allGather(std::string_view, const Blob& mine, std::vector<Blob>* all, Deadline) override {
    VCOLL_TRY(failure());
    all->assign(1, mine);
    return {};
  }
  void raise(const Status& error) override {
    std::lock_guard lock(mutex_);
    if (error_ || inForkedChild()) return;
    error_ = error;
    fireLater();
  }
  bool failed() const override {
    std::lock_guard lock(mutex_);
    return error_.has_value();
  }
  bool raised() const override { return failed(); }
  Status failure() override {
    std::lock_guard lock(mutex_);
    return error_ ? *error_ : Status();
  }
  void onRaised(std::function<void()> callback) override {
    if (!callback) return dropCallback();
    std::lock_guard lock(mutex_);
    hasCallback_ = true;
    callback_->set(std::move(callback));
    if (error_) fireLater();
  }
  void leave(uint64_t) override {}
  int leftBefore(uint64_t) const override { return -1; }

 private:
  void dropCallback() {
    if (inForkedChild()) return;
    const Engine* engine = nullptr;
    {
      std::lock_guard lock(mutex_);
      engine = engine_;
    }
    callback_->clear(engine);  // may wait for the callback, which may use this group
  }
  // The callback belongs on the progress thread, which is started for it only now.
  void fireLater() {  // mutex held
    if (!hasCallback_ || !Engine::get(&engine_).ok()) return;
    engine_->post([callback = callback_] { callback->fire(); });
  }
  const Nonce nonce_;
  mutable std::mutex mutex_;
  std::optional<Status> error_;
  bool hasCallback_ = false;
  const std::shared_ptr<CallbackOnce> callback_ = std::make_shared<CallbackOnce>();
  Engine* engine_ = nullptr;
};

// A group in the making: from the moment others may be told where this rank's children connect.
class Assembly {
 public:
  static Status start(int rank, int size, std::unique_ptr<Assembly>* assembly) {
    Engine* engine = nullptr;
    Listener* listener = nullptr;
    VCOLL_TRY(Engine::get(&engine));
    VCOLL_TRY(Listener::get(&listener));
    assembly->reset(new Assembly(listener, std::make_shared<TreeNode>(engine, rank, size), rank, size));
    return {};
  }
  ~Assembly() {
    listener_->forget(treeNonce_, Purpose::kTree);
    if (!finished_) node_->leave(Group::kManyCalls);
  }
  const Endpoint& endpoint() const { return listener_->endpoint(); }
  const Nonce& treeNonce() const { return treeNonce_; }

  Status finish(const JoinAnswer& place, Deadline deadline, std::unique_ptr<Group>* group) {
    const Status status = connect(place, deadline);
    if (!status.ok()) {
      node_->raise(status);  // the neighbours learn why this rank goes
      return status;
    }
    finished_ = true;
    *group = std::make_unique<TreeGroup>(node_, rank_, size_, place.groupNonce);
    return {};
  }

 private:
  Assembly(Listener* listener, std::shared_ptr<TreeNode> node, int rank, int size)
      : listener_(listener), node_(std::move(node)), rank_(rank), size_(size), treeNonce_(randomNonce()) {
    listener_->expect(treeNonce_, Purpose::kTree, [child = node_](int fd, const std::vector<std::byte>& payload) {
      child->acceptChild(fd, payload);
    });
  }
  Status connect(const JoinAnswer& place, Deadline deadline) {
    if (rank_ > 0) {
      const int32_t self = rank_;
      int fd = -1;
      const std::string what = formatText("rank {} connecting to rank {}", rank_, TreeNode::parentOf(rank_));
      VCOLL_TRY(connectTo(
          place.parent, place.parentNonce, Purpose::kTree, &self, sizeof self, what, deadline,
          [this] { return node_->raised(); }, &fd));
      node_->attachParent(fd);
    }
    return node_->awaitChildren(deadline);
  }

  Listener* const listener_;
  const std::shared_ptr<TreeNode> node_;
  const int rank_;
  const int size_;
  const Nonce treeNonce_;
  bool finished_ = false;
};

Status checkWorld(int nranks, int rank) {
  if (nranks < 1) return makeError(vcollInvalidArgument, "nranks is {}: it must be at least 1", nranks);
  if (nranks > kMaxRanks)
    return makeError(vcollInvalidArgument, "nranks is {}: it may be at most {}", nranks, kMaxRanks);
  if (rank < 0 || rank >= nranks) {
    return makeError(vcollInvalidArgument, "rank is {}: it must be from 0 to {}", rank, nranks - 1);
  }
  return {};
}

Status joinAt(const std::vector<Endpoint>& endpoints, const std::string& where, const Nonce& nonce, int nranks,
              int rank, Deadline deadline, bool retryLost, std::unique_ptr<Group>* group) {
  std::unique_ptr<Assembly> assembly;
  VCOLL_TRY(Assembly::start(rank, nranks, &assembly));
  JoinRequest request;
  request.nranks = nranks;
  request.rank = rank;
  request.tree = assembly->endpoint();
  request.treeNonce = assembly->treeNonce();
  JoinAnswer place;
  VCOLL_TRY(joinRendezvous(endpoints, where, nonce, request, deadline, retryLost, &place));
  return assembly->finish(place, deadline, group);
}

// The content of a vcollUniqueId.
struct IdContent {
  static constexpr uint64_t kMagic = 0x3144496c6c6f6376;  // "vcollID1"
  uint64_t magic = kMagic;
  Endpoint endpoint;
  Nonce nonce{};
  uint64_t digest = 0;

  uint64_t computeDigest() const {
    Digest sum;
    sum.add(nonce[0]);
    sum.add(nonce[1]);
    sum.add(static_cast<uint64_t>(endpoint.family) << 48 | static_cast<uint64_t>(endpoint.port) << 32 | endpoint.scope);
    for (const unsigned char byte : endpoint.address) sum.add(byte);
    return sum.value();
  }
};
static_assert(sizeof(IdContent) <= VCOLL_UNIQUE_ID_BYTES);

Status readId(const vcollUniqueId& id, IdContent* content) {
  std::memcpy(content, id.internal, sizeof *content);
  const bool zero = std::all_of(std::begin(id.internal), std::end(id.internal), [](char byte) { return byte == 0; });
  if (zero) {
    return makeError(vcollInvalidArgument,
                     "the unique id is all zero: it was not passed on from the rank that made it");
  }
  if (content->magic != IdContent::kMagic || content->digest != content->computeDigest()) {
    return makeError(vcollInvalidArgument, "the unique id is not one that vcollGetUniqueId made, or it was damaged");
  }
  return {};
}

// What a rank contributes to a split.
struct SplitOffer {
  uint64_t members = 0;  // digest of its list; 0: none
  Endpoint endpoint;
  Nonce treeNonce{};
  Nonce groupNonce{};  // that of the new rank 0 counts
};

uint64_t digestOf(const std::vector<int>& members) {
  Digest sum;
  for (const int member : members) sum.add(static_cast<uint64_t>(member));
  return members.empty() ? 0 : sum.value() | 1;
}

Status checkMembers(const std::vector<int>& members, int rank, int size) {
  const std::set<int> unique(members.begin(), members.end());
  const bool inRange = unique.empty() || (*unique.begin() >= 0 && *unique.rbegin() < size);
  if (!inRange || unique.size() != members.size() || (!members.empty() && !unique.contains(rank))) {
    return makeError(vcollInternalError, "split: the list of members of rank {} is wrong", rank);
  }
  return {};
}

}  // namespace

Status makeUniqueId(vcollUniqueId* id) {
  Listener* listener = nullptr;
  VCOLL_TRY(Listener::get(&listener));
  IdContent content;
  content.endpoint = listener->endpoint();
  content.nonce = randomNonce();
  content.digest = content.computeDigest();
  VCOLL_TRY(serveRendezvous(content.nonce));
  *id = {};
  std::memcpy(id->internal, &content, sizeof content);
  return {};
}

Status joinGroup(const vcollUniqueId& id, int nranks, int rank, Deadline deadline, std::unique_ptr<Group>* group) {
  VCOLL_TRY(checkWorld(nranks, rank));
  IdContent content;
  VCOLL_TRY(readId(id, &content));
  if (nranks == 1) {
    // Nobody to meet, but an id that was used, or that others use for a larger world, must not pass.
    JoinRequest request;
    request.nranks = 1;
    JoinAnswer place;
    VCOLL_TRY(
        joinRendezvous({content.endpoint}, content.endpoint.text(), content.nonce, request, deadline, false, &place));
    *group = std::make_unique<SoloGroup>(place.groupNonce);
    return {};
  }
  return joinAt({content.endpoint}, content.endpoint.text(), content.nonce, nranks, rank, deadline, false, group);
}

Status splitGroup(Group& parent, const std::vector<int>& members, Deadline deadline, std::unique_ptr<Group>* group) {
  group->reset();
  const Status checked = checkMembers(members, parent.rank(), parent.size());
  if (!checked.ok()) {
    parent.raise(checked);
    return parent.failure();
  }
  const auto place = std::find(members.begin(), members.end(), parent.rank());
  const int rank = static_cast<int>(place - members.begin());
  const int size = static_cast<int>(members.size());
  SplitOffer offer;
  offer.members = digestOf(members);
  offer.groupNonce = randomNonce();
  std::unique_ptr<Assembly> assembly;
  if (size > 1) {
    const Status started = Assembly::start(rank, size, &assembly);
    if (!started.ok()) {
      parent.raise(started);
      return parent.failure();
    }
    offer.endpoint = assembly->endpoint();
    offer.treeNonce = assembly->treeNonce();
  }
  std::vector<Blob> blobs;
  VCOLL_TRY(parent.allGather("CommSplit", Packer().value(offer).take(), &blobs, deadline));
  std::vector<SplitOffer> offers(blobs.size());
  for (size_t i = 0; i < blobs.size(); ++i) {
    if (!Unpacker(blobs[i]).value(&offers[i])) return makeError(vcollInternalError, "split: rank {} sent no offer", i);
  }
  if (size == 0) return {};
  for (const int member : members) {
    if (offers[static_cast<size_t>(member)].members == offer.members) continue;
    parent.raise(makeError(vcollMismatch, "split: ranks {} and {} list different members",
                           std::min(member, parent.rank()), std::max(member, parent.rank())));
    return parent.failure();
  }
  const Nonce groupNonce = offers[static_cast<size_t>(members[0])].groupNonce;
  if (size == 1) {
    *group = std::make_unique<SoloGroup>(groupNonce);
    return {};
  }
  const SplitOffer& above =
      offers[static_cast<size_t>(members[static_cast<size_t>(TreeNode::parentOf(std::max(rank, 1)))])];
  return assembly->finish({groupNonce, above.endpoint, above.treeNonce}, deadline, group);
}

Status joinGroupFromEnv(const LaunchInfo& info, Deadline deadline, std::unique_ptr<Group>* group) {
  VCOLL_TRY(checkWorld(info.nranks, info.rank));
  if (info.nranks == 1) {
    *group = std::make_unique<SoloGroup>(randomNonce());
    return {};
  }
  std::string host;
  uint16_t port = 0;
  std::vector<Endpoint> endpoints;
  bool literal = false;
  VCOLL_TRY(parseHostPort(info.address, "the rendezvous address", &host, &port));
  VCOLL_TRY(resolveHost(host, port, &endpoints, &literal));
  // Whoever reads the same address text expects the same nonce: it tells vcoll from strangers, nothing more.
  Digest sum;
  for (const char letter : info.address) sum.add(static_cast<unsigned char>(letter));
  const Nonce nonce = {mix64(sum.value() ^ 0x76636f6c6c656e76), sum.value()};
  if (info.rank != 0) return joinAt(endpoints, info.address, nonce, info.nranks, info.rank, deadline, true, group);

  // A name may stand for an address that only other hosts use for this one (or for 127.0.1.1): listen at all.
  Status status = serveRendezvousAt(literal ? endpoints[0] : anyAddress(port), nonce);
  if (!status.ok()) {
    return Status(status.code(),
                  formatText("rank 0 cannot serve the rendezvous at {}: {}; VCOLL_COMM_ID=host:port sets "
                             "another address",
                             info.address, status.text()));
  }
  Listener* listener = nullptr;
  VCOLL_TRY(Listener::get(&listener));
  status = joinAt({listener->endpoint()}, info.address, nonce, info.nranks, 0, deadline, true, group);
  if (!status.ok()) failRendezvousAt(nonce, status);
  return status;
}

}  // namespace vcoll
