// SPDX-License-Identifier: Apache-2.0
// Life, agreement and order of calls. Calls on private buffers: private_calls.cc.
#include "comm/comm.h"

#include <algorithm>
#include <cstring>

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
  for (const auto& window : windows_) {
    fabric_->removeWindow(window->window);
    unpinRange(window->pointer);
  }
  if (group_ != nullptr && !group_->raised()) group_->leave();
}

Status Comm::split(int color, int key, const Config& config, Comm** comm) {
  *comm = nullptr;
  return submit(nullptr, [&]() -> Status {
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
    fabric_->beginControl(CallKind::kWindowRegister);
    static constexpr const char* kFields[] = {"bytes"};
    VCOLL_TRY(agree(CallKind::kWindowRegister, bytes, {bytes}, kFields, 1, "argument"));
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

// Compares digests; where they differ, the tables, to name the first difference: field `i % fieldCount` of item
// `i / fieldCount`. item nullptr: the table is a type and then the array fields[0]. The same error on every rank.
Status Comm::agree(CallKind kind, uint64_t digest, const std::vector<uint64_t>& table, const char* const* fields,
                   size_t fieldCount, const char* item) {
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
  Status error = makeError(vcollMismatch, "call #{} {}: ranks disagree", fabric_->sequence(), callName(kind));
  for (size_t other = 1; other < all.size(); ++other) {
    const size_t words = std::min(all[0].size(), all[other].size()) / sizeof(uint64_t);
    size_t i = 0;
    while (i < words && word(0, i) == word(other, i)) ++i;
    if (i == words && all[0].size() == all[other].size()) continue;
    if (item == nullptr && i < words) {
      const auto shown = [&](size_t r) {
        return i == 0 ? std::string(typeInfo(static_cast<int>(word(r, 0)))->name) : formatText("{}", word(r, i));
      };
      error = makeError(vcollMismatch, "{}: {}: rank 0 has {}, rank {} has {}", callName(kind),
                        i == 0 ? "type" : formatText("{}[{}]", fields[0], i - 1), shown(0), other, shown(other));
    } else if (i < words) {
      error = makeError(vcollMismatch, "{}: {} {} of {}: rank 0 has {}, rank {} has {}", callName(kind),
                        fields[i % fieldCount], item, i / fieldCount, static_cast<int64_t>(word(0, i)), other,
                        static_cast<int64_t>(word(other, i)));
    } else {
      error = makeError(vcollMismatch, "{}: number of {}s: rank 0 has {}, rank {} has {}", callName(kind), item,
                        all[0].size() / sizeof(uint64_t) / fieldCount, other,
                        all[other].size() / sizeof(uint64_t) / fieldCount);
    }
    break;
  }
  group_->raise(error);
  return group_->failure();
}

Status Comm::createPlan(PlanSpec spec, PlanHandle** plan) {
  auto made = std::make_unique<PlanHandle>();
  made->comm = this;
  spec.partialsFp32 = params().partials == "fp32";
  VCOLL_TRY(Plan::build(spec, topology(), fabric_->flow(), static_cast<uint32_t>(rank()), &made->plan));
  return submit(nullptr, [&]() -> Status {
    fabric_->beginControl(CallKind::kPlanCreate);
    std::vector<uint64_t> settings = {static_cast<uint64_t>(spec.type), static_cast<uint64_t>(spec.path), spec.lanes,
                                      spec.chunkBytes};
    std::vector<uint64_t> table;
    table.reserve(3 * spec.segments.size());
    for (const vcollSegment_t& segment : spec.segments) {
      table.push_back(static_cast<uint64_t>(segment.owner));
      table.push_back(segment.offset);
      table.push_back(segment.bytes);
    }
    Digest settingsDigest;
    for (const uint64_t word : settings) settingsDigest.add(word);
    static constexpr const char* kSettings[] = {"type", "path", "lanes", "chunkBytes"};
    VCOLL_TRY(agree(CallKind::kPlanCreate, settingsDigest.value(), settings, kSettings, 4, "plan"));
    static constexpr const char* kFields[] = {"owner", "offset", "bytes"};
    VCOLL_TRY(agree(CallKind::kPlanCreate, made->plan->digest(), table, kFields, 3, "segment"));
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
  call->plan = &plan;
  call->bytes = plan.totalBytes();
  call->digest = plan.digest();
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
