// SPDX-License-Identifier: Apache-2.0
#include "scenario.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/types.h"
#include "transport/sim/elements.h"

namespace vcoll::sim {

namespace {

constexpr uint64_t kMaxWindow = 512 << 10;
constexpr uint64_t kShifts = 4096;  // places in the series where data may start
constexpr uint64_t kTail = 64;      // guard bytes after the last segment

// Bytes of any value for integers and for guards; small integers for floats, so that sums are exact in any order.
struct Series {
  std::vector<std::byte> bytes;
  std::vector<std::byte> floats;
  std::vector<std::byte> halves;
};

const Series& series() {
  static const Series* all = [] {
    auto* made = new Series;
    Rng rng(1);
    made->bytes.resize(kMaxWindow + kShifts * 8);
    for (auto& byte : made->bytes) byte = static_cast<std::byte>(rng.next());
    made->floats.resize(kMaxWindow + kShifts * 8);
    for (size_t i = 0; i < made->floats.size(); i += 4) {
      Float32::store(&made->floats[i], static_cast<float>(rng.below(2001)) - 1000.0F);
    }
    // 64 ranks x 0..3 is exact in 8 bits of fraction.
    made->halves.resize(kMaxWindow + kShifts * 8);
    for (size_t i = 0; i < made->halves.size(); i += 2) {
      Bfloat16::store(&made->halves[i], static_cast<float>(rng.below(4)));
    }
    return made;
  }();
  return *all;
}

template <typename T>
T pick(Rng& rng, std::initializer_list<T> values) {
  return values.begin()[rng.below(values.size())];
}

void makeCluster(Rng& rng, Scenario& s) {
  const uint64_t nodes = rng.oneIn(3) ? rng.between(1, 8) : rng.between(2, 4);
  const uint64_t most = rng.oneIn(4) ? 8 : rng.between(1, 4);
  s.nodeKeys = makeNodeKeys(rng, nodes, most);
}

uint64_t segmentBytes(Rng& rng, uint64_t size, uint64_t budget) {
  uint64_t bytes = 0;
  switch (rng.below(6)) {
    case 0:
      return 0;
    case 1:
      bytes = rng.between(1, 16) * size;
      break;
    case 2:
    case 3:
      bytes = rng.between(1, 4096) / size * size;
      break;
    case 4:
      bytes = rng.between(1, budget / 4) / size * size;
      break;
    default:
      bytes = rng.between(budget / 4, budget / 2) / size * size;
  }
  return std::min(bytes, budget / size * size);
}

PlanSpec makePlan(Rng& rng, uint32_t ranks) {
  PlanSpec plan;
  plan.type = pick(rng, {vcollUint8, vcollUint8, vcollInt32, vcollUint64, vcollFloat32, vcollBfloat16});
  plan.path = pick(rng, {vcollPathStar, vcollPathChain, vcollPathAuto});
  plan.lanes = static_cast<uint32_t>(rng.between(1, 4));
  plan.chunkBytes = pick<uint64_t>(rng, {1024, 1040, 2048, 4096});
  plan.partialsFp32 = rng.oneIn(3);
  plan.rails = rng.oneIn(3) ? RailPolicy::kOwnerRail : RailPolicy::kStripe;
  const uint64_t size = typeInfo(plan.type)->size;

  // Fewer bytes where more ranks copy them.
  uint64_t budget = pick<uint64_t>(rng, {0, 2000, 20000, 60000, 200000}) / (ranks > 24 ? 4 : 1);
  const uint64_t shape = rng.below(5);
  const uint64_t count = shape == 4 ? rng.between(20, 120) : rng.between(0, 2 * ranks);
  const auto hot = static_cast<int32_t>(rng.below(ranks));
  const uint64_t step = rng.between(1, 4);
  uint64_t offset = 0;
  for (uint64_t i = 0; i < count; ++i) {
    vcollSegment_t segment{};
    switch (shape) {
      case 0:
        segment.owner = hot;
        break;
      case 1:
        segment.owner = static_cast<int32_t>(i * step % ranks);
        break;
      default:
        segment.owner = static_cast<int32_t>(rng.below(ranks));
    }
    segment.bytes = shape == 4 ? rng.between(0, 40) * size : segmentBytes(rng, size, budget);
    if (budget < 2000) segment.bytes = 0;
    budget -= std::min(budget, segment.bytes);
    if (rng.oneIn(2)) offset += rng.between(0, 40) * size;
    segment.offset = offset;
    offset += segment.bytes;
    plan.segments.push_back(segment);
  }
  for (size_t i = plan.segments.size(); i > 1 && rng.oneIn(2); --i) {
    std::swap(plan.segments[i - 1], plan.segments[rng.below(i)]);
  }
  return plan;
}

uint64_t extentOf(const PlanSpec& plan) {
  uint64_t extent = 0;
  for (const vcollSegment_t& segment : plan.segments) extent = std::max(extent, segment.offset + segment.bytes);
  return extent;
}

template <typename Element>
void addUp(const std::vector<const std::byte*>& sources, std::vector<std::byte>& to) {
  for (size_t i = 0; i + Element::kBytes <= to.size(); i += Element::kBytes) {
    typename Element::Sum sum{};
    for (const std::byte* from : sources) sum += Element::load(from + i);
    Element::store(&to[i], sum);
  }
}

std::string compare(const char* what, uint32_t rank, uint32_t call, uint64_t begin, uint64_t bytes,
                    const std::byte* actual, const std::byte* expected) {
  if (bytes == 0 || std::memcmp(actual, expected, bytes) == 0) return {};
  const auto at = static_cast<uint64_t>(std::mismatch(actual, actual + bytes, expected).first - actual);
  return fmt::format("call {}: rank {} has a wrong {} byte at window offset {} ({:#04x}, expected {:#04x})", call, rank,
                     what, begin + at, static_cast<int>(actual[at]), static_cast<int>(expected[at]));
}

}  // namespace

std::vector<uint64_t> makeNodeKeys(Rng& rng, uint64_t nodes, uint64_t most) {
  std::vector<uint64_t> keys;
  std::vector<uint64_t> left(nodes);
  const bool uneven = rng.oneIn(2);
  for (auto& ranks : left) ranks = uneven ? rng.between(1, most) : most;
  const uint64_t placement = rng.below(3);  // node by node, round-robin, any
  for (uint64_t node = 0; std::any_of(left.begin(), left.end(), [](uint64_t n) { return n > 0; });) {
    if (placement == 2) node = rng.below(nodes);
    if (left[node] > 0) {
      keys.push_back(1000 - node);
      --left[node];
    }
    if (placement == 1 || left[node] == 0) node = (node + 1) % nodes;
  }
  return keys;
}

Scenario makeScenario(uint64_t seed) {
  Scenario s;
  Rng rng(seed);
  makeCluster(rng, s);
  const auto ranks = static_cast<uint32_t>(s.nodeKeys.size());
  s.slots = static_cast<uint32_t>(rng.between(1, 4));
  s.layoutChunkBytes = pick<uint64_t>(rng, {1024, 2048, 4096});
  s.options.seed = rng.next();
  s.options.timeOrdered = !rng.oneIn(4);
  s.options.pulls = rng.oneIn(2);
  s.options.order = pick(rng, {Order::kPeer, Order::kStream});
  s.options.yieldOneIn = pick<uint32_t>(rng, {2, 16, 64});
  s.options.maxDelay = pick<uint32_t>(rng, {2, 100, 100});
  s.options.maxPuts = pick<uint32_t>(rng, {1, 2, 8});
  s.options.slowRanksOneIn = pick<uint32_t>(rng, {0, 4});
  s.options.stallOneIn = pick<uint32_t>(rng, {0, 0, 300, 3000});

  const uint64_t planCount = rng.between(1, 2);
  for (uint64_t p = 0; p < planCount; ++p) s.plans.push_back(makePlan(rng, ranks));
  const uint64_t callCount = rng.between(2, 5);
  for (uint64_t c = 0; c < callCount; ++c) {
    Call call{};
    call.op = rng.oneIn(2) ? Call::kAllGatherV : Call::kReduceScatterV;
    call.plan = static_cast<uint32_t>(rng.below(planCount));
    call.src = static_cast<uint32_t>(rng.below(kWindows));
    call.dst = rng.oneIn(3) ? call.src : 1 - call.src;
    const PlanSpec& plan = s.plans[call.plan];
    const uint64_t size = typeInfo(plan.type)->size;
    call.srcOffset = rng.below(20) * size;
    call.dstOffset = call.src == call.dst ? call.srcOffset : rng.below(20) * size;
    s.calls.push_back(call);
  }
  s.fitWindows();
  return s;
}

void Scenario::fitWindows() {
  windowBytes = 0;
  for (const Call& call : calls) {
    windowBytes = std::max(windowBytes, extentOf(plans[call.plan]) + std::max(call.srcOffset, call.dstOffset) + kTail);
  }
}

std::string Scenario::describe() const {
  const Topology topology(nodeKeys);
  std::string text = fmt::format("{} ranks on {} nodes (", topology.ranks(), topology.nodes());
  for (uint32_t n = 0; n < topology.nodes(); ++n)
    text += fmt::format("{}{}", n > 0 ? "+" : "", topology.members(n).size());
  text += fmt::format("), {}, {} order, {} slots, {} puts", options.pulls ? "pull" : "push",
                      options.order == Order::kPeer ? "peer" : "stream", slots, options.maxPuts);
  for (size_t p = 0; p < plans.size(); ++p) {
    text += fmt::format("\n  plan {}: {} segments, extent {}, {}, path {}, lanes {}, chunk {}, {}", p,
                        plans[p].segments.size(), extentOf(plans[p]), typeInfo(plans[p].type)->name,
                        static_cast<int>(plans[p].path), plans[p].lanes, plans[p].chunkBytes,
                        plans[p].rails == RailPolicy::kStripe ? "stripe" : "owner rail");
  }
  for (const Call& call : calls) {
    text += fmt::format("\n  {} plan {}, windows {} -> {}",
                        call.op == Call::kAllGatherV ? "AllGatherV" : "ReduceScatterV", call.plan, call.src, call.dst);
  }
  return text;
}

WindowUser::WindowUser(const Scenario& scenario, SimCluster& cluster) : scenario_(scenario), cluster_(cluster) {
  for (const PlanSpec& plan : scenario.plans) {
    std::vector<Piece> pieces;
    for (const vcollSegment_t& segment : plan.segments) {
      if (segment.bytes > 0) pieces.push_back({segment.offset, segment.bytes, static_cast<uint32_t>(segment.owner)});
    }
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
    pieces_.push_back(std::move(pieces));
  }
}

const std::byte* WindowUser::guard(uint32_t rank, uint32_t call) const {
  return series().bytes.data() + mix64(uint64_t{call} << 32 | rank) % kShifts * 8;
}

const std::byte* WindowUser::data(uint32_t rank, uint32_t call) const {
  const uint64_t start = mix64(uint64_t{call + 100} << 32 | rank) % kShifts * 8;
  switch (scenario_.plans[scenario_.calls[call].plan].type) {
    case vcollFloat32:
      return series().floats.data() + start;
    case vcollBfloat16:
      return series().halves.data() + start;
    default:
      return series().bytes.data() + start;
  }
}

void WindowUser::prepare(uint32_t rank, uint32_t call) {
  const Call& next = scenario_.calls[call];
  for (uint32_t w = 0; w < kWindows; ++w)
    std::memcpy(cluster_.window(rank, w), guard(rank, call), scenario_.windowBytes);
  std::byte* base = cluster_.window(rank, next.src) + next.srcOffset;
  if (next.op == Call::kAllGatherV) {
    for (const Piece& piece : pieces_[next.plan]) {
      if (piece.owner == rank) std::memcpy(base + piece.offset, data(rank, call) + piece.offset, piece.bytes);
    }
  } else {
    std::memcpy(base, data(rank, call), extentOf(scenario_.plans[next.plan]));
  }
}

std::string WindowUser::returned(uint32_t rank, uint32_t call) {
  return scenario_.calls[call].op == Call::kAllGatherV ? checkGather(rank, call) : checkReduce(rank, call);
}

std::string WindowUser::checkGather(uint32_t rank, uint32_t call) {
  const Call& made = scenario_.calls[call];
  const std::byte* window = cluster_.window(rank, made.src);
  const std::byte* outside = guard(rank, call);
  std::string bad;
  uint64_t end = 0;  // of what has been checked
  for (const Piece& piece : pieces_[made.plan]) {
    const uint64_t begin = made.srcOffset + piece.offset;
    bad += compare("gap", rank, call, end, begin - end, window + end, outside + end);
    bad += compare("data", rank, call, begin, piece.bytes, window + begin, data(piece.owner, call) + piece.offset);
    if (!bad.empty()) return bad;
    end = begin + piece.bytes;
  }
  bad = compare("gap", rank, call, end, scenario_.windowBytes - end, window + end, outside + end);
  bad += compare("other window's", rank, call, 0, scenario_.windowBytes, cluster_.window(rank, 1 - made.src), outside);
  return bad;
}

std::string WindowUser::checkReduce(uint32_t rank, uint32_t call) {
  const Call& made = scenario_.calls[call];
  const bool inPlace = made.src == made.dst;
  const uint64_t extent = extentOf(scenario_.plans[made.plan]);
  // What both windows must hold: guards, the source, and the sums where this rank is the owner.
  static std::vector<std::byte> expected;
  for (const uint32_t w : {made.src, made.dst}) {
    expected.assign(guard(rank, call), guard(rank, call) + scenario_.windowBytes);
    if (w == made.src) std::memcpy(expected.data() + made.srcOffset, data(rank, call), extent);
    if (w == made.dst) {
      for (const Piece& piece : pieces_[made.plan]) {
        if (piece.owner != rank) continue;
        std::memcpy(expected.data() + made.dstOffset + piece.offset, sums(call).data() + piece.offset, piece.bytes);
      }
    }
    const char* what = inPlace ? "in-place" : w == made.src ? "source" : "destination";
    std::string bad = compare(what, rank, call, 0, scenario_.windowBytes, cluster_.window(rank, w), expected.data());
    if (!bad.empty()) return bad;
    if (inPlace) {
      return compare("other window's", rank, call, 0, scenario_.windowBytes, cluster_.window(rank, 1 - w),
                     guard(rank, call));
    }
  }
  return {};
}

const std::vector<std::byte>& WindowUser::sums(uint32_t call) {
  std::vector<std::byte>& sums = sums_[call];
  const PlanSpec& plan = scenario_.plans[scenario_.calls[call].plan];
  if (!sums.empty() || extentOf(plan) == 0) return sums;
  sums.resize(extentOf(plan));
  std::vector<const std::byte*> sources;
  for (uint32_t rank = 0; rank < scenario_.nodeKeys.size(); ++rank) sources.push_back(data(rank, call));
  switch (plan.type) {
    case vcollUint8:
      addUp<Integer<uint8_t>>(sources, sums);
      break;
    case vcollInt32:
      addUp<Integer<uint32_t>>(sources, sums);
      break;
    case vcollUint64:
      addUp<Integer<uint64_t>>(sources, sums);
      break;
    case vcollFloat32:
      addUp<Float32>(sources, sums);
      break;
    default:
      addUp<Bfloat16>(sources, sums);
  }
  return sums;
}

Outcome runScenario(const Scenario& scenario) {
  static auto* fibers = new FiberPool;
  const Topology topology(scenario.nodeKeys);
  const FlowLayout layout = makeFlowLayout(topology, scenario.slots, scenario.layoutChunkBytes);
  SimCluster cluster(scenario.options, topology, layout, scenario.windowBytes, *fibers);
  Outcome outcome;
  for (const PlanSpec& plan : scenario.plans) {
    const Status status = cluster.addPlan(plan);
    if (!status.ok()) {
      outcome.failure = "plan: " + status.text();
      return outcome;
    }
  }
  WindowUser user(scenario, cluster);
  outcome.failure = cluster.run(scenario.calls, user);
  outcome.deadlocked = cluster.deadlocked();
  outcome.faultStruck = cluster.faultStruck();
  outcome.trace = cluster.trace();
  outcome.events = cluster.eventCount();
  return outcome;
}

}  // namespace vcoll::sim
