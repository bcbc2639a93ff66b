// SPDX-License-Identifier: Apache-2.0
// Running a call's lanes on the calling thread, and what to say when it cannot end.
#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <thread>

#include "base/hash.h"
#include "base/log.h"
#include "base/params.h"
#include "base/types.h"
#include "bootstrap/gather.h"
#include "kernels/allgatherv.h"
#include "kernels/reducescatterv.h"
#include "transport/host/host_fabric.h"
#include "transport/host/host_port.h"

namespace vcoll {

namespace {

static_assert(RecordFields::kCount == CallRecord::kWords);

std::string differenceOf(const RecordFields& a, size_t rankA, const RecordFields& b, size_t rankB) {
  static constexpr const char* kNames[] = {
      "call", "type", "op", "total bytes", "window", "offset", "dst window", "dst offset", "digest of counts or plan"};
  const auto difference = std::mismatch(a.words.begin(), a.words.end(), b.words.begin()).first;
  if (difference == a.words.end()) return "";
  const auto field = static_cast<size_t>(difference - a.words.begin());
  const auto shown = [field](const RecordFields& record) -> std::string {
    const uint64_t word = record.words[field];
    if (field == RecordFields::kKind) return callName(static_cast<CallKind>(word));
    if (field == RecordFields::kType && word < vcollNumTypes) return typeInfo(static_cast<int>(word))->name;
    if (field == RecordFields::kOp && word < vcollNumOps) return opName(static_cast<int>(word));
    return formatText("{}", word);
  };
  return formatText("{}: rank {} has {}, rank {} has {}", kNames[field], rankA, shown(a), rankB, shown(b));
}

uint64_t signatureOf(const RecordFields& fields) {
  Digest digest;
  for (const uint64_t word : fields.words) digest.add(word);
  return digest.value();
}

// How much longer ranks wait that do not wait for one to enter.
constexpr int64_t kFollowerMs = 300;

void sleepForTest(int64_t maxMs) {
  thread_local std::minstd_rand random(std::random_device{}());
  std::this_thread::sleep_for(std::chrono::milliseconds(random() % static_cast<uint64_t>(maxMs + 1)));
}

}  // namespace

void HostFabric::publishRecord(uint64_t sequence, const RecordFields& fields) {
  ControlHeader& header = controls_[local_].header();
  CallRecord& record = header.records[sequence % ControlHeader::kRecords];
  // A reader that sees the number before and after has whole fields.
  record.seq.store(0, std::memory_order_seq_cst);
  record.signature.store(signatureOf(fields), std::memory_order_seq_cst);
  for (size_t i = 0; i < fields.words.size(); ++i) record.words[i].store(fields.words[i], std::memory_order_relaxed);
  record.seq.store(sequence, std::memory_order_release);
  header.lastKind.store(fields.words[RecordFields::kKind], std::memory_order_relaxed);
  header.lastCall.store(callNumber_, std::memory_order_release);
}

// The quick look after each call: no local rank that shows this call shows another one. (It may be on a later call.)
bool HostFabric::signaturesAgree() const {
  const size_t slot = sequence_ % ControlHeader::kRecords;
  const uint64_t mine = controls_[local_].header().records[slot].signature.load(std::memory_order_relaxed);
  for (const ControlView& control : controls_) {
    const CallRecord& record = control.header().records[slot];
    if (record.seq.load(std::memory_order_acquire) != sequence_) continue;
    if (record.signature.load(std::memory_order_acquire) != mine &&
        record.seq.load(std::memory_order_acquire) == sequence_) {
      return false;
    }
  }
  return true;
}

// Compares this node's ranks. `settled`: every rank that is coming has had time to come; else only a complete set is
// judged, so that all ranks find the same first difference.
Status HostFabric::checkRecords(const HostCall& call, bool settled) {
  const std::vector<uint32_t>& members = topology_->members(topology_->nodeOf(static_cast<uint32_t>(group_.rank())));
  std::optional<RecordFields> first;
  size_t firstRank = 0;
  std::string difference;
  for (size_t local = 0; local < controls_.size(); ++local) {
    const CallRecord& record = controls_[local].header().records[sequence_ % ControlHeader::kRecords];
    RecordFields fields{};
    if (record.seq.load(std::memory_order_acquire) != sequence_) {
      if (!settled) return {};
      continue;
    }
    for (size_t i = 0; i < fields.words.size(); ++i) fields.words[i] = record.words[i].load(std::memory_order_acquire);
    if (record.seq.load(std::memory_order_acquire) != sequence_) continue;  // it went on to a later call
    if (!first) {
      first = fields;
      firstRank = members[local];
    } else if (difference.empty()) {
      difference = differenceOf(*first, firstRank, fields, members[local]);
    }
  }
  if (difference.empty()) return {};
  group_.raise(makeError(vcollMismatch, "call #{} {}: {}", callNumber_, callName(call.kind), difference));
  return group_.failure();
}

// VCOLL_CHECK=1.
Status HostFabric::checkOverAllRanks(const HostCall& call) {
  const RecordFields& mine = call.record;
  Blob blob(sizeof mine);
  std::memcpy(blob.data(), &mine, sizeof mine);
  std::vector<Blob> all;
  VCOLL_TRY(group_.allGather("call check", blob, &all, Deadline::afterMs(options_.timeoutMs)));
  RecordFields first{};
  std::memcpy(&first, all[0].data(), sizeof first);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    RecordFields other{};
    std::memcpy(&other, all[rank].data(), sizeof other);
    const std::string difference = differenceOf(first, 0, other, rank);
    if (difference.empty()) continue;
    group_.raise(makeError(vcollMismatch, "call #{}: {}", callNumber_, difference));
    return group_.failure();
  }
  return {};
}

std::string HostFabric::describe(const HostCall& call, const kernels::Pending& pending) const {
  using kernels::Pending;
  static constexpr const char* kTexts[] = {"",
                                           "to enter the call",
                                           "to say that its buffer is free",
                                           "to send its data",
                                           "to take what is queued on the wire",
                                           "to send its partial sum",
                                           "to return the credit of a ring slot",
                                           "to send what it had put",
                                           "to leave the call"};
  const uint32_t node = topology_->nodeOf(static_cast<uint32_t>(group_.rank()));
  const bool local = pending.peer < topology_->ranks() && topology_->nodeOf(pending.peer) == node;
  // Who waits for one rank to enter names all of its node that did not.
  std::vector<int> peers = {static_cast<int>(pending.peer)};
  if (local && pending.what == Pending::kEnter) {
    peers.clear();
    for (const uint32_t member : topology_->members(node)) {
      const ControlHeader& header = controls_[topology_->localOf(member)].header();
      const bool entered = header.lastCall.load(std::memory_order_acquire) >= callNumber_;
      if (!entered || member == pending.peer) peers.push_back(static_cast<int>(member));
    }
  }
  std::string text = formatText("call #{} {} of rank {} waited for {} {}", callNumber_, callName(call.kind),
                                group_.rank(), rankList(peers), kTexts[pending.what]);
  if (pending.chunks > 0) {
    text += formatText(" (queue of node {} on rail {}, chunk {} of {})", pending.node, pending.rail, pending.chunk,
                       pending.chunks);
  }
  if (local) {
    const ControlHeader& header = controls_[topology_->localOf(pending.peer)].header();
    const uint64_t seen = header.lastCall.load(std::memory_order_acquire);
    text += seen == 0 ? formatText("; rank {} has made no call yet", pending.peer)
                      : formatText("; rank {} was last seen in call #{} {}", pending.peer, seen,
                                   callName(static_cast<CallKind>(header.lastKind.load(std::memory_order_relaxed))));
  }
  return text;
}

Status HostFabric::failure(const std::string& waiting) {
  const Status verdict = group_.failure();
  if (waiting.empty() || verdict.text().find(waiting) != std::string::npos ||
      (verdict.code() != vcollTimeout && verdict.code() != vcollRemoteError)) {
    return verdict;
  }
  logWarn("{}", waiting);
  return Status(verdict.code(), verdict.text() + "; " + waiting);
}

Status HostFabric::run(const HostCall& call, uint64_t* sequence) {
  if (group_.raised()) return group_.failure();
  if (params().faultDelayMs > 0) sleepForTest(params().faultDelayMs);
  *sequence = ++sequence_;
  publishRecord(sequence_, call.record);
  const Status status = runChecked(call);
  // Puts that are still queued read buffers that are the caller's again from here on.
  if (!status.ok()) closeWire();
  return status;
}

Status HostFabric::runChecked(const HostCall& call) {
  if (options_.check && group_.size() > 1) VCOLL_TRY(checkOverAllRanks(call));
  if (call.kind == CallKind::kAllGatherV) {
    VCOLL_TRY(runLanes<kernels::AllGatherV<HostPort>>(call));
  } else {
    VCOLL_TRY(runLanes<kernels::ReduceScatterV<HostPort>>(call));
  }
  if (call.sendAddress != nullptr && group_.raised()) return group_.failure();
  return signaturesAgree() ? Status() : checkRecords(call, true);
}

template <typename Machine>
Status HostFabric::runLanes(const HostCall& call) {
  using Task = typename Machine::Task;
  static_assert(alignof(Task) <= alignof(std::max_align_t));
  const kernels::PlanView& view = call.plan->view();
  const size_t tasks = view.maxTasks;
  const size_t needed = tasks * view.laneCount * sizeof(Task);
  if (taskMemory_.size() < needed) taskMemory_.resize(needed);
  // Private destinations are no windows: nobody can push into them.
  const bool pulls = call.ownByOwner != nullptr || params().hop != "push";

  struct Lane {
    HostPort port;
    Machine machine;
    Lane(HostFabric& fabric, const HostCall& hostCall, uint64_t sequence, uint32_t lane, bool pullsHop, Task* memory)
        : port(fabric, hostCall, sequence, lane, pullsHop),
          machine(hostCall.plan->view(), port, fabric.bases_, memory, lane) {}
  };
  std::optional<Lane> lanes[kMaxLanes];
  auto* memory = reinterpret_cast<Task*>(taskMemory_.data());
  for (uint32_t i = 0; i < view.laneCount; ++i) {
    lanes[i].emplace(*this, call, sequence_, i, pulls, memory + i * tasks);
    lanes[i]->machine.begin();
  }

  const Deadline deadline = Deadline::afterMs(options_.timeoutMs);
  Waiter waiter(controls_[local_].header(), policy_, Deadline::afterMs(options_.timeoutMs + kFollowerMs), wire_,
                wireComm_);
  for (;;) {
    bool moved = false;
    bool done = true;
    for (uint32_t i = 0; i < view.laneCount; ++i) {
      Machine& machine = lanes[i]->machine;
      if (machine.done()) continue;
      moved |= machine.step();
      done = done && machine.done();
    }
    if (done) return {};
    if (moved) {
      waiter.moved();
      continue;
    }
    if (waiter.slow()) {
      const auto pending = [&] {
        uint32_t i = 0;
        while (lanes[i]->machine.done()) ++i;
        return lanes[i]->machine.pending();
      };
      if (group_.raised()) return failure(describe(call, pending()));
      const int gone = group_.leftBefore(callNumber_);
      if (gone >= 0) {
        group_.raise(makeError(vcollRemoteError, "call #{} {}: rank {} has left the communicator before this call",
                               callNumber_, callName(call.kind), gone));
        return failure(describe(call, pending()));
      }
      // After a second the ranks that came are judged without the missing ones.
      VCOLL_TRY(checkRecords(call, options_.timeoutMs - deadline.leftMs() > 1000));
      // A rank that did not even enter is the root of the others' waits: who waits for it speaks first.
      if (waiter.timedOut() || (deadline.passed() && pending().what == kernels::Pending::kEnter)) {
        const std::string text = describe(call, pending());
        group_.raise(makeError(vcollTimeout, "timed out after {} ms: {}", options_.timeoutMs, text));
        return failure(text);
      }
    }
    waiter.pause();
  }
}

Status HostFabric::waitUntilLeft(uint64_t sequence) {
  const Deadline deadline = Deadline::afterMs(options_.timeoutMs);
  Waiter waiter(controls_[local_].header(), policy_, deadline);
  const std::vector<uint32_t>& members = topology_->members(topology_->nodeOf(static_cast<uint32_t>(group_.rank())));
  for (size_t local = 0; local < controls_.size();) {
    if (controls_[local].header().gates[0].left.load(std::memory_order_seq_cst) >= sequence) {
      ++local;
      waiter.moved();
      continue;
    }
    if (waiter.slow()) {
      if (group_.raised()) return group_.failure();
      if (waiter.timedOut()) {
        group_.raise(makeError(vcollTimeout,
                               "timed out after {} ms: call #{} of rank {} waited for rank {} to leave an earlier call",
                               options_.timeoutMs, callNumber_, group_.rank(), members[local]));
        return group_.failure();
      }
    }
    waiter.pause();
  }
  return {};
}

}  // namespace vcoll
