// SPDX-License-Identifier: Apache-2.0
#include "transport/host/publish_fabric.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>

#include "base/hash.h"
#include "base/log.h"
#include "base/params.h"
#include "transport/host/wire_select.h"

namespace vcoll {

namespace {

// Chunks from which on an item may be carried by several rails.
constexpr uint64_t kHeavyChunks = 8;
// Lanes are looked at so often before the sockets get their turn.
constexpr int kRounds = 8;
// How late a waiter may notice that the communicator failed.
constexpr int64_t kLookMs = 20;

}  // namespace

// --- Port ------------------------------------------------------------------------------------------------------------

uint32_t PublishFabric::Port::counterIndex(kernels::PublishCounter kind, uint32_t id) const {
  return (rail().rail * kernels::kPublishCounterKinds + static_cast<uint32_t>(kind)) * fabric_.topology_.nodes() + id;
}

uint64_t PublishFabric::Port::counter(kernels::PublishCounter kind, uint32_t id) const {
  return fabric_.counters_[counterIndex(kind, id)].load(std::memory_order_acquire);
}

void PublishFabric::Port::signal(uint32_t peer, kernels::PublishCounter kind, uint32_t id) {
  if (fabric_.closed_) return;
  fabric_.wire_->signal(fabric_.wireComm_, static_cast<int>(peer), counterIndex(kind, id), 1);
}

bool PublishFabric::Port::ready(uint32_t peer) const {
  return !fabric_.closed_ && fabric_.wire_->ready(fabric_.wireComm_, static_cast<int>(peer)) != 0;
}

kernels::PublishHeader PublishFabric::Port::header(uint64_t place) const {
  kernels::PublishHeader header = fabric_.headers_[rail().firstPlace + place];
  header.item -= rail().firstItem;  // items are known by their number over all rails
  return header;
}

void PublishFabric::Port::putHeader(uint32_t peer, uint64_t place, uint32_t id) {
  const uint64_t index = rail().firstPlace + place;
  fabric_.wire_->put(fabric_.wireComm_, static_cast<int>(peer), &fabric_.headers_[index],
                     sizeof(kernels::PublishHeader), kHeaderWindow, index * sizeof(kernels::PublishHeader),
                     counterIndex(kernels::PublishCounter::kArrived, id), 1);
}

void PublishFabric::Port::put(uint32_t peer, uint32_t, uint64_t offset, uint64_t bytes, uint32_t id) {
  if (bytes == 0) {
    signal(peer, kernels::PublishCounter::kArrived, id);
    return;
  }
  fabric_.wire_->put(fabric_.wireComm_, static_cast<int>(peer), fabric_.base_ + offset, bytes, kItemWindow, offset,
                     counterIndex(kernels::PublishCounter::kArrived, id), 1);
}

void PublishFabric::Port::overwriting(uint32_t item, uint32_t copy) {
  const uint64_t index = uint64_t{rail().firstItem + item} * fabric_.plan_.spec().copies + copy;
  fabric_.versions_[index].store(0, std::memory_order_seq_cst);
}

void PublishFabric::Port::whole(uint32_t item, uint32_t copy, const kernels::PublishHeader& header) {
  const uint32_t index = rail().firstItem + item;
  const vcollPublishItem_t& known = fabric_.plan_.items()[index];
  if (fabric_.options_.verify && fabric_.checksum(index, copy) != header.checksum) {
    fabric_.group_.raise(makeError(vcollRemoteError,
                                   "item {}, step {}: the checksum on rank {} is not that of its owner, rank {}: its "
                                   "bytes changed after Push or were damaged on the way",
                                   known.id, header.step, fabric_.group_.rank(), known.owner));
    return;
  }
  fabric_.versions_[uint64_t{index} * fabric_.plan_.spec().copies + copy].store(header.step + 1,
                                                                                std::memory_order_seq_cst);
  fabric_.changed_ = true;
}

void PublishFabric::Port::broken(uint32_t queue, const kernels::PublishHeader& header) {
  const kernels::PublishQueue& known = rail().view.queues[queue];
  const Machine::QueueState& state = fabric_.lanes_[lane_]->states[queue];
  const uint64_t step = state.received.step;
  // The lane stops, but the peer may go on to overwrite what is open to it.
  const uint32_t copies = fabric_.plan_.spec().copies;
  for (uint64_t open = step; open < state.opened; ++open) {
    for (uint32_t i = known.firstItem; i < known.firstItem + known.itemCount; ++i) {
      std::atomic<uint64_t>& version = fabric_.versions_[uint64_t{rail().firstItem + i} * copies + open % copies];
      if (version.load() != stepNumber(open) + 1) version.store(0);
    }
  }
  if (header.magic == kernels::kPublishMagic && step < begun() && header.step != stepNumber(step)) {
    fabric_.group_.raise(makeError(vcollMismatch, "PublishStream: step: rank {} has {}, rank {} has {}", known.up.peer,
                                   header.step, fabric_.group_.rank(), stepNumber(step)));
    return;
  }
  fabric_.group_.raise(makeError(vcollRemoteError,
                                 "PublishStream: rank {} sent a header that cannot be (item {} of {})", known.up.peer,
                                 header.item, rail().view.itemCount));
}

uint32_t PublishFabric::Port::helpers(uint32_t, uint32_t item) const {
  if (!fabric_.options_.stripe || rail().view.items[item].chunks < kHeavyChunks) return 0;
  const uint32_t most = std::min(kernels::kMaxHelpers, fabric_.help_.locals() - 1);
  uint32_t count = 0;
  while (count < most && fabric_.help_.isIdle(fabric_.help_.localOf(count + 1))) ++count;
  return count;
}

void PublishFabric::Port::help(uint32_t helper, uint32_t peer, uint32_t, uint64_t offset, uint64_t bytes, uint32_t id) {
  fabric_.help_.ask(fabric_.help_.localOf(helper), {offset, bytes, peer, counterIndex(kernels::arrivedBy(helper), id)});
}

// --- Help ------------------------------------------------------------------------------------------------------------

int PublishFabric::Help::rankOf(uint32_t local) const {
  const Topology& topology = fabric_.topology_;
  return static_cast<int>(topology.members(topology.nodeOf(static_cast<uint32_t>(fabric_.group_.rank())))[local]);
}

bool PublishFabric::Help::canAsk(uint32_t local) const {
  return !fabric_.closed_ && asked_[local] - count(creditCounter(local)) < kSlots &&
         fabric_.wire_->ready(fabric_.wireComm_, rankOf(local)) != 0;
}

void PublishFabric::Help::ask(uint32_t local, const Request& request) {
  const uint64_t slot = asked_[local]++ % kSlots;
  Request& out = out_[size_t{local} * kSlots + slot];
  out = request;
  fabric_.wire_->put(fabric_.wireComm_, rankOf(local), &out, sizeof out, kHelpWindow,
                     (uint64_t{fabric_.local_} * kSlots + slot) * sizeof out, requestCounter(fabric_.local_), 1);
}

bool PublishFabric::Help::serve(bool ownLanesIdle) {
  bool moved = false;
  for (uint32_t local = 0; local < locals(); ++local) {
    while (served_[local] < count(requestCounter(local))) {
      const Request request = in_[size_t{local} * kSlots + served_[local] % kSlots];
      const uint64_t size = fabric_.plan_.spec().windowBytes;
      if (request.peer >= fabric_.topology_.ranks() || request.offset > size || request.bytes > size - request.offset) {
        fabric_.group_.raise(
            makeError(vcollRemoteError, "PublishStream: rank {} asked for help that cannot be given", rankOf(local)));
        return false;
      }
      const auto peer = static_cast<int>(request.peer);
      if (fabric_.wire_->ready(fabric_.wireComm_, peer) == 0) break;
      fabric_.wire_->put(fabric_.wireComm_, peer, fabric_.bases_[local] + request.offset, request.bytes, kItemWindow,
                         request.offset, request.counter, 1);
      ++served_[local];
      ++owed_[local];
      moved = true;
    }
    if (!ownLanesIdle || owed_[local] == 0) continue;
    fabric_.wire_->signal(fabric_.wireComm_, rankOf(local), creditCounter(fabric_.local_), owed_[local]);
    owed_[local] = 0;
    moved = true;
  }
  return moved;
}

// --- Life ------------------------------------------------------------------------------------------------------------

PublishFabric::PublishFabric(Group& group, const Topology& topology, PublishPlan plan,
                             std::vector<unsigned char*> bases, const Options& options)
    : group_(group),
      topology_(topology),
      plan_(std::move(plan)),
      bases_(std::move(bases)),
      local_(topology.localOf(static_cast<uint32_t>(group.rank()))),
      base_(bases_[local_]),
      options_(options),
      headers_(plan_.places()),
      counters_(size_t{topology.rails()} * kernels::kPublishCounterKinds * topology.nodes() + 2 * bases_.size()),
      firstHelpCounter_(static_cast<uint32_t>(counters_.size() - 2 * bases_.size())),
      versions_(plan_.places()),
      leases_(plan_.rails().size() * topology.nodes() * plan_.spec().copies),
      slots_(plan_.items().size()),
      help_(*this, static_cast<uint32_t>(bases_.size())) {
  for (uint32_t lane = 0; lane < plan_.rails().size(); ++lane) {
    const PublishPlan::Rail& rail = plan_.rails()[lane];
    lanes_.push_back(std::make_unique<Lane>(*this, lane, rail.view));
    for (uint32_t q = 0; q < rail.view.queueCount; ++q) {
      const kernels::PublishQueue& queue = rail.view.queues[q];
      for (uint32_t i = 0; i < queue.itemCount; ++i) {
        slots_[rail.firstItem + queue.firstItem + i] = {static_cast<int32_t>(lane), q};
      }
      if (queue.hasUp) continue;
      ownFirst_ = rail.firstItem + queue.firstItem;
      ownCount_ = queue.itemCount;
      ownPlace_ = rail.firstPlace + queue.firstItem;
    }
  }
}

Status PublishFabric::open(Group& group, const Topology& topology, PublishPlan plan, std::vector<unsigned char*> bases,
                           const Options& options, std::unique_ptr<PublishFabric>* fabric) {
  std::unique_ptr<PublishFabric> made(new PublishFabric(group, topology, std::move(plan), std::move(bases), options));
  const Status status = made->connect();
  if (!status.ok()) {
    group.raise(status);
    return group.failure();
  }
  *fabric = std::move(made);
  return {};
}

Status PublishFabric::connect() {
  VCOLL_TRY(Engine::get(&engine_));
  char error[512] = {};
  struct Hello {
    uint64_t digest;
    unsigned char address[VCOLL_WIRE_ADDRESS_BYTES];
  } hello{plan_.digest(), {}};
  if (topology_.nodes() > 1) VCOLL_TRY(openWire(hello.address, error));
  // Whoever found the manifest at fault has failed the group by now, and this exchange with it.
  Blob blob(sizeof hello);
  std::memcpy(blob.data(), &hello, sizeof hello);
  std::vector<Blob> all;
  VCOLL_TRY(group_.allGather("PublishStreamCreate", blob, &all, Deadline::afterMs(options_.timeoutMs)));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    std::memcpy(&hello, all[rank].data(), std::min(all[rank].size(), sizeof hello));
    if (hello.digest != plan_.digest()) {
      return makeError(vcollMismatch, "PublishStreamCreate: rank {} has another manifest than rank {}", rank,
                       group_.rank());
    }
    wireAddresses_.insert(wireAddresses_.end(), hello.address, hello.address + VCOLL_WIRE_ADDRESS_BYTES);
  }
  const std::vector<int> wanted = peers();
  if (wanted.empty()) return {};
  if (wire_->connect(wireComm_, wireAddresses_.data(), wanted.data(), static_cast<int>(wanted.size()),
                     options_.timeoutMs, options_.cancelled, error) != 0) {
    return makeError(vcollRemoteError, "rank {} cannot connect to its peers over {}: {}", group_.rank(), wire_->name,
                     error);
  }
  return {};
}

Status PublishFabric::openWire(unsigned char* address, char* error) {
  VCOLL_TRY(selectWire(params().wire, &wire_));
  wireHost_ = {this, resolve, signal, lost, wake};
  const uint64_t nonce[2] = {mix64(group_.nonce()[0] + options_.serial + 1),
                             mix64(group_.nonce()[1] ^ (options_.serial + 1))};
  if (wire_->open(&wireHost_, nonce, group_.rank(), group_.size(), address, &wireComm_, error) != 0) {
    return makeError(vcollSystemError, "cannot open the {} wire of a PublishStream: {}", wire_->name, error);
  }
  if (wire_->windowAdd(wireComm_, kHeaderWindow, headers_.data(), headers_.size() * sizeof(kernels::PublishHeader),
                       error) != 0 ||
      wire_->windowAdd(wireComm_, kItemWindow, base_, plan_.spec().windowBytes, error) != 0 ||
      wire_->windowAdd(wireComm_, kHelpWindow, help_.in().data(), help_.in().size() * sizeof(Help::Request), error) !=
          0) {
    return makeError(vcollSystemError, "cannot register memory with the {} wire: {}", wire_->name, error);
  }
  return {};
}

// Helpers talk to all ranks of their node and of the nodes beside it.
std::vector<int> PublishFabric::peers() const {
  if (!options_.stripe || topology_.nodes() == 1) return plan_.peers();
  const auto me = static_cast<uint32_t>(group_.rank());
  const uint32_t nodes = topology_.nodes();
  std::vector<int> all;
  for (uint32_t rank = 0; rank < topology_.ranks(); ++rank) {
    const uint32_t apart = (topology_.nodeOf(rank) + nodes - topology_.nodeOf(me)) % nodes;
    const bool beside = plan_.path() == vcollPathStar || apart <= 1 || apart == nodes - 1;
    if (rank != me && beside) all.push_back(static_cast<int>(rank));
  }
  return all;
}

void PublishFabric::closeWire() {
  const std::lock_guard once(closeMutex_);
  if (wireComm_ == nullptr) return;
  {
    const std::lock_guard lock(machineMutex_);
    closed_ = true;
  }
  wire_->close(wireComm_, group_.raised() ? 0 : 1);
  wireComm_ = nullptr;
}

PublishFabric::~PublishFabric() {
  closeWire();
  if (engine_ == nullptr || inForkedChild()) return;
  // No callback comes any more; let the progress thread end what it may still have to do here.
  std::promise<void> passed;
  engine_->post([&passed] { passed.set_value(); });
  passed.get_future().wait();
}

unsigned char* PublishFabric::address(uint32_t item, uint32_t copy) const {
  return base_ + plan_.items()[item].offset + copy * plan_.spec().copyStride;
}

// --- The application's side ------------------------------------------------------------------------------------------

void PublishFabric::begin(uint64_t stepNumber) {
  const uint64_t index = begun_.load(std::memory_order_relaxed);
  stepNumbers_[index % kernels::kStepsKept].store(stepNumber, std::memory_order_relaxed);
  // The owner may write its items from now on.
  for (uint32_t item = ownFirst_; item < ownFirst_ + ownCount_; ++item) {
    versions_[uint64_t{item} * plan_.spec().copies + index % plan_.spec().copies].store(0, std::memory_order_seq_cst);
  }
  begun_.store(index + 1, std::memory_order_seq_cst);
  kick();
}

void PublishFabric::push(uint32_t item, uint64_t step) {
  const auto copy = static_cast<uint32_t>(step % plan_.spec().copies);
  kernels::PublishHeader header{};
  header.step = stepNumbers_[step % kernels::kStepsKept];
  header.item = item;
  header.magic = kernels::kPublishMagic;
  if (options_.verify) header.checksum = checksum(item, copy);
  {
    const std::lock_guard lock(pushMutex_);
    const uint64_t pushed = pushed_.load(std::memory_order_relaxed);
    const PublishPlan::Rail& rail = plan_.rails()[static_cast<size_t>(slots_[item].lane)];
    headers_[ownPlace_ + uint64_t{copy} * rail.view.itemCount + pushed % ownCount_] = header;
    versions_[uint64_t{item} * plan_.spec().copies + copy].store(header.step + 1, std::memory_order_seq_cst);
    pushed_.store(pushed + 1, std::memory_order_release);
  }
  notify();
  kick();
}

std::atomic<uint32_t>& PublishFabric::leases(uint32_t lane, uint32_t queue, uint32_t copy) const {
  return leases_[(size_t{lane} * topology_.nodes() + queue) * plan_.spec().copies + copy];
}

void PublishFabric::lease(uint32_t item, uint32_t copy) {
  leases(static_cast<uint32_t>(slots_[item].lane), slots_[item].queue, copy).fetch_add(1);
}

void PublishFabric::release(uint32_t item, uint32_t copy) {
  if (leases(static_cast<uint32_t>(slots_[item].lane), slots_[item].queue, copy).fetch_sub(1) == 1) kick();
}

void PublishFabric::settle() {
  // After a failure nothing more may land, and all that did must be looked at.
  if (group_.raised()) closeWire();
  const std::lock_guard lock(machineMutex_);
  for (const auto& lane : lanes_) {
    while (lane->machine.step()) {
    }
  }
}

Status PublishFabric::wait(const std::function<bool()>& done, const std::function<std::string()>& waiting) {
  if (done()) return {};
  const Deadline deadline = Deadline::afterMs(options_.timeoutMs);
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  std::unique_lock lock(waitMutex_);
  Status status;
  while (!done()) {
    const bool timedOut = deadline.passed();
    if (group_.raised() || timedOut) {
      lock.unlock();
      const std::string text = waiting();
      if (timedOut) group_.raise(makeError(vcollTimeout, "timed out after {} ms: {}", options_.timeoutMs, text));
      status = group_.failure();
      if (status.text().find(text) == std::string::npos) {
        status = Status(status.code(), status.text() + "; " + text);
      }
      lock.lock();
      break;
    }
    waitChanged_.wait_for(lock, std::chrono::milliseconds(std::min(deadline.leftMs(), kLookMs)));
  }
  waiters_.fetch_sub(1, std::memory_order_seq_cst);
  return status;
}

std::string PublishFabric::pending(int64_t item, uint64_t steps) {
  using kernels::Pending;
  const std::lock_guard lock(machineMutex_);
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    const kernels::PublishView& view = plan_.rails()[lane].view;
    for (uint32_t q = 0; q < view.queueCount; ++q) {
      if (item >= 0) {
        const Slot& slot = slots_[static_cast<size_t>(item)];
        if (slot.lane != static_cast<int32_t>(lane) || slot.queue != q) continue;
      } else if (lanes_[lane]->machine.finished(q) >= steps) {
        continue;
      }
      const uint32_t owner =
          static_cast<uint32_t>(plan_.items()[plan_.rails()[lane].firstItem + view.queues[q].firstItem].owner);
      const Pending what = lanes_[lane]->machine.pending(q, steps);
      static constexpr const char* kTexts[] = {
          "", "", "to open its copies", "to send", "to take what is queued on the wire", "", "",
          "", "", "to receive the rest"};
      std::string text = what.what == Pending::kNothing
                             ? (view.queues[q].hasUp ? std::string("for a lease to be released on this rank")
                                                     : formatText("for rank {} to push", owner))
                             : formatText("for rank {} {}", what.peer, kTexts[what.what]);
      return text + formatText(" (items of rank {} on rail {}: {} of {})", owner, plan_.rails()[lane].rail, what.chunk,
                               what.chunks);
    }
  }
  return "for nothing that is known";
}

// --- Progress --------------------------------------------------------------------------------------------------------

void PublishFabric::kick() {
  if (kicked_.exchange(true, std::memory_order_seq_cst)) return;
  engine_->post([this] { drive(); });
}

void PublishFabric::drive() {
  kicked_.store(false, std::memory_order_seq_cst);
  bool moved = true;
  bool changed = false;
  {
    const std::lock_guard lock(machineMutex_);
    if (closed_) return;
    for (int round = 0; round < kRounds && moved; ++round) {
      moved = false;
      for (const auto& lane : lanes_) moved |= lane->machine.step();
      if (!options_.stripe || wireComm_ == nullptr) continue;
      moved |=
          help_.serve(std::all_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane->machine.idle(); }));
    }
    uint64_t finished = begun();
    for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
      for (uint32_t q = 0; q < plan_.rails()[lane].view.queueCount; ++q) {
        finished = std::min(finished, lanes_[lane]->machine.finished(q));
      }
    }
    changed = std::exchange(changed_, false) || finished != finished_.load(std::memory_order_relaxed);
    finished_.store(finished, std::memory_order_seq_cst);
  }
  if (changed) notify();
  if (moved) kick();
}

void PublishFabric::notify() {
  if (waiters_.load(std::memory_order_seq_cst) == 0) return;
  const std::lock_guard lock(waitMutex_);
  waitChanged_.notify_all();
}

uint64_t PublishFabric::checksum(uint32_t item, uint32_t copy) const {
  return checksumOf(address(item, copy), plan_.items()[item].bytes);
}

void* PublishFabric::resolve(void* context, uint32_t window, uint64_t offset, uint64_t bytes) {
  auto* self = static_cast<PublishFabric*>(context);
  void* start = self->base_;
  uint64_t size = self->plan_.spec().windowBytes;
  if (window == kHeaderWindow) {
    start = self->headers_.data();
    size = self->headers_.size() * sizeof(kernels::PublishHeader);
  } else if (window == kHelpWindow) {
    start = self->help_.in().data();
    size = self->help_.in().size() * sizeof(Help::Request);
  } else if (window != kItemWindow) {
    return nullptr;
  }
  return offset <= size && bytes <= size - offset ? static_cast<unsigned char*>(start) + offset : nullptr;
}

void PublishFabric::signal(void* context, uint32_t counter, uint64_t add) {
  auto* self = static_cast<PublishFabric*>(context);
  if (counter >= self->counters_.size()) {
    self->group_.raise(makeError(vcollRemoteError, "a peer signalled counter {}, which does not exist", counter));
    return;
  }
  self->counters_[counter].fetch_add(add, std::memory_order_acq_rel);
  self->kick();
}

void PublishFabric::lost(void* context, int peer, const char* why) {
  static_cast<PublishFabric*>(context)->group_.raise(makeError(vcollRemoteError, "rank {} was lost: {}", peer, why));
}

void PublishFabric::wake(void* context) { static_cast<PublishFabric*>(context)->kick(); }

}  // namespace vcoll
