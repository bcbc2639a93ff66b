// SPDX-License-Identifier: Apache-2.0
#include "publish_scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "scenario.h"

namespace vcoll::sim {

namespace {

constexpr uint64_t kMaxItems = 100 << 10;                      // bytes of one copy of all items, but for gaps
constexpr uint64_t kMaxWindow = 2 * (kMaxItems + 4096) + 256;  // at most 40 gaps of 40 bytes in a copy
constexpr uint64_t kShifts = 65536;                            // places in the series where data may start
constexpr uint64_t kTail = 64;                                 // guard bytes after the last item
constexpr uint64_t kLongDelays = 30;                           // of a lease

// Any bytes: two starts differ everywhere, so a torn or shifted copy is seen.
const std::byte* series(uint64_t start) {
  static const std::vector<std::byte>* all = [] {
    auto* made = new std::vector<std::byte>(kMaxWindow + kShifts);
    Rng rng(2);
    for (auto& byte : *made) byte = static_cast<std::byte>(rng.next());
    return made;
  }();
  return all->data() + mix64(start) % kShifts;
}

const std::byte* version(uint32_t item, uint64_t step) { return series(uint64_t{item} << 32 | (step + 1)); }
const std::byte* guard(uint32_t rank) { return series(~uint64_t{rank}); }

template <typename T>
T pick(Rng& rng, std::initializer_list<T> values) {
  return values.begin()[rng.below(values.size())];
}

uint64_t itemBytes(Rng& rng, uint64_t chunk, uint64_t most) {
  switch (rng.below(6)) {
    case 0:
      return 0;
    case 1:
      return rng.between(1, 64);
    case 2:
      return chunk * rng.between(1, 4);
    case 3:
      return chunk * rng.between(1, most);
    default:
      return rng.between(1, chunk * most);
  }
}

void makeItems(Rng& rng, PublishScenario& s) {
  const uint64_t ranks = s.nodeKeys.size();
  PublishSpec& spec = s.spec;
  spec.path = pick(rng, {vcollPathStar, vcollPathChain, vcollPathChain, vcollPathAuto});
  spec.chunkBytes = pick<uint64_t>(rng, {16, 32, 64, 256, 1024});
  spec.copies = static_cast<uint32_t>(rng.between(1, 2));
  const uint64_t most = ranks > 24 ? 3 : ranks > 8 ? 8 : 20;  // chunks
  const uint64_t count = rng.oneIn(5) ? rng.between(0, 40) : rng.between(1, std::min<uint64_t>(2 * ranks, 24));
  const bool hot = rng.oneIn(4);
  const auto hotRank = static_cast<int32_t>(rng.below(ranks));
  uint64_t offset = rng.below(40);
  uint64_t left = kMaxItems;
  for (uint64_t i = 0; i < count; ++i) {
    vcollPublishItem_t item{};
    item.id = mix64(s.options.seed + i);
    item.owner = hot && rng.below(4) > 0 ? hotRank : static_cast<int32_t>(rng.below(ranks));
    item.bytes = std::min(itemBytes(rng, spec.chunkBytes, most), left);
    left -= item.bytes;
    item.offset = offset;
    offset += item.bytes + (rng.oneIn(2) ? rng.below(40) : 0);
    spec.items.push_back(item);
  }
  if (spec.copies == 2) spec.copyStride = offset + rng.below(40);
  spec.windowBytes = offset + (spec.copies - 1) * spec.copyStride + kTail;
}

// The programs of all ranks.
class Programs final : public PublishUsers {
 public:
  Programs(const PublishScenario& scenario, PublishCluster& cluster);

  void start();
  std::string whole(uint32_t rank, uint32_t item, uint64_t step) override;
  void changed(uint32_t rank) override;
  // Every byte of every window, after all has ended.
  std::string checkWindows(PublishOutcome* outcome);
  // Where nothing went wrong: every rank has made all its steps.
  bool allDone() const;
  // Where one owner is mute: everything else of that step is everywhere.
  std::string checkOthers() const;
  uint64_t leasesOverBegin() const { return leasesOverBegin_; }
  uint64_t versions() const { return versions_; }

 private:
  enum Phase : uint32_t { kBegin, kWrite, kPush, kWait, kEnd, kDone };
  static constexpr uint32_t kAct = UINT32_MAX;  // other tags are leases

  struct Lease {
    uint32_t item;
    uint64_t step;
    bool overBegin;
  };
  struct Program final : Actor {
    void fire(uint32_t tag) override { tag == kAct ? all->act(*this) : all->release(*this, tag); }
    Programs* all = nullptr;
    uint32_t rank = 0;
    Phase phase = kBegin;
    uint64_t step = 0;
    bool waiting = false;        // until something changes
    std::vector<uint32_t> own;   // items, in the order of their pushes in this step
    std::vector<uint32_t> held;  // items, own or not
    size_t next = 0;             // of own
    uint32_t waitsLeft = 0;
    uint32_t awaited = UINT32_MAX;
    std::vector<Lease> leases;
  };

  void act(Program& program);
  bool beginStep(Program& program);
  bool awaitedIsThere(Program& program);
  void takeLeases(Program& program);
  void release(Program& program, uint32_t lease);
  void check(const char* when, uint32_t rank, uint32_t item, uint64_t step);
  uint64_t number(uint32_t rank, uint64_t step) const {
    return scenario_.numbers[step] + (rank == scenario_.oddRank && step >= scenario_.oddStep ? 1 : 0);
  }
  uint32_t ownerOf(uint32_t item) const { return static_cast<uint32_t>(cluster_.items()[item].owner); }

  const PublishScenario& scenario_;
  PublishCluster& cluster_;
  Rng& rng_;
  std::vector<std::unique_ptr<Program>> programs_;
  std::vector<std::vector<std::vector<uint32_t>>> pushes_;  // by owner and step, in order
  std::vector<std::vector<uint64_t>> arrivals_;             // by rank and owner: versions that became whole
  uint64_t leasesOverBegin_ = 0;
  uint64_t versions_ = 0;
};

Programs::Programs(const PublishScenario& scenario, PublishCluster& cluster)
    : scenario_(scenario), cluster_(cluster), rng_(cluster.scheduler().rng()) {
  const auto ranks = static_cast<uint32_t>(scenario.nodeKeys.size());
  for (uint32_t r = 0; r < ranks; ++r) {
    programs_.push_back(std::make_unique<Program>());
    programs_[r]->all = this;
    programs_[r]->rank = r;
    for (uint32_t i = 0; i < cluster.items().size(); ++i) {
      if (cluster.holds(r, i)) programs_[r]->held.push_back(i);
      if (ownerOf(i) == r) programs_[r]->own.push_back(i);
    }
    std::memcpy(cluster.window(r), guard(r), scenario.spec.windowBytes);
  }
  pushes_.assign(ranks, std::vector<std::vector<uint32_t>>(scenario.steps));
  arrivals_.assign(ranks, std::vector<uint64_t>(ranks, 0));
}

void Programs::start() {
  for (const auto& p : programs_) cluster_.scheduler().after(cluster_.delay(p->rank), p.get(), kAct);
}

void Programs::changed(uint32_t rank) {
  Program& program = *programs_[rank];
  if (!program.waiting) return;
  program.waiting = false;
  cluster_.scheduler().after(cluster_.delay(rank), &program, kAct);
}

void Programs::act(Program& p) {
  if (cluster_.dead(p.rank)) return;
  bool wait = false;
  switch (p.phase) {
    case kBegin:
      wait = !beginStep(p);
      break;
    case kWrite:
      if (p.next == p.own.size()) {
        p.phase = kWait;
        p.waitsLeft = static_cast<uint32_t>(p.held.empty() ? 0 : rng_.below(p.held.size() + 1));
        break;
      }
      if (p.rank == scenario_.muteOwner && p.step >= scenario_.muteStep) return;
      if (!awaitedIsThere(p)) {
        wait = true;
        break;
      }
      cluster_.startWriting(p.rank, p.own[p.next], p.step);
      std::memcpy(cluster_.address(p.rank, p.own[p.next], p.step), version(p.own[p.next], p.step),
                  cluster_.items()[p.own[p.next]].bytes);
      p.phase = kPush;
      break;
    case kPush:
      pushes_[p.rank][p.step].push_back(p.own[p.next]);
      cluster_.push(p.rank, p.own[p.next++]);
      // Waiting for lower ranks only, programs never wait in a circle.
      if (scenario_.waitOneIn > 0 && rng_.oneIn(scenario_.waitOneIn)) {
        const uint32_t item = p.held[rng_.below(p.held.size())];
        if (ownerOf(item) < p.rank) p.awaited = item;
      }
      p.phase = kWrite;
      break;
    case kWait:
      if (!awaitedIsThere(p)) {
        wait = true;
      } else if (p.waitsLeft > 0) {
        --p.waitsLeft;
        p.awaited = p.held[rng_.below(p.held.size())];
      } else {
        p.phase = kEnd;
      }
      break;
    case kEnd:
      takeLeases(p);
      p.phase = ++p.step == scenario_.steps ? kDone : kBegin;
      break;
    default:
      return;
  }
  p.waiting = wait;
  if (!wait) cluster_.scheduler().after(cluster_.delay(p.rank), &p, kAct);
}

bool Programs::beginStep(Program& p) {
  if (!cluster_.mayBegin(p.rank)) return false;
  const uint64_t copies = scenario_.spec.copies;
  if (p.step >= copies) {
    for (const uint32_t item : p.held) check("when it is given up", p.rank, item, p.step - copies);
  }
  for (Lease& lease : p.leases) lease.overBegin = true;
  cluster_.begin(p.rank, number(p.rank, p.step));
  for (size_t i = p.own.size(); i > 1; --i) std::swap(p.own[i - 1], p.own[rng_.below(i)]);
  p.next = 0;
  p.phase = kWrite;
  return true;
}

bool Programs::awaitedIsThere(Program& p) {
  if (p.awaited == UINT32_MAX) return true;
  if (!cluster_.isWhole(p.rank, p.awaited, p.step)) return false;
  check("that was waited for", p.rank, p.awaited, p.step);
  p.awaited = UINT32_MAX;
  return true;
}

void Programs::takeLeases(Program& p) {
  if (scenario_.leaseOneIn == 0 || !rng_.oneIn(scenario_.leaseOneIn) || p.held.empty()) return;
  for (uint64_t n = rng_.between(1, 2); n > 0; --n) {
    const uint32_t item = p.held[rng_.below(p.held.size())];
    const uint64_t step = p.step - (scenario_.spec.copies == 2 && p.step > 0 ? rng_.below(2) : 0);
    if (ownerOf(item) == p.rank || !cluster_.isWhole(p.rank, item, step)) continue;
    cluster_.lease(p.rank, item, step);
    p.leases.push_back({item, step, false});
    const uint64_t delay = cluster_.delay(p.rank) * (rng_.oneIn(2) ? kLongDelays : 1);
    cluster_.scheduler().after(delay, &p, static_cast<uint32_t>(p.leases.size() - 1));
  }
}

void Programs::release(Program& p, uint32_t index) {
  if (cluster_.dead(p.rank)) return;
  const Lease lease = p.leases[index];
  check("under its lease", p.rank, lease.item, lease.step);
  if (lease.overBegin) ++leasesOverBegin_;
  cluster_.release(p.rank, lease.item, lease.step);
}

void Programs::check(const char* when, uint32_t rank, uint32_t item, uint64_t step) {
  if (!cluster_.isWhole(rank, item, step)) {
    return cluster_.fail(fmt::format("rank {} does not have step {} of item {} {}", rank, step, item, when));
  }
  const std::byte* actual = cluster_.address(rank, item, step);
  const std::byte* expected = version(item, step);
  const uint64_t bytes = cluster_.items()[item].bytes;
  if (bytes == 0 || std::memcmp(actual, expected, bytes) == 0) return;
  const auto at = std::mismatch(actual, actual + bytes, expected).first - actual;
  cluster_.fail(fmt::format("rank {}: step {} of item {} (owner {}, {} bytes) is torn {}: byte {} is wrong", rank, step,
                            item, ownerOf(item), bytes, when, at));
}

std::string Programs::whole(uint32_t rank, uint32_t item, uint64_t step) {
  ++versions_;
  const uint32_t owner = ownerOf(item);
  const uint64_t before = arrivals_[rank][owner]++ % programs_[owner]->own.size();
  const std::vector<uint32_t>& pushes = pushes_[owner][step];
  if (before >= pushes.size() || pushes[before] != item) {
    return fmt::format("rank {}: item {} of rank {} came as number {} of step {}, which is not the order of the pushes",
                       rank, item, owner, before, step);
  }
  check("when it comes", rank, item, step);
  return {};
}

std::string Programs::checkWindows(PublishOutcome* outcome) {
  const PublishSpec& spec = scenario_.spec;
  std::vector<std::byte> expected;
  for (const auto& p : programs_) {
    if (cluster_.dead(p->rank)) continue;
    std::byte* window = cluster_.window(p->rank);
    expected.assign(guard(p->rank), guard(p->rank) + spec.windowBytes);
    for (const uint32_t item : p->held) {
      const uint64_t bytes = cluster_.items()[item].bytes;
      uint64_t wholes = 0;
      for (uint64_t copy = 0; copy < spec.copies; ++copy) {
        const PublishCluster::Copy& held = cluster_.copy(p->rank, item, copy);
        const std::byte* address = cluster_.address(p->rank, item, copy);
        std::byte* to = expected.data() + (address - window);
        if (held.state == PublishCluster::Copy::kWhole) std::memcpy(to, version(item, held.step), bytes);
        if (held.state == PublishCluster::Copy::kOverwritten) std::memcpy(to, address, bytes);
        if (held.state == PublishCluster::Copy::kWhole) ++wholes;
        if (held.state == PublishCluster::Copy::kOverwritten && ownerOf(item) != p->rank) ++outcome->partial;
      }
      const bool second = cluster_.copy(p->rank, item, 1).state != PublishCluster::Copy::kNever;
      if (spec.copies == 2 && second && wholes == 0 && !cluster_.broken(p->rank)) {
        return fmt::format("rank {} has no whole version of item {} left", p->rank, item);
      }
    }
    if (std::memcmp(window, expected.data(), spec.windowBytes) == 0) continue;
    const auto at = std::mismatch(window, window + spec.windowBytes, expected.begin()).first - window;
    return fmt::format("rank {} has a wrong byte at window offset {} at the end", p->rank, at);
  }
  return {};
}

bool Programs::allDone() const {
  return std::all_of(programs_.begin(), programs_.end(), [](const auto& p) { return p->phase == kDone; });
}

std::string Programs::checkOthers() const {
  for (const auto& p : programs_) {
    for (const uint32_t item : p->held) {
      const uint32_t owner = ownerOf(item);
      const uint64_t wanted = (scenario_.muteStep + 1) * programs_[owner]->own.size();
      if (owner == scenario_.muteOwner || owner == p->rank || arrivals_[p->rank][owner] >= wanted) continue;
      return fmt::format("rank {} does not have item {} of rank {} because rank {} is mute", p->rank, item,
                         ownerOf(item), scenario_.muteOwner);
    }
  }
  return {};
}

}  // namespace

PublishScenario makePublishScenario(uint64_t seed) {
  PublishScenario s;
  Rng rng(seed);
  const uint64_t nodes = rng.oneIn(5) ? rng.between(1, 16) : rng.between(2, 4);
  const uint64_t most = rng.oneIn(6) ? 8 : rng.between(1, 3);
  s.nodeKeys = makeNodeKeys(rng, nodes, most);
  s.options.seed = rng.next();
  s.options.timeOrdered = !rng.oneIn(4);
  s.options.order = pick(rng, {Order::kPeer, Order::kStream});
  s.options.yieldOneIn = pick<uint32_t>(rng, {4, 16, 64});
  s.options.maxDelay = pick<uint32_t>(rng, {2, 100, 100});
  s.options.maxPuts = pick<uint32_t>(rng, {1, 2, 8});
  s.options.helpersOneIn = pick<uint32_t>(rng, {0, 2});
  s.options.slowRanksOneIn = pick<uint32_t>(rng, {0, 4});
  s.options.stallOneIn = pick<uint32_t>(rng, {0, 0, 300, 3000});
  makeItems(rng, s);
  s.steps = rng.between(2, s.nodeKeys.size() > 12 ? 3 : 6);
  s.waitOneIn = pick<uint32_t>(rng, {0, 4});
  uint64_t number = rng.below(3);
  for (uint64_t step = 0; step < s.steps; ++step) {
    s.numbers.push_back(number);
    number += rng.oneIn(3) ? rng.between(2, 1000) : 1;
  }
  const uint64_t fate = rng.below(6);
  if (fate == 0) {
    s.options.deadRank = static_cast<uint32_t>(rng.below(s.nodeKeys.size()));
    s.options.deathAt = uint64_t{1} << rng.between(4, 12);
    s.options.deathAt += rng.below(s.options.deathAt);
  } else if (fate == 1 && rng.oneIn(3)) {
    s.oddRank = static_cast<uint32_t>(rng.below(s.nodeKeys.size()));
    s.oddStep = rng.below(s.steps);
  }
  return s;
}

std::string PublishScenario::describe() const {
  const Topology topology(nodeKeys);
  std::string text = fmt::format("{} ranks on {} nodes (", topology.ranks(), topology.nodes());
  for (uint32_t n = 0; n < topology.nodes(); ++n) {
    text += fmt::format("{}{}", n > 0 ? "+" : "", topology.members(n).size());
  }
  text += fmt::format("), {} items, path {}, {} copies, chunk {}, {} steps, {} order, {} puts, helpers for one in {}",
                      spec.items.size(), static_cast<int>(spec.path), spec.copies, spec.chunkBytes, steps,
                      options.order == Order::kPeer ? "peer" : "stream", options.maxPuts, options.helpersOneIn);
  if (options.deadRank != kNoRank) text += fmt::format(", rank {} dies at {}", options.deadRank, options.deathAt);
  if (oddRank != kNoRank) text += fmt::format(", rank {} has other numbers from step {} on", oddRank, oddStep);
  return text;
}

PublishOutcome runPublish(const PublishScenario& scenario) {
  static auto* fibers = new FiberPool;
  if (scenario.spec.windowBytes > kMaxWindow) std::abort();  // the series is too short
  const Topology topology(scenario.nodeKeys);
  PublishCluster cluster(scenario.options, topology, *fibers);
  PublishOutcome outcome;
  const Status status = cluster.build(scenario.spec);
  if (!status.ok()) {
    outcome.failure = "plan: " + status.text();
    return outcome;
  }
  Programs programs(scenario, cluster);
  programs.start();
  outcome.failure = cluster.run(programs);
  outcome.died = cluster.died();
  for (uint32_t r = 0; r < topology.ranks(); ++r) outcome.broken |= cluster.broken(r);
  outcome.faultStruck = cluster.faultStruck();
  const bool odd = scenario.oddRank != kNoRank && cluster.connected(scenario.oddRank);
  const auto note = [&](std::string text) {
    if (outcome.failure.empty()) outcome.failure = std::move(text);
  };
  if (outcome.broken && !odd) note("a header is called broken" + cluster.describeWaiting(scenario.steps));
  if (!outcome.broken && odd && !outcome.died) note("ranks with different step numbers are not noticed");
  if (scenario.muteOwner != kNoRank) {
    note(programs.checkOthers());
  } else if (outcome.failure.empty() && !outcome.died && !odd) {
    outcome.deadlocked = !programs.allDone();
    if (outcome.deadlocked) note("deadlock: nothing is under way" + cluster.describeWaiting(scenario.steps));
    note(cluster.checkFinished(scenario.steps));
  }
  if (outcome.failure.empty()) note(programs.checkWindows(&outcome));
  outcome.trace = cluster.scheduler().trace();
  outcome.events = cluster.scheduler().eventCount();
  outcome.leasesOverBegin = programs.leasesOverBegin();
  outcome.versions = programs.versions();
  return outcome;
}

}  // namespace vcoll::sim
