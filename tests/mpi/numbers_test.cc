// SPDX-License-Identifier: Apache-2.0
// What reductions promise about bits, accuracy, NaN and special values.
#include <cstdlib>
#include <limits>
#include <set>

#include "harness.h"
#include "suites.h"
#include "values.h"

namespace suite {

namespace {

// In (0.5, 1.5): sums do not cancel.
template <typename T>
T realOf(uint64_t hash) {
  return fromDouble<T>(0.5 + static_cast<double>(hash >> 11) * 0x1p-53);
}

template <typename T>
std::vector<T> reals(size_t count, uint64_t seed, uint64_t rank) {
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = realOf<T>(hashOf(seed, rank, i));
  return values;
}

std::vector<size_t> unevenCounts() {
  std::vector<size_t> counts;
  for (int r = 0; r < worldSize; ++r) counts.push_back(static_cast<size_t>(1 + 911 * r));
  return counts;
}

// Twenty runs with ranks that come at random times (VCOLL_FAULT_CALL_DELAY_MS adds more) give the same bits.
template <typename T>
void sameBits(vcollComm_t comm, vcollDataType_t type) {
  const std::vector<size_t> counts = unevenCounts();
  size_t total = 0;
  for (const size_t count : counts) total += count;
  const auto rank = static_cast<uint64_t>(worldRank);
  const std::vector<T> send = reals<T>(total, options.seed, rank);
  std::set<uint64_t> digests;
  for (int run = 0; run < 20; ++run) {
    std::vector<T> recv(counts[rank]);
    if (hashOf(options.seed, rank, static_cast<uint64_t>(run)) % 4 == 0) sleepMs(2);
    MUST(vcollReduceScatterV(send.data(), recv.data(), counts.data(), type, vcollSum, comm, nullptr));
    uint64_t digest = 0;
    for (const T value : recv) {
      uint64_t bits = 0;
      std::memcpy(&bits, &value, sizeof value);
      digest = mix(digest ^ bits);
    }
    digests.insert(digest);
  }
  EXPECT(digests.size() == 1, "{} different results of {}", digests.size(), typeName(type));
}

// A segment's bits are the same alone and among others, for one path.
void sameBitsAlone() {
  const WorldComm comm;
  std::vector<vcollSegment_t> segments;
  uint64_t next = 0;
  for (int i = 0; i < 2 * worldSize; ++i) {
    const auto bytes = static_cast<uint64_t>(4 * (1 + 5000 * (i % 3)));
    segments.push_back({i % worldSize, 0, next, bytes});
    next += bytes;
  }
  void* memory[2];
  vcollWindow_t windows[2];
  for (int i = 0; i < 2; ++i) {
    MUST(vcollMemAlloc(&memory[i], next));
    MUST(vcollWindowRegister(comm.get(), memory[i], next, &windows[i]));
  }
  const auto values = reals<float>(next / 4, options.seed, static_cast<uint64_t>(worldRank));
  std::memcpy(memory[0], values.data(), next);
  for (const vcollPath_t path : {vcollPathStar, vcollPathChain}) {
    vcollPlanConfig_t config = VCOLL_PLAN_CONFIG_INITIALIZER;
    config.path = path;
    const auto reduce = [&](const vcollSegment_t* first, size_t count) {
      vcollPlan_t plan = nullptr;
      MUST(vcollPlanCreate(comm.get(), first, count, vcollFloat32, &config, &plan));
      MUST(vcollPlanReduceScatterV(plan, windows[0], 0, windows[1], 0, vcollSum, nullptr));
      MUST(vcollPlanDestroy(plan));
    };
    std::memset(memory[1], 0, next);
    reduce(segments.data(), segments.size());
    const auto* got = static_cast<const unsigned char*>(memory[1]);
    const std::vector<unsigned char> together(got, got + next);
    std::memset(memory[1], 0, next);
    for (const vcollSegment_t& segment : segments) reduce(&segment, 1);
    EXPECT(std::memcmp(together.data(), memory[1], next) == 0, "path {}: other bits alone", static_cast<int>(path));
  }
  for (int i = 0; i < 2; ++i) {
    MUST(vcollWindowDeregister(comm.get(), windows[i]));
    MUST(vcollMemFree(memory[i]));
  }
}

// 16-bit sums carry fp32 inside a node and round once per hop between nodes.
template <typename T>
void accuracy(vcollComm_t comm, vcollDataType_t type) {
  const char* partials = std::getenv("VCOLL_PARTIALS");
  const bool once = nodesOfLayout() == 1 || (partials != nullptr && std::string(partials) == "fp32");
  const double allowed = once ? 1 : nodesOfLayout();
  const std::vector<size_t> counts = unevenCounts();
  size_t total = 0;
  size_t before = 0;
  for (int r = 0; r < worldSize; ++r) {
    if (r < worldRank) before += counts[static_cast<size_t>(r)];
    total += counts[static_cast<size_t>(r)];
  }
  std::vector<std::vector<T>> all;
  for (int r = 0; r < worldSize; ++r) all.push_back(reals<T>(total, options.seed + 7, static_cast<uint64_t>(r)));
  const auto rank = static_cast<size_t>(worldRank);
  std::vector<T> recv(counts[rank]);
  MUST(vcollReduceScatterV(all[rank].data(), recv.data(), counts.data(), type, vcollSum, comm, nullptr));
  double worst = 0;
  for (size_t i = 0; i < recv.size(); ++i) {
    double exact = 0;
    for (const auto& values : all) exact += toDouble(values[before + i]);
    worst = std::max(worst, std::fabs(toDouble(recv[i]) - exact) / ulpAt<T>(exact));
  }
  EXPECT(worst <= allowed, "{}: {} ulp, allowed {}", typeName(type), worst, allowed);
}

// min and max give NaN where any rank has one, whichever rank it is, and only there.
template <typename T>
void nans(vcollComm_t comm, vcollDataType_t type) {
  constexpr size_t kCount = 67;  // vector bodies and tails
  const std::vector<size_t> counts(static_cast<size_t>(worldSize), kCount);
  const size_t total = kCount * counts.size();
  const T nan = fromDouble<T>(std::numeric_limits<double>::quiet_NaN());
  for (int holder = 0; holder < worldSize; ++holder) {
    for (const vcollRedOp_t op : {vcollMin, vcollMax}) {
      std::vector<T> send(total, fromDouble<T>(worldRank + 1));
      for (size_t i = 0; i < total; ++i) {
        const size_t at = i % kCount;
        if (holder == worldRank && (at == 0 || at == 33 || at == kCount - 1)) send[i] = nan;
      }
      std::vector<T> recv(kCount);
      MUST(vcollReduceScatterV(send.data(), recv.data(), counts.data(), type, op, comm, nullptr));
      for (size_t i = 0; i < kCount; ++i) {
        const double got = toDouble(recv[i]);
        if (i == 0 || i == 33 || i == kCount - 1) {
          EXPECT(std::isnan(got), "{} {}: NaN of rank {} became {}", typeName(type), opName(op), holder, got);
        } else {
          EXPECT(got == (op == vcollMin ? 1 : worldSize), "{} {}: element {} is {}", typeName(type), opName(op), i,
                 got);
        }
      }
    }
  }
}

template <typename T>
void specials(vcollComm_t comm, vcollDataType_t type) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double tiny = ulpAt<T>(0);  // the least denormal
  const bool last = worldRank == worldSize - 1;
  const double n = worldSize;
  const bool half = std::is_same_v<T, Half>;
  struct Row {
    double mine;
    double sum;
  };
  const Row rows[] = {
      {kInfinity, kInfinity},
      {worldSize == 1 ? kInfinity
       : last         ? -kInfinity
                      : kInfinity,
       worldSize == 1 ? kInfinity : NAN},
      {tiny, tiny * n},
      {-tiny, -tiny * n},
      {-0.0, -0.0},
      {worldSize == 1   ? 0.0
       : last           ? -1.5
       : worldRank == 0 ? 1.5
                        : 0.0,
       0.0},
      {half ? 60000 : 1, half && worldSize > 1 ? kInfinity
                         : half                ? fromDouble<Half>(60000).value()
                                               : n},
  };
  constexpr size_t kRows = sizeof rows / sizeof rows[0];
  const std::vector<size_t> counts(static_cast<size_t>(worldSize), kRows);
  std::vector<T> send;
  for (int r = 0; r < worldSize; ++r) {
    for (const Row& row : rows) send.push_back(fromDouble<T>(row.mine));
  }
  std::vector<T> recv(kRows);
  MUST(vcollReduceScatterV(send.data(), recv.data(), counts.data(), type, vcollSum, comm, nullptr));
  for (size_t i = 0; i < kRows; ++i) {
    const double got = toDouble(recv[i]);
    const bool right = std::isnan(rows[i].sum) ? std::isnan(got) : got == rows[i].sum;
    EXPECT(right, "{} row {}: {} instead of {}", typeName(type), i, got, rows[i].sum);
  }
  EXPECT(std::signbit(toDouble(recv[4])), "{}: the sum of -0 is +0", typeName(type));
}

template <typename Fn>
void forFloats(Fn fn) {
  fn(float{}, vcollFloat32);
  fn(double{}, vcollFloat64);
  fn(Half{}, vcollFloat16);
  fn(Brain{}, vcollBfloat16);
}

}  // namespace

void numbersSuite() {
  runCase("numbers.bits", [] {
    const WorldComm comm;
    forFloats([&](auto sample, vcollDataType_t type) { sameBits<decltype(sample)>(comm.get(), type); });
  });
  runCase("numbers.bits_alone", sameBitsAlone);
  runCase("numbers.accuracy", [] {
    const WorldComm comm;
    accuracy<Brain>(comm.get(), vcollBfloat16);
    accuracy<Half>(comm.get(), vcollFloat16);
  });
  runCase("numbers.nan", [] {
    const WorldComm comm;
    forFloats([&](auto sample, vcollDataType_t type) { nans<decltype(sample)>(comm.get(), type); });
  });
  runCase("numbers.special", [] {
    const WorldComm comm;
    forFloats([&](auto sample, vcollDataType_t type) { specials<decltype(sample)>(comm.get(), type); });
  });
}

}  // namespace suite
