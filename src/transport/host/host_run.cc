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
#include "kernels/allgatherv.h"
#include "kernels/reducescatterv.h"
#include "transport/host/host_fabric.h"
#include "transport/host/host_port.h"

namespace vcoll {

namespace {

std::string differenceOf(const RecordFields& a, size_t rankA, const RecordFields& b, size_t rankB) {
  const auto say = [&](const char* field, const auto& valueA, const auto& valueB) {
    return formatText("{}: rank {} has {}, rank {} has {}", field, rankA, valueA, rankB, valueB);
  };
  const auto typeName = [](uint64_t type) { return typeInfo(static_cast<int>(type))->name; };
  if (a.kind != b.kind) {
    return say("call", callName(a.kind), callName(b.kind));
  }
  if (a.type != b.type) return say("type", typeName(a.type), typeName(b.type));
  if (a.op != b.op) return say("op", opName(static_cast<int>(a.op)), opName(static_cast<int>(b.op)));
  if (a.bytes != b.bytes) return say("total bytes", a.bytes, b.bytes);
  if (a.digest != b.digest) return say("digest of counts or plan", a.digest, b.digest);
  return "";
}

RecordFields fieldsOf(const HostCall& call) {
  const bool reduces = call.kind == CallKind::kReduceScatterV;
  return {call.kind, static_cast<uint64_t>(call.plan->spec().type), reduces ? static_cast<uint64_t>(call.op) : 0,
          call.bytes, call.digest};
}

uint64_t signatureOf(const RecordFields& fields) {
  Digest digest;
  for (const uint64_t word :
       {static_cast<uint64_t>(fields.kind), fields.type, fields.op, fields.bytes, fields.digest}) {
    digest.add(word);
  }
  return digest.value();
}

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
  record.kind.store(static_cast<uint64_t>(fields.kind), std::memory_order_relaxed);
  record.type.store(fields.type, std::memory_order_relaxed);
  record.op.store(fields.op, std::memory_order_relaxed);
  record.bytes.store(fields.bytes, std::memory_order_relaxed);
  record.digest.store(fields.digest, std::memory_order_relaxed);
  record.seq.store(sequence, std::memory_order_release);
  header.lastKind.store(static_cast<uint64_t>(fields.kind), std::memory_order_relaxed);
  header.lastSeq.store(sequence, std::memory_order_release);
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
    fields.kind = static_cast<CallKind>(record.kind.load(std::memory_order_acquire));
    fields.type = record.type.load(std::memory_order_acquire);
    fields.op = record.op.load(std::memory_order_acquire);
    fields.bytes = record.bytes.load(std::memory_order_acquire);
    fields.digest = record.digest.load(std::memory_order_acquire);
    if (record.seq.load(std::memory_order_acquire) != sequence_) continue;  // it went on to a later call
    if (!first) {
      first = fields;
      firstRank = members[local];
    } else if (difference.empty()) {
      difference = differenceOf(*first, firstRank, fields, members[local]);
    }
  }
  if (difference.empty()) return {};
  group_.raise(makeError(vcollMismatch, "call #{} {}: {}", sequence_, callName(call.kind), difference));
  return group_.failure();
}

// VCOLL_CHECK=1.
Status HostFabric::checkOverAllRanks(const HostCall& call) {
  const RecordFields mine = fieldsOf(call);
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
    group_.raise(makeError(vcollMismatch, "call #{}: {}", sequence_, difference));
    return group_.failure();
  }
  return {};
}

std::string HostFabric::describe(const HostCall& call, const kernels::Pending& pending) const {
  using kernels::Pending;
  static constexpr const char* kTexts[] = {"nothing",
                                           "it to enter the call",
                                           "it to say that its buffer is free",
                                           "its data",
                                           "room on the wire to it",
                                           "its partial sum",
                                           "its credit for a ring slot",
                                           "its own puts to leave their buffers",
                                           "it to leave the call"};
  std::string text = formatText("call #{} {} of rank {} waited for rank {}: {}", sequence_, callName(call.kind),
                                group_.rank(), pending.peer, kTexts[pending.what]);
  if (pending.chunks > 0) {
    text += formatText(" (queue of node {} on rail {}, chunk {} of {})", pending.node, pending.rail, pending.chunk,
                       pending.chunks);
  }
  const uint32_t node = topology_->nodeOf(static_cast<uint32_t>(group_.rank()));
  if (pending.peer < topology_->ranks() && topology_->nodeOf(pending.peer) == node) {
    const ControlHeader& header = controls_[topology_->localOf(pending.peer)].header();
    const uint64_t seen = header.lastSeq.load(std::memory_order_acquire);
    text += seen == 0 ? std::string("; that rank has made no call yet")
                      : formatText("; that rank was last seen in call #{} {}", seen,
                                   callName(static_cast<CallKind>(header.lastKind.load(std::memory_order_relaxed))));
  }
  return text;
}

Status HostFabric::failure(const HostCall& call, const std::string& waiting) {
  const Status verdict = group_.failure();
  if (waiting.empty() || verdict.text().find(waiting) != std::string::npos ||
      (verdict.code() != vcollTimeout && verdict.code() != vcollRemoteError)) {
    return verdict;
  }
  logWarn("{} (call #{} {})", waiting, sequence_, callName(call.kind));
  return Status(verdict.code(), verdict.text() + "; " + waiting);
}

Status HostFabric::run(const HostCall& call, uint64_t* sequence) {
  if (group_.raised()) return group_.failure();
  if (params().faultDelayMs > 0) sleepForTest(params().faultDelayMs);
  *sequence = ++sequence_;
  publishRecord(sequence_, fieldsOf(call));
  const Status status = runChecked(call);
  if (!status.ok() && wireComm_ != nullptr) {
    // Puts that are still queued read buffers that are the caller's again from here on.
    wire_->close(wireComm_, 0);
    wireComm_ = nullptr;
  }
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
  Waiter waiter(controls_[local_].header(), policy_, deadline);
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
      const auto waiting = [&]() -> std::string {
        for (uint32_t i = 0; i < view.laneCount; ++i) {
          if (!lanes[i]->machine.done()) return describe(call, lanes[i]->machine.pending());
        }
        return "";
      };
      if (group_.raised()) return failure(call, waiting());
      // After a second the ranks that came are judged without the missing ones.
      VCOLL_TRY(checkRecords(call, options_.timeoutMs - deadline.leftMs() > 1000));
      if (waiter.timedOut()) {
        const std::string text = waiting();
        group_.raise(makeError(vcollTimeout, "timed out after {} ms: {}", options_.timeoutMs, text));
        return failure(call, text);
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
        group_.raise(makeError(vcollTimeout, "timed out after {} ms: rank {} waited for rank {} to leave call #{}",
                               options_.timeoutMs, group_.rank(), members[local], sequence));
        return group_.failure();
      }
    }
    waiter.pause();
  }
  return {};
}

}  // namespace vcoll
