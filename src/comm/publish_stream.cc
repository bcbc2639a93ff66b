// SPDX-License-Identifier: Apache-2.0
#include "comm/publish_stream.h"

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "base/params.h"
#include "comm/comm.h"
#include "comm/submit.h"

namespace vcoll {

PublishStream::PublishStream(Comm& comm, Group& group, const Topology& topology, std::unique_ptr<PublishFabric> fabric)
    : comm_(comm),
      group_(group),
      topology_(topology),
      fabric_(std::move(fabric)),
      pushes_(items().size()),
      leases_(items().size() * copies()) {}

PublishStream::~PublishStream() {
  for (uint64_t queued = queued_.load(); queued != 0; queued = queued_.load()) queued_.wait(queued);
}

// --- What is asked for -----------------------------------------------------------------------------------------------

Status PublishStream::findItem(uint64_t id, uint32_t* item) const {
  const int64_t found = fabric_->plan().find(id);
  if (found < 0) return makeError(vcollInvalidArgument, "item = {} is not in the manifest of this stream", id);
  *item = static_cast<uint32_t>(found);
  return {};
}

Status PublishStream::findCopy(uint64_t id, uint32_t* item) const {
  VCOLL_TRY(findItem(id, item));
  if (fabric_->hasCopy(*item)) return {};
  const auto owner = static_cast<uint32_t>(items()[*item].owner);
  const uint32_t node = topology_.nodeOf(static_cast<uint32_t>(group_.rank()));
  return makeError(vcollInvalidArgument, "item = {}: rank {} has no copy of it; on node {} rank {} has", id,
                   group_.rank(), node, topology_.agent(node, topology_.localOf(owner)));
}

Status PublishStream::findStep(uint64_t step, uint64_t* index) const {
  for (uint64_t i = begun_; i > 0 && i + copies() > begun_; --i) {
    if (numbers_[(i - 1) % kernels::kStepsKept] != step) continue;
    *index = i - 1;
    return {};
  }
  if (begun_ == 0) return makeError(vcollInvalidUsage, "step = {}: this rank has begun no step yet", step);
  const uint64_t last = numbers_[(begun_ - 1) % kernels::kStepsKept];
  if (step > last) {
    return makeError(vcollInvalidUsage, "step = {} has not been begun on this rank; the last one is {}", step, last);
  }
  return makeError(vcollInvalidUsage, "step = {} is over on this rank: it has begun step {} since", step, last);
}

Status PublishStream::locate(uint64_t id, uint64_t step, uint32_t* item, uint64_t* index) const {
  VCOLL_TRY(findCopy(id, item));
  return findStep(step, index);
}

Status PublishStream::missingPush() const {
  if (!inStep_) return {};
  for (uint32_t i = 0; i < items().size(); ++i) {
    if (items()[i].owner != group_.rank() || pushes_[i] == begun_) continue;
    return makeError(vcollInvalidUsage, "item {} of rank {} was not pushed in step {}", items()[i].id, group_.rank(),
                     numbers_[(begun_ - 1) % kernels::kStepsKept]);
  }
  return {};
}

template <typename Work>
Status PublishStream::onStream(HostStream* stream, Work work) {
  if (stream == nullptr) return work();
  queued_.fetch_add(1);
  stream->enqueue([this, kept = std::move(work)]() mutable {
    const Status status = kept();
    if (queued_.fetch_sub(1) == 1) queued_.notify_all();
    return status;
  });
  return {};
}

// --- Steps and pushes ------------------------------------------------------------------------------------------------

Status PublishStream::begin(uint64_t step) {
  if (group_.raised()) return group_.failure();
  {
    const std::lock_guard lock(mutex_);
    const uint64_t last = begun_ == 0 ? 0 : numbers_[(begun_ - 1) % kernels::kStepsKept];
    if (step == VCOLL_NO_STEP) return makeError(vcollInvalidArgument, "step = {} is VCOLL_NO_STEP", step);
    if (inStep_) return makeError(vcollInvalidUsage, "step = {}: step {} has not been ended on this rank", step, last);
    if (begun_ > 0 && step <= last) {
      return makeError(vcollInvalidArgument, "step = {} does not grow: the last one on this rank was {}", step, last);
    }
    // The owner writes its copies itself, so nobody else can hold back its next version.
    const uint32_t copy = copyOf(begun_);
    for (uint32_t i = 0; i < items().size(); ++i) {
      if (items()[i].owner != group_.rank() || leases_[size_t{i} * copies() + copy] == 0) continue;
      return makeError(vcollInvalidUsage,
                       "step = {} would overwrite version {} of item {}, on which this rank, its "
                       "owner, has a lease",
                       step, fabric_->version(i, copy), items()[i].id);
    }
  }
  if (begun_ >= copies()) {
    const uint64_t over = begun_ - copies() + 1;
    VCOLL_TRY(fabric_->wait([&] { return fabric_->finished() >= over; },
                            [&] {
                              return formatText("PublishStreamBegin of step {} on rank {} waited {}", step,
                                                group_.rank(), fabric_->pending(-1, over));
                            }));
  }
  const std::lock_guard lock(mutex_);
  numbers_[begun_++ % kernels::kStepsKept] = step;
  inStep_ = true;
  fabric_->begin(step);
  return {};
}

Status PublishStream::push(uint64_t id, HostStream* stream) {
  if (group_.raised()) return group_.failure();
  uint32_t item = 0;
  VCOLL_TRY(findItem(id, &item));
  if (items()[item].owner != group_.rank()) {
    return makeError(vcollInvalidArgument, "item = {} is owned by rank {}, not by rank {}", id, items()[item].owner,
                     group_.rank());
  }
  uint64_t index = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!inStep_) return makeError(vcollInvalidUsage, "item = {}: no step is begun on this rank", id);
    if (pushes_[item] == begun_) {
      return makeError(vcollInvalidUsage, "item = {} was pushed already in step {}", id,
                       numbers_[(begun_ - 1) % kernels::kStepsKept]);
    }
    pushes_[item] = begun_;
    index = begun_ - 1;
  }
  return onStream(stream, [this, item, index]() -> Status {
    // With two copies a push of the step before may still be queued on another stream.
    VCOLL_TRY(fabric_->wait([&] { return fabric_->pushedBefore(index); },
                            [&] {
                              return formatText("PublishStreamPush of item {} on rank {} waited for an earlier push",
                                                items()[item].id, group_.rank());
                            }));
    fabric_->push(item, index);
    return {};
  });
}

Status PublishStream::end(uint64_t step) {
  if (group_.raised()) return group_.failure();
  const std::lock_guard lock(mutex_);
  if (!inStep_) return makeError(vcollInvalidUsage, "step = {}: no step is begun on this rank", step);
  const uint64_t last = numbers_[(begun_ - 1) % kernels::kStepsKept];
  if (step != last) return makeError(vcollInvalidArgument, "step = {} is not the one begun, {}", step, last);
  VCOLL_TRY(missingPush());
  inStep_ = false;
  return {};
}

// --- Reading ---------------------------------------------------------------------------------------------------------

Status PublishStream::waitFor(uint32_t item, uint64_t index, uint64_t step) {
  const uint32_t copy = copyOf(index);
  const auto holds = [&] { return fabric_->version(item, copy) == step; };
  VCOLL_TRY(fabric_->wait([&] { return holds() || fabric_->begun() > index + copies(); },
                          [&] {
                            return formatText("PublishStreamWait for item {}, step {} on rank {} waited {}",
                                              items()[item].id, step, group_.rank(), fabric_->pending(item, index + 1));
                          }));
  if (holds()) return {};
  return makeError(vcollInvalidUsage, "item {}: step {} was over before the wait for it began", items()[item].id, step);
}

Status PublishStream::wait(uint64_t id, uint64_t step, HostStream* stream) {
  uint32_t item = 0;
  uint64_t index = 0;
  {
    const std::lock_guard lock(mutex_);
    VCOLL_TRY(locate(id, step, &item, &index));
  }
  return onStream(stream, [this, item, index, step] { return waitFor(item, index, step); });
}

Status PublishStream::waitAll(uint64_t step, HostStream* stream) {
  uint64_t index = 0;
  {
    const std::lock_guard lock(mutex_);
    VCOLL_TRY(findStep(step, &index));
  }
  return onStream(stream, [this, index, step]() -> Status {
    for (uint32_t item = 0; item < items().size(); ++item) {
      if (fabric_->hasCopy(item)) VCOLL_TRY(waitFor(item, index, step));
    }
    return {};
  });
}

Status PublishStream::test(uint64_t id, uint64_t step, bool* ready) {
  uint32_t item = 0;
  uint64_t index = 0;
  {
    const std::lock_guard lock(mutex_);
    VCOLL_TRY(locate(id, step, &item, &index));
  }
  *ready = fabric_->version(item, copyOf(index)) == step;
  return !*ready && group_.raised() ? group_.failure() : Status();
}

Status PublishStream::acquire(uint64_t id, uint64_t step, const void** pointer) {
  VCOLL_TRY(wait(id, step, nullptr));
  uint32_t item = 0;
  uint64_t index = 0;
  const std::lock_guard lock(mutex_);
  VCOLL_TRY(locate(id, step, &item, &index));  // no step was begun meanwhile that gives it up
  const uint32_t copy = copyOf(index);
  ++leases_[size_t{item} * copies() + copy];
  fabric_->lease(item, copy);
  if (pointer != nullptr) *pointer = fabric_->address(item, copy);
  return {};
}

Status PublishStream::release(uint64_t id, uint64_t step) {
  uint32_t item = 0;
  VCOLL_TRY(findCopy(id, &item));
  const std::lock_guard lock(mutex_);
  for (uint32_t copy = 0; copy < copies(); ++copy) {
    uint32_t& leases = leases_[size_t{item} * copies() + copy];
    if (leases == 0 || fabric_->version(item, copy) != step) continue;
    --leases;
    fabric_->release(item, copy);
    return {};
  }
  return makeError(vcollInvalidUsage, "item = {}: this rank has no lease on its version {}", id, step);
}

Status PublishStream::address(uint64_t id, uint64_t step, void** pointer) {
  uint32_t item = 0;
  uint64_t index = 0;
  const std::lock_guard lock(mutex_);
  VCOLL_TRY(locate(id, step, &item, &index));
  *pointer = fabric_->address(item, copyOf(index));
  return {};
}

Status PublishStream::getVersion(uint64_t id, uint64_t* step, const void** pointer) {
  uint32_t item = 0;
  VCOLL_TRY(findCopy(id, &item));
  fabric_->settle();
  *step = VCOLL_NO_STEP;
  if (pointer != nullptr) *pointer = nullptr;
  for (uint32_t copy = 0; copy < copies(); ++copy) {
    const uint64_t version = fabric_->version(item, copy);
    if (version == VCOLL_NO_STEP || (*step != VCOLL_NO_STEP && version < *step)) continue;
    *step = version;
    if (pointer != nullptr) *pointer = fabric_->address(item, copy);
  }
  return {};
}

Status PublishStream::getLeader(uint64_t id, int node, int* rank) {
  uint32_t item = 0;
  VCOLL_TRY(findItem(id, &item));
  if (node < 0 || static_cast<uint32_t>(node) >= topology_.nodes()) {
    return makeError(vcollInvalidArgument, "node = {} is not in 0..{}", node, topology_.nodes() - 1);
  }
  const uint32_t rail = topology_.localOf(static_cast<uint32_t>(items()[item].owner));
  *rank = static_cast<int>(topology_.agent(static_cast<uint32_t>(node), rail));
  return {};
}

// --- The end ---------------------------------------------------------------------------------------------------------

Status PublishStream::drain() {
  for (uint64_t queued = queued_.load(); queued != 0; queued = queued_.load()) queued_.wait(queued);
  if (group_.raised()) return {};
  {
    const std::lock_guard lock(mutex_);
    if (const Status missing = missingPush(); !missing.ok()) {
      group_.raise(makeError(vcollInvalidUsage, "PublishStreamDestroy: {}", missing.text()));
      return group_.failure();
    }
  }
  const uint64_t begun = begun_;
  return fabric_->wait([&] { return fabric_->finished() >= begun; },
                       [&] {
                         return formatText("PublishStreamDestroy on rank {} waited {}", group_.rank(),
                                           fabric_->pending(-1, begun));
                       });
}

void PublishStream::goodbye() {
  if (queued_.load() == 0 && fabric_->finished() >= fabric_->begun()) fabric_->closeWire();
}

// --- Comm's part -----------------------------------------------------------------------------------------------------

Status Comm::createPublishStream(const WindowHandle& window, std::vector<vcollPublishItem_t> listed,
                                 const PublishSpec& spec, bool verify, PublishStream** stream) {
  return submit(nullptr, [&]() -> Status {
    fabric_->beginCall();
    fabric_->beginControl(CallKind::kPublishStreamCreate);
    const std::vector<uint64_t> table = {window.window->id,
                                         static_cast<uint64_t>(spec.path),
                                         spec.copies,
                                         spec.copyStride,
                                         spec.chunkBytes,
                                         verify ? 1u : 0u,
                                         static_cast<uint64_t>(params().publishStripe),
                                         spec.longChunks ? 1u : 0u};
    Digest digest;
    for (const uint64_t word : table) digest.add(word);
    VCOLL_TRY(agree(CallKind::kPublishStreamCreate, digest.value(), table, [](size_t i) -> std::string {
      static constexpr const char* kNames[] = {"window",
                                               "config->path",
                                               "config->copies",
                                               "config->copyStride",
                                               "config->chunkBytes",
                                               "config->verify",
                                               "VCOLL_PUBLISH_STRIPE",
                                               "config->chunkBytes == 0"};
      return kNames[i];
    }));

    // Every owner describes its items; the manifest is what they say together.
    std::vector<vcollPublishItem_t> own;
    for (const vcollPublishItem_t& item : listed) {
      if (item.owner == rank()) own.push_back(item);
    }
    Blob blob(own.size() * sizeof(vcollPublishItem_t));
    if (!own.empty()) std::memcpy(blob.data(), own.data(), blob.size());
    std::vector<Blob> all;
    VCOLL_TRY(group_->allGather("PublishStreamCreate", blob, &all, deadline()));
    PublishSpec whole = spec;
    for (const Blob& part : all) {
      const size_t before = whole.items.size();
      whole.items.resize(before + part.size() / sizeof(vcollPublishItem_t));
      if (!part.empty()) std::memcpy(&whole.items[before], part.data(), part.size());
    }
    PublishPlan plan;
    // The same error on every rank, and nothing has begun.
    VCOLL_TRY(PublishPlan::build(std::move(whole), topology(), static_cast<uint32_t>(rank()), &plan));
    for (size_t i = 0; i < listed.size(); ++i) {
      const int64_t known = plan.find(listed[i].id);
      const auto differs = [&](const char* field, uint64_t here, uint64_t there) {
        group_->raise(makeError(vcollMismatch, "PublishStreamCreate: item {}: {}: rank {} has {}, its owner has {}",
                                listed[i].id, field, rank(), here, there));
        return group_->failure();
      };
      if (known < 0) {
        group_->raise(makeError(vcollMismatch,
                                "PublishStreamCreate: item {}: rank {} has it, its owner, rank {}, has not",
                                listed[i].id, rank(), listed[i].owner));
        return group_->failure();
      }
      const vcollPublishItem_t& item = plan.items()[static_cast<size_t>(known)];
      if (item.owner != listed[i].owner) {
        return differs("owner", static_cast<uint64_t>(listed[i].owner), static_cast<uint64_t>(item.owner));
      }
      if (item.offset != listed[i].offset) return differs("offset", listed[i].offset, item.offset);
      if (item.bytes != listed[i].bytes) return differs("bytes", listed[i].bytes, item.bytes);
    }
    PublishFabric::Options options;
    options.timeoutMs = config_.timeoutMs;
    options.verify = verify;
    options.stripe = params().publishStripe != 0;
    options.serial = ++publishSerial_;
    options.cancelled = fabric_->cancelled();
    std::unique_ptr<PublishFabric> fabric;
    VCOLL_TRY(PublishFabric::open(*group_, topology(), std::move(plan), window.window->bases, options, &fabric));
    auto made = std::make_unique<PublishStream>(*this, *group_, topology(), std::move(fabric));
    made->window = &window;
    *stream = made.get();
    publishStreams_.push_back(std::move(made));
    return {};
  });
}

Status Comm::destroyPublishStream(PublishStream* stream) {
  Status status = stream->drain();
  // A helper must not leave while others may still ask it.
  if (params().publishStripe != 0 && status.ok()) {
    status = submit(nullptr, [this]() -> Status {
      std::vector<Blob> all;
      return group_->allGather("PublishStreamDestroy", {}, &all, deadline());
    });
  }
  publishStreams_.remove_if([stream](const auto& entry) { return entry.get() == stream; });
  return status;
}

}  // namespace vcoll
