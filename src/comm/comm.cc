// SPDX-License-Identifier: Apache-2.0
// Life, agreement and order of calls. Calls on private buffers: private_calls.cc.
#include "comm/comm.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/hash.h"
#include "base/log.h"
#include "base/params.h"
#include "base/types.h"
#include "comm/submit.h"
#include "memory/allocation.h"

namespace vcoll {

Status Comm::make(std::unique_ptr<Group> group, const Config& config, Comm** comm) {
  std::unique_ptr<Comm> made(new Comm(config));
  made->group_ = std::move(group);
  HostFabric::Options options;
  options.timeoutMs = config.timeoutMs;
  options.check = config.check;
  options.hostId = config.hostId;
  const Status status = HostFabric::open(*made->group_, options, &made->fabric_);
  if (!status.ok()) {
    // All ranks must learn of it, and of the same error.
    made->group_->raise(status);
    return made->group_->failure();
  }
  made->sources_.resize(made->topology().members(made->topology().nodeOf(static_cast<uint32_t>(made->rank()))).size());
  made->destinations_.resize(made->sources_.size());
  made->ownByOwner_.resize(static_cast<size_t>(made->size()));
  made->ownSources_.resize(static_cast<size_t>(made->size()));
  *comm = made.release();
  return {};
}

Status Comm::init(int nranks, const vcollUniqueId& id, int rank, const Config& config, Comm** comm) {
  std::unique_ptr<Group> group;
  VCOLL_TRY(joinGroup(id, nranks, rank, Deadline::afterMs(config.timeoutMs), &group));
  return make(std::move(group), config, comm);
}

Status Comm::initFromEnv(const Config& config, Comm** comm) {
  LaunchInfo info;
  VCOLL_TRY(readLaunchInfo(&info));
  std::unique_ptr<Group> group;
  VCOLL_TRY(joinGroupFromEnv(info, Deadline::afterMs(config.timeoutMs), &group));
  return make(std::move(group), config, comm);
}

Comm::~Comm() {
  // Work on streams ends first; after an error it ends at once.
  for (uint64_t served = served_.load(); served != nextTicket_.load(); served = served_.load()) served_.wait(served);
  while (!publishStreams_.empty()) (void)destroyPublishStream(publishStreams_.front().get());
  for (const auto& window : windows_) {
    fabric_->removeWindow(window->window);
    unpinRange(window->pointer);
  }
  if (group_ != nullptr && !group_->raised()) group_->leave(fabric_ == nullptr ? 0 : fabric_->calls());
}

void Comm::goodbye() {
  if (served_.load() != nextTicket_.load() || group_->raised()) return;
  group_->leave(fabric_->calls());
  fabric_->closeWire();
  for (const auto& stream : publishStreams_) stream->goodbye();
}

Status Comm::split(int color, int key, const Config& config, Comm** comm) {
  *comm = nullptr;
  return submit(nullptr, [&]() -> Status {
    fabric_->beginCall();
    fabric_->beginControl(CallKind::kSplit);
    const int64_t mine[2] = {color, key};
    Blob blob(sizeof mine);
    std::memcpy(blob.data(), mine, sizeof mine);
    std::vector<Blob> all;
    VCOLL_TRY(group_->allGather("CommSplit", blob, &all, deadline()));
    struct Member {
      int64_t key;
      int rank;
    };
    std::vector<Member> members;
    for (size_t other = 0; other < all.size(); ++other) {
      int64_t theirs[2];
      std::memcpy(theirs, all[other].data(), sizeof theirs);
      if (color >= 0 && theirs[0] == color) members.push_back({theirs[1], static_cast<int>(other)});
    }
    std::stable_sort(members.begin(), members.end(), [](const Member& a, const Member& b) { return a.key < b.key; });
    std::vector<int> ranks;
    for (const Member& member : members) ranks.push_back(member.rank);
    std::unique_ptr<Group> group;
    VCOLL_TRY(splitGroup(*group_, ranks, deadline(), &group));
    return group == nullptr ? Status() : make(std::move(group), config, comm);
  });
}

Status Comm::finalize() {
  return submit(nullptr, [this]() -> Status {
    if (finalized_) return {};
    fabric_->beginCall();
    fabric_->beginControl(CallKind::kFinalize);
    std::vector<Blob> all;
    VCOLL_TRY(group_->allGather("CommFinalize", {}, &all, deadline()));
    finalized_ = true;
    return {};
  });
}

void Comm::abort() { group_->raise(makeError(vcollAborted, "the communicator was aborted by rank {}", rank())); }

Status Comm::asyncError() const { return group_->failed() ? withName(group_->failure()) : Status(); }

Status Comm::withName(const Status& error) const {
  if (config_.name.empty()) return error;
  return {error.code(), formatText("communicator \"{}\": {}", config_.name, error.text())};
}

Status Comm::registerWindow(void* pointer, size_t bytes, WindowHandle** window) {
  AllocationRef memory;
  VCOLL_TRY(pinRange(pointer, bytes, &memory));
  const Status status = submit(nullptr, [&]() -> Status {
    fabric_->beginCall();
    fabric_->beginControl(CallKind::kWindowRegister);
    VCOLL_TRY(agree(CallKind::kWindowRegister, bytes, {bytes}, [](size_t) { return std::string("bytes"); }));
    auto made = std::make_unique<WindowHandle>();
    made->comm = this;
    made->pointer = pointer;
    made->bytes = bytes;
    VCOLL_TRY(
        fabric_->addWindow(static_cast<unsigned char*>(pointer), bytes, memory.fd, memory.fileOffset, &made->window));
    *window = made.get();
    windows_.push_back(std::move(made));
    return {};
  });
  if (!status.ok()) unpinRange(pointer);
  return status;
}

bool Comm::isPublishing(const WindowHandle* window) const {
  return std::any_of(publishStreams_.begin(), publishStreams_.end(),
                     [window](const auto& stream) { return stream->window == window; });
}

Status Comm::deregisterWindow(WindowHandle* window) {
  return submit(
      nullptr,
      [&]() -> Status {
        fabric_->removeWindow(window->window);
        unpinRange(window->pointer);
        windows_.remove_if([window](const auto& entry) { return entry.get() == window; });
        return {};
      },
      kEvenInError);
}

// Compares digests; where they differ, the tables, to name the first difference. The same error on every rank.
Status Comm::agree(CallKind kind, uint64_t digest, const std::vector<uint64_t>& table,
                   const std::function<std::string(size_t)>& nameOfWord) {
  if (size() == 1) return {};
  const auto gather = [&](const void* data, size_t bytes, std::vector<Blob>* all) {
    Blob blob(bytes);
    if (bytes > 0) std::memcpy(blob.data(), data, bytes);
    return group_->allGather(callName(kind), blob, all, deadline());
  };
  std::vector<Blob> all;
  VCOLL_TRY(gather(&digest, sizeof digest, &all));
  if (std::all_of(all.begin(), all.end(), [&](const Blob& blob) { return blob == all[0]; })) return {};

  VCOLL_TRY(gather(table.data(), table.size() * sizeof(uint64_t), &all));
  const auto word = [&](size_t rank, size_t i) {
    uint64_t value = 0;
    std::memcpy(&value, all[rank].data() + i * sizeof value, sizeof value);
    return value;
  };
  std::string difference = "ranks disagree";
  for (size_t other = 1; other < all.size(); ++other) {
    const size_t words = std::min(all[0].size(), all[other].size()) / sizeof(uint64_t);
    size_t i = 0;
    while (i < words && word(0, i) == word(other, i)) ++i;
    if (i == words && all[0].size() == all[other].size()) continue;
    if (i == words) {
      difference = formatText("number of entries: rank 0 has {}, rank {} has {}", all[0].size() / sizeof(uint64_t),
                              other, all[other].size() / sizeof(uint64_t));
      break;
    }
    const std::string name = nameOfWord(i);
    const auto shown = [&](size_t rank) -> std::string {
      const uint64_t value = word(rank, i);
      if (name == "type" && value < vcollNumTypes) return typeInfo(static_cast<int>(value))->name;
      return formatText("{}", static_cast<int64_t>(value));
    };
    difference = formatText("{}: rank 0 has {}, rank {} has {}", name, shown(0), other, shown(other));
    break;
  }
  group_->raise(makeError(vcollMismatch, "{}: {}", callName(kind), difference));
  return group_->failure();
}

Status Comm::createPlan(PlanSpec spec, PlanHandle** plan) {
  auto made = std::make_unique<PlanHandle>();
  made->comm = this;
  spec.partialsFp32 = params().partials == "fp32";
  VCOLL_TRY(Plan::build(spec, topology(), fabric_->flow(), static_cast<uint32_t>(rank()), &made->plan));
  return submit(nullptr, [&]() -> Status {
    fabric_->beginCall();
    fabric_->beginControl(CallKind::kPlanCreate);
    static constexpr const char* kSettings[] = {"type", "config->path", "config->lanes", "config->chunkBytes",
                                                "nsegments"};
    static constexpr const char* kFields[] = {"owner", "offset", "bytes"};
    std::vector<uint64_t> table = {static_cast<uint64_t>(spec.type), static_cast<uint64_t>(spec.path), spec.lanes,
                                   spec.chunkBytes, spec.segments.size()};
    table.reserve(table.size() + 3 * spec.segments.size());
    for (const vcollSegment_t& segment : spec.segments) {
      table.push_back(static_cast<uint64_t>(segment.owner));
      table.push_back(segment.offset);
      table.push_back(segment.bytes);
    }
    VCOLL_TRY(agree(CallKind::kPlanCreate, made->plan->digest(), table, [](size_t i) -> std::string {
      const size_t settings = std::size(kSettings);
      return i < settings ? kSettings[i]
                          : formatText("segments[{}].{}", (i - settings) / 3, kFields[(i - settings) % 3]);
    }));
    VCOLL_TRY(fabric_->connect(*made->plan));
    *plan = made.get();
    plans_.push_back(std::move(made));
    return {};
  });
}

Status Comm::destroyPlan(PlanHandle* plan) {
  return submit(
      nullptr,
      [&]() -> Status {
        plans_.remove_if([plan](const auto& entry) { return entry.get() == plan; });
        return {};
      },
      kEvenInError);
}

Status Comm::runPlan(const Plan& plan, HostCall* call) {
  fabric_->beginCall();
  call->plan = &plan;
  call->record.words[RecordFields::kKind] = static_cast<uint64_t>(call->kind);
  call->record.words[RecordFields::kType] = static_cast<uint64_t>(plan.spec().type);
  call->record.words[RecordFields::kBytes] = plan.totalBytes();
  call->record.words[RecordFields::kDigest] = plan.digest();
  uint64_t sequence = 0;
  return fabric_->run(*call, &sequence);
}

namespace {
void addresses(const HostWindow& window, uint64_t offset, std::vector<uintptr_t>* out) {
  for (size_t local = 0; local < out->size(); ++local) {
    (*out)[local] = reinterpret_cast<uintptr_t>(window.bases[local]) + offset;
  }
}
}  // namespace

Status Comm::planAllGatherV(const PlanHandle& plan, const WindowHandle& window, uint64_t offset, HostStream* stream) {
  return submit(stream, [this, &plan, target = window.window, offset]() -> Status {
    addresses(*target, offset, &sources_);
    HostCall call;
    call.kind = CallKind::kAllGatherV;
    call.sources = sources_.data();
    call.destinations = sources_.data();
    call.window = target->id;
    call.windowOffset = offset;
    call.record.words[RecordFields::kWindow] = target->id;
    call.record.words[RecordFields::kOffset] = offset;
    return runPlan(*plan.plan, &call);
  });
}

Status Comm::planReduceScatterV(const PlanHandle& plan, const WindowHandle& source, uint64_t sourceOffset,
                                const WindowHandle& destination, uint64_t destinationOffset, vcollRedOp_t op,
                                HostStream* stream) {
  return submit(
      stream,
      [this, &plan, from = source.window, sourceOffset, to = destination.window, destinationOffset, op]() -> Status {
        addresses(*from, sourceOffset, &sources_);
        addresses(*to, destinationOffset, &destinations_);
        HostCall call;
        call.kind = CallKind::kReduceScatterV;
        call.op = op;
        call.sources = sources_.data();
        call.destinations = destinations_.data();
        call.record.words[RecordFields::kOp] = static_cast<uint64_t>(op);
        call.record.words[RecordFields::kWindow] = from->id;
        call.record.words[RecordFields::kOffset] = sourceOffset;
        call.record.words[RecordFields::kDstWindow] = to->id;
        call.record.words[RecordFields::kDstOffset] = destinationOffset;
        return runPlan(*plan.plan, &call);
      });
}

Status Comm::allGatherV(const void* send, void* recv, const size_t* counts, const size_t* displacements,
                        vcollDataType_t type, HostStream* stream) {
  const auto ranks = static_cast<size_t>(size());
  std::vector<uint64_t> places;
  if (displacements != nullptr) {
    for (size_t r = 0; r < ranks; ++r) places.push_back(displacements[r] * typeInfo(type)->size);
  }
  return submit(stream, [this, send, recv, counts = std::vector<size_t>(counts, counts + ranks), places, type] {
    return runPrivateAllGatherV(static_cast<const unsigned char*>(send), static_cast<unsigned char*>(recv), counts,
                                places, type);
  });
}

Status Comm::reduceScatterV(const void* send, void* recv, const size_t* counts, vcollDataType_t type, vcollRedOp_t op,
                            HostStream* stream) {
  const auto ranks = static_cast<size_t>(size());
  return submit(stream, [this, send, recv, counts = std::vector<size_t>(counts, counts + ranks), type, op] {
    return runPrivateReduceScatterV(static_cast<const unsigned char*>(send), static_cast<unsigned char*>(recv), counts,
                                    type, op);
  });
}

}  // namespace vcoll
