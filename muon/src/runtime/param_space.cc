// SPDX-License-Identifier: Apache-2.0
#include "runtime/param_space.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace vmuon {
namespace {

std::vector<size_t> paramBytes(const Model& model) {
  std::vector<size_t> bytes;
  for (const LayerLayout& layer : model.layouts.layers) bytes.push_back(layer.paramBytes);
  return bytes;
}

double seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

ParamSpace::ParamSpace(Cluster& cluster, const Model& model, bool resident, bool perOwner)
    : cluster_(cluster),
      model_(model),
      isResident_(resident),
      slots_(cluster, cluster.gather(), paramBytes(model), resident, SlotSpace::Transit::kBeforeUse),
      copies_(cluster, model, resident ? &slots_ : nullptr),
      layers_(static_cast<size_t>(model.layers())) {
  for (int l = 0; l < model.layers(); ++l) {
    const auto segments =
        segmentsOf(model.layer(l), Space::kParam, [&](int32_t owner) { return cluster.leader(owner); });
    Layer& layer = layers_[static_cast<size_t>(l)];
    for (const auto& part : splitSegments(segments, perOwner)) {
      layer.plans.emplace_back(cluster.gather(), part, vcollUint8);
    }
    for (const vcollSegment_t& segment : segments) {
      if (segment.owner != cluster.gatherRank()) layer.received += segment.bytes;
    }
  }
  thread_ = std::thread([this] { work(); });
}

ParamSpace::~ParamSpace() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ParamSpace::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const int layer = queue_.front();
    queue_.pop_front();
    lock.unlock();
    std::exception_ptr error;
    try {
      fetch(layer);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    layers_[static_cast<size_t>(layer)].error = error;
    layers_[static_cast<size_t>(layer)].done = true;
    changed_.notify_all();
  }
}

void ParamSpace::fetch(int number) {
  Layer& layer = layers_[static_cast<size_t>(number)];
  copies_.wait(number);
  {
    const std::lock_guard lock(mutex_);
    layer.published = Clock::now();
  }
  const Place target = layer.place.direct ? layer.place : slots_.staging();
  for (const PieceSlot& slot : model_.layer(number).pieces) {
    const std::byte* copy = copies_.at(slot.piece);
    std::byte* to = target.data + slot.paramOffset;
    if (copy && copy != to) std::memcpy(to, copy, slot.paramBytes);
  }
  for (vcoll::Plan& plan : layer.plans) plan.allGatherV(slots_.window(), target.offset);
  if (!layer.place.direct) std::memcpy(layer.place.data, target.data, model_.layer(number).paramBytes);
}

void ParamSpace::start(int number) {
  Layer& layer = layers_[static_cast<size_t>(number)];
  layer.place = slots_.acquire(number);
  layer.state = State::kFetching;
  const std::lock_guard lock(mutex_);
  layer.done = false;
  queue_.push_back(number);
  changed_.notify_all();
}

void ParamSpace::finish(int number) {
  Layer& layer = layers_[static_cast<size_t>(number)];
  const Clock::time_point begun = Clock::now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return layer.done; });
  const Clock::time_point now = Clock::now();
  if (layer.error) std::rethrow_exception(layer.error);
  const Clock::time_point arrived = std::clamp(layer.published, begun, now);
  waits_.publish += seconds(arrived - begun);
  waits_.gather += seconds(now - arrived);
  waits_.bytes += layer.received;
  layer.state = State::kPresent;
}

void ParamSpace::begin(int number) {
  Layer& layer = layers_[static_cast<size_t>(number)];
  if (layer.state != State::kPresent) {
    // What was fetched ahead but is not what comes now gives its place back.
    if (!isResident_) {
      for (int other = 0; other < model_.layers(); ++other) {
        const Layer& fetched = layers_[static_cast<size_t>(other)];
        if (other != number && fetched.users == 0 && fetched.state == State::kFetching) drop(other);
      }
    }
    if (layer.state == State::kAbsent) start(number);
    finish(number);
    slots_.use(number);
  }
  ++layer.users;
  const int next = slots_.next();
  if (next >= 0 && layers_[static_cast<size_t>(next)].state == State::kAbsent) start(next);
}

void ParamSpace::end(int number) {
  Layer& layer = layers_[static_cast<size_t>(number)];
  if (--layer.users == 0 && !isResident_) drop(number);
}

void ParamSpace::drop(int number) {
  Layer& layer = layers_[static_cast<size_t>(number)];
  if (layer.state == State::kFetching) finish(number);
  slots_.release(number);
  layer.state = State::kAbsent;
}

void ParamSpace::newVersion() {
  for (int l = 0; l < model_.layers(); ++l) {
    if (layers_[static_cast<size_t>(l)].state != State::kAbsent) drop(l);
  }
  slots_.settle();
}

bool ParamSpace::inUse() const {
  return std::any_of(layers_.begin(), layers_.end(), [](const Layer& layer) { return layer.users > 0; });
}

const std::byte* ParamSpace::data(int layer) const {
  const Layer& used = layers_[static_cast<size_t>(layer)];
  return used.users > 0 ? used.place.data : nullptr;
}

ParamSpace::Waits ParamSpace::takeWaits() { return std::exchange(waits_, Waits{}); }

}  // namespace vmuon
