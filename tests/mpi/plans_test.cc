// SPDX-License-Identifier: Apache-2.0
// Plans on windows: tables of segments in any order, several per owner, gaps, windows at any address.
#include <memory>
#include <numeric>

#include "harness.h"
#include "suites.h"
#include "values.h"

namespace suite {

namespace {

struct Table {
  std::vector<vcollSegment_t> segments;
  size_t extent = 0;
};

void append(Table* table, int owner, size_t gap, size_t bytes) {
  table->segments.push_back({owner, 0, table->extent + gap, bytes});
  table->extent += gap + bytes;
}

// Equal on all ranks.
Table randomTable(Random* random, size_t element) {
  Table table;
  const auto ranks = static_cast<uint64_t>(worldSize);
  const size_t segments = 1 + random->below(6 * ranks);
  const bool sparse = random->below(4) == 0;
  for (size_t i = 0; i < segments; ++i) {
    const uint64_t owner = sparse ? 0 : random->below(ranks);
    size_t elements = random->below(600);
    if (random->below(6) == 0) elements = 0;
    if (random->below(8) == 0) elements = random->below(60000);
    append(&table, static_cast<int>(owner), random->below(3) * element * random->below(20), elements * element);
  }
  random->shuffle(&table.segments);
  return table;
}

// 37 tensors dealt by size to the ranks; of eight ranks three get none.
Table ownersTable(size_t element) {
  Table table;
  std::vector<size_t> load(static_cast<size_t>(std::max(1, worldSize * 5 / 8)), 0);
  for (size_t i = 0; i < 37; ++i) {
    const size_t elements = 16 + (i * 7919) % 9000;
    const auto owner = static_cast<size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    load[owner] += elements;
    append(&table, static_cast<int>(owner), 0, elements * element);
  }
  return table;
}

// A window somewhere inside an allocation, with guard bytes around it.
class Window {
 public:
  static constexpr size_t kAround = 256;
  Window(vcollComm_t comm, size_t bytes, size_t shift) : comm_(comm), bytes_(bytes) {
    MUST(vcollMemAlloc(&memory_, bytes + 2 * kAround));
    data_ = static_cast<unsigned char*>(memory_) + kAround / 2 + shift;
    reset();
    MUST(vcollWindowRegister(comm, data_, bytes, &window_));
    void* pointer = nullptr;
    size_t size = 0;
    MUST(vcollWindowQuery(window_, &pointer, &size));
    EXPECT(pointer == data_ && size == bytes, "query says {} bytes", size);
  }
  ~Window() {
    EXPECT(vcollMemFree(memory_) == vcollInvalidUsage, "memory of a registered window was freed");
    EXPECT(vcollWindowDeregister(comm_, window_) == vcollSuccess, "{}", vcollGetLastError(nullptr));
    EXPECT(vcollMemFree(memory_) == vcollSuccess, "{}", vcollGetLastError(nullptr));
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  void reset() { std::memset(memory_, GuardedBuffer::kGuard, bytes_ + 2 * kAround); }
  unsigned char* data() const { return data_; }
  vcollWindow_t handle() const { return window_; }
  std::vector<unsigned char> image() const {
    const auto* begin = static_cast<const unsigned char*>(memory_);
    return {begin, begin + bytes_ + 2 * kAround};
  }
  // Address inside an image of this window's byte 0.
  unsigned char* inImage(std::vector<unsigned char>* image) const {
    return image->data() + (data_ - static_cast<unsigned char*>(memory_));
  }
  void expectImage(const std::vector<unsigned char>& expected, const std::string& what) const {
    if (std::memcmp(expected.data(), memory_, expected.size()) == 0) return;
    const auto differs = std::mismatch(expected.begin(), expected.end(), static_cast<const unsigned char*>(memory_));
    EXPECT(false, "{}: window byte {} is {:#x}, expected {:#x}", what, differs.second - data_, *differs.second,
           *differs.first);
  }

 private:
  vcollComm_t comm_;
  size_t bytes_;
  void* memory_ = nullptr;
  unsigned char* data_ = nullptr;
  vcollWindow_t window_ = nullptr;
};

bool mine(const vcollSegment_t& segment) { return segment.owner == worldRank; }

void checkAllGatherV(vcollPlan_t plan, const Table& table, const Window& window, size_t offset, uint64_t seed,
                     const std::string& what) {
  std::vector<unsigned char> expected = window.image();
  for (size_t i = 0; i < table.segments.size(); ++i) {
    const vcollSegment_t& segment = table.segments[i];
    if (mine(segment)) fillBytes(window.data() + offset + segment.offset, segment.bytes, seed, i);
    fillBytes(window.inImage(&expected) + offset + segment.offset, segment.bytes, seed, i);
  }
  MUST(vcollPlanAllGatherV(plan, window.handle(), offset, nullptr));
  window.expectImage(expected, "PlanAllGatherV " + what);
}

void checkReduceScatterV(vcollPlan_t plan, const Table& table, vcollDataType_t type, vcollRedOp_t op,
                         const Window& source, size_t sourceOffset, const Window& target, size_t targetOffset,
                         uint64_t seed, const std::string& what) {
  const size_t element = sizeOfType(type);
  for (size_t i = 0; i < table.segments.size(); ++i) {
    const vcollSegment_t& segment = table.segments[i];
    fillElements(source.data() + sourceOffset + segment.offset, type, op, 0, segment.bytes / element, seed + i,
                 static_cast<uint64_t>(worldRank));
  }
  const bool inPlace = &source == &target;
  const std::vector<unsigned char> sent = source.image();
  std::vector<unsigned char> expected = target.image();
  MUST(vcollPlanReduceScatterV(plan, source.handle(), sourceOffset, target.handle(), targetOffset, op, nullptr));
  for (size_t i = 0; i < table.segments.size(); ++i) {
    const vcollSegment_t& segment = table.segments[i];
    if (!mine(segment)) continue;
    fillReduced(target.inImage(&expected) + targetOffset + segment.offset,
                target.data() + targetOffset + segment.offset, type, op, 0, segment.bytes / element, seed + i,
                static_cast<size_t>(worldSize));
  }
  target.expectImage(expected, "PlanReduceScatterV " + what);
  if (!inPlace) source.expectImage(sent, "source of PlanReduceScatterV " + what);
}

void checkTable(vcollComm_t comm, const Table& table, vcollDataType_t type, const vcollPlanConfig_t* config,
                Random* random, const std::string& what) {
  const size_t element = sizeOfType(type);
  const bool reducible = type < vcollFloat8e4m3;
  vcollPlan_t plan = nullptr;
  MUST(vcollPlanCreate(comm, table.segments.data(), table.segments.size(), type, config, &plan));
  vcollPlanInfo_t info = VCOLL_PLAN_INFO_INITIALIZER;
  MUST(vcollPlanGetInfo(plan, &info));
  uint64_t digests[2] = {info.digest, ~info.digest};
  uint64_t lowest[2];
  MPI_Allreduce(digests, lowest, 2, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
  EXPECT(lowest[0] == info.digest && lowest[1] == ~info.digest, "digests differ");
  int paths[2] = {info.path, -info.path};
  int lowestPath[2];
  MPI_Allreduce(paths, lowestPath, 2, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  EXPECT(lowestPath[0] == info.path && lowestPath[1] == -info.path, "the ranks chose different paths");
  EXPECT(info.segments == table.segments.size() && info.nodes == nodesOfLayout(), "{} segments, {} nodes",
         info.segments, info.nodes);

  // The ranks' windows start at different addresses.
  const size_t shift = (static_cast<size_t>(worldRank) + 1) * element;
  const Window first(comm, table.extent + 4096, shift);
  const Window second(comm, table.extent + 4096, 2 * shift);
  for (int round = 0; round < 3; ++round) {
    const size_t offset = random->below(4096 / element) * element;
    checkAllGatherV(plan, table, first, offset, random->next(), what);
    if (!reducible) continue;
    const auto op = static_cast<vcollRedOp_t>(random->below(vcollNumOps));
    const std::string name = say("{} {} {}", typeName(type), opName(op), what);
    const size_t targetOffset = random->below(4096 / element) * element;
    checkReduceScatterV(plan, table, type, op, first, offset, second, targetOffset, random->next(), name);
    checkReduceScatterV(plan, table, type, op, second, offset, second, offset, random->next(), name + " in place");
  }
  // A destroyed plan leaves the communicator alone. Some are left to it.
  if (random->below(2) == 0) MUST(vcollPlanDestroy(plan));
}

void randomPlans(Random* random) {
  const WorldComm comm;
  const int plans = options.light ? 6 : 24;
  for (int i = 0; i < plans; ++i) {
    const auto type = static_cast<vcollDataType_t>(i % vcollNumTypes);
    const Table table = randomTable(random, sizeOfType(type));
    vcollPlanConfig_t config = VCOLL_PLAN_CONFIG_INITIALIZER;
    if (i % 3 != 0) {
      config.path = static_cast<int32_t>(random->below(vcollNumPaths));
      config.lanes = static_cast<int32_t>(1 + random->below(5));
      config.chunkBytes = random->below(2) == 0 ? 1024 + 16 * static_cast<int64_t>(random->below(64)) : 65536;
    }
    checkTable(comm.get(), table, type, i % 3 == 0 ? nullptr : &config, random,
               say("plan {} of {} segments (path {}, lanes {}, chunk {})", i, table.segments.size(), config.path,
                   config.lanes, config.chunkBytes));
  }
}

void namedPlans(Random* random) {
  const WorldComm comm;
  checkTable(comm.get(), ownersTable(2), vcollBfloat16, nullptr, random, "37 tensors");
  Table tensors;
  for (int i = 0; i < 64 * worldSize; ++i) append(&tensors, i % worldSize, 0, 4 * static_cast<size_t>(1 + i % 13));
  checkTable(comm.get(), tensors, vcollFloat32, nullptr, random, "64 small tensors a rank");
  Table pieces;
  for (int i = 0; i < 3 * worldSize; ++i) append(&pieces, i % worldSize, 0, static_cast<size_t>(11 + 97 * i));
  checkTable(comm.get(), pieces, vcollUint8, nullptr, random, "3 pieces a rank");
  Table big;
  for (int r = 0; r < worldSize; ++r)
    append(&big, r, 0, size_t{4} * (r % 3 == 0 ? 3 : 150001) * (options.light ? 1 : 3));
  checkTable(comm.get(), big, vcollFloat32, nullptr, random, "large and tiny");
  checkTable(comm.get(), Table(), vcollInt32, nullptr, random, "no segment");

  // Equal parts are seen as such.
  Table even;
  for (int r = 0; r < worldSize; ++r) append(&even, r, 16, 1000);
  vcollPlan_t plan = nullptr;
  MUST(vcollPlanCreate(comm.get(), even.segments.data(), even.segments.size(), vcollUint8, nullptr, &plan));
  vcollPlanInfo_t info = VCOLL_PLAN_INFO_INITIALIZER;
  MUST(vcollPlanGetInfo(plan, &info));
  EXPECT(info.even == 1, "equal parts are not even");
}

// A window that starts at an odd address.
void oddWindow(Random* random) {
  const WorldComm comm;
  Table table;
  for (int r = 0; r < worldSize; ++r) append(&table, r, 3, static_cast<size_t>(1001 + r));
  vcollPlan_t plan = nullptr;
  MUST(vcollPlanCreate(comm.get(), table.segments.data(), table.segments.size(), vcollUint8, nullptr, &plan));
  const Window window(comm.get(), table.extent, 7);
  checkAllGatherV(plan, table, window, 0, random->next(), "odd window");
  checkReduceScatterV(plan, table, vcollUint8, vcollMax, window, 0, window, 0, random->next(), "odd window");
}

// The same window filled again and again right after each call returned, with ranks at different speeds.
void reuse(Random* random) {
  const WorldComm comm;
  Table table;
  for (int r = 0; r < worldSize; ++r) append(&table, r, 8, static_cast<size_t>(4000 + 4000 * r));
  vcollPlan_t plan = nullptr;
  MUST(vcollPlanCreate(comm.get(), table.segments.data(), table.segments.size(), vcollInt32, nullptr, &plan));
  const Window first(comm.get(), table.extent, 0);
  const Window second(comm.get(), table.extent, 0);
  for (int i = 0; i < (options.light ? 30 : 150); ++i) {
    const uint64_t seed = random->next();
    if (mix(seed + static_cast<uint64_t>(worldRank)) % 16 == 0) sleepMs(1);
    if (i % 2 == 0) {
      checkAllGatherV(plan, table, first, 0, seed, say("call {}", i));
    } else {
      checkReduceScatterV(plan, table, vcollInt32, vcollSum, first, 0, second, 0, seed, say("call {}", i));
    }
  }
}

}  // namespace

void plansSuite() {
  Random random(options.seed + 1000);
  const auto run = [&random](const char* name, void (*body)(Random*)) {
    Random own(random.next());
    runCase(name, [&] { body(&own); });
  };
  run("plans.random", randomPlans);
  run("plans.named", namedPlans);
  run("plans.odd_window", oddWindow);
  run("plans.reuse", reuse);
}

}  // namespace suite
