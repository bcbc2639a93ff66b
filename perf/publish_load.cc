// SPDX-License-Identifier: Apache-2.0
#include "perf/publish_load.h"

#include <sys/prctl.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <thread>
#include <tuple>

namespace vcoll::perf {

namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

// Shorter waits are put together: the kernel is not that exact.
constexpr double kShortestWaitUs = 20;

Clock::duration toDuration(double us) { return std::chrono::duration_cast<Clock::duration>(Microseconds(us)); }

}  // namespace

std::vector<size_t> PublishLoad::ownedBy(int rank) const {
  std::vector<size_t> owned;
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].owner == rank) owned.push_back(i);
  }
  return owned;
}

void PublishLoad::setTimeline(double us) {
  computeUs = us;
  const double usPerByte = us / static_cast<double>(mostOwned);
  std::map<int, double> ends;
  for (PublishItem& item : items) {
    item.starts = ends[item.owner];
    item.ready = item.starts + static_cast<double>(item.bytes) * usPerByte;
    ends[item.owner] = item.ready;
  }
  byTime.resize(items.size());
  std::iota(byTime.begin(), byTime.end(), size_t{0});
  std::stable_sort(byTime.begin(), byTime.end(), [&](size_t a, size_t b) { return items[a].ready < items[b].ready; });
}

PublishLoad makePublishLoad(const PublishModel& model, double scale, int nodes) {
  PublishLoad load{};
  load.model = &model;
  load.groups = model.groups;
  const std::vector<LayerItem> items = layerItems(model);
  double total = 0;
  for (const LayerItem& item : items) total += static_cast<double>(item.bytes);
  const double divisor = scale > 0 ? scale : total / kDefaultBytes;
  std::vector<uint64_t> sizes;
  for (const LayerItem& item : items) {
    const auto bytes = static_cast<uint64_t>(static_cast<double>(item.bytes) / divisor);
    sizes.push_back(std::max<uint64_t>(bytes / 16 * 16, 16));
  }
  const std::vector<int32_t> owners = dealItems(sizes, static_cast<uint32_t>(nodes));
  for (size_t i = 0; i < items.size(); ++i) load.items.push_back({owners[i], items[i].group, 0, sizes[i]});
  std::vector<size_t> order(load.items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tie(load.items[a].group, load.items[a].owner) < std::tie(load.items[b].group, load.items[b].owner);
  });
  std::vector<uint64_t> owned(static_cast<size_t>(nodes), 0);
  for (size_t i : order) {
    load.items[i].offset = load.bytes;
    load.bytes += load.items[i].bytes;
    owned[static_cast<size_t>(load.items[i].owner)] += load.items[i].bytes;
  }
  load.received = load.bytes - *std::min_element(owned.begin(), owned.end());
  load.mostOwned = *std::max_element(owned.begin(), owned.end());
  load.setTimeline(0);
  return load;
}

Updates::Updates(const PublishLoad& load, Compute compute, int rank)
    : load_(load), compute_(compute), owned_(load.ownedBy(rank)), begin_(Clock::now()), end_(begin_) {
  if (load.computeUs > 0) prctl(PR_SET_TIMERSLACK, 1000);  // else every wait is 50 us too long
}

void Updates::work(const PublishItem& item) {
  if (load_.computeUs <= 0) return;
  if (compute_ == Compute::kDevice) {
    std::this_thread::sleep_until(begin_ + toDuration(item.ready));
  } else {
    owed_ += item.ready - item.starts;
    if (owed_ < kShortestWaitUs) return;
    const auto before = Clock::now();
    if (compute_ == Compute::kSleep) std::this_thread::sleep_for(toDuration(owed_));
    while (compute_ == Compute::kSpin && Clock::now() < before + toDuration(owed_)) {
    }
    owed_ -= Microseconds(Clock::now() - before).count();
  }
  end_ = Clock::now();
}

void Updates::finish(size_t index) {
  while (next_ <= index && next_ < owned_.size()) work(load_.items[owned_[next_++]]);
}

void Updates::finishStartedBefore(double us) {
  while (next_ < owned_.size() && load_.items[owned_[next_]].starts < us) work(load_.items[owned_[next_++]]);
}

void Updates::finishAll() { finish(owned_.size()); }

}  // namespace vcoll::perf
