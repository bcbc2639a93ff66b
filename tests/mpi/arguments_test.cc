// SPDX-License-Identifier: Apache-2.0
// Every bad argument of every entry point is vcollInvalidArgument, with its name and value in the text, and harms
// nobody.
#include <initializer_list>

#include "harness.h"
#include "suites.h"
#include "values.h"

namespace suite {

namespace {

void expectRefused(int line, vcollResult_t got, vcollResult_t wanted, std::initializer_list<const char*> words) {
  const std::string text = vcollGetLastError(nullptr);
  if (got != wanted) {
    fail(__FILE__, line, say("gave {} ({}), expected {}", vcollGetErrorString(got), text, vcollGetErrorString(wanted)));
    return;
  }
  for (const char* word : words) {
    if (text.find(word) == std::string::npos) fail(__FILE__, line, say("\"{}\" does not say \"{}\"", text, word));
  }
}
#define REFUSED(call, ...) expectRefused(__LINE__, (call), vcollInvalidArgument, {__VA_ARGS__})

// A value that the enumeration does not have; a cast would be undefined.
template <typename Enum>
Enum outside(int value) {
  Enum made;
  static_assert(sizeof made == sizeof value);
  std::memcpy(&made, &value, sizeof made);
  return made;
}

template <typename Handle>
Handle garbage() {
  static const uint64_t kNoHandle[4] = {};
  return reinterpret_cast<Handle>(const_cast<uint64_t*>(kNoHandle));
}

void library() {
  REFUSED(vcollGetVersion(nullptr), "version", "NULL");
  REFUSED(vcollGetUniqueId(nullptr), "id", "NULL");
  int version = 0;
  MUST(vcollGetVersion(&version));
  EXPECT(version == VCOLL_VERSION_CODE, "{}", version);
  EXPECT(vcollGetApiTable(VCOLL_VERSION_CODE + 1) == nullptr, "a table of a later version");
  const vcollApiTable_t* table = vcollGetApiTable(0);
  EXPECT(table != nullptr && table->size == sizeof *table && table->version == VCOLL_VERSION_CODE, "table");
  for (int code = -1; code <= vcollNumResults; ++code) {
    EXPECT(vcollGetErrorString(outside<vcollResult_t>(code)) != nullptr, "code {}", code);
  }
}

void initialization() {
  vcollComm_t comm = nullptr;
  vcollUniqueId id{};
  REFUSED(vcollCommInitRank(&comm, 2, id, 0), "id", "zero");
  for (char& byte : id.internal) byte = 'x';
  REFUSED(vcollCommInitRank(&comm, 2, id, 0), "id");
  REFUSED(vcollCommInitRank(nullptr, 1, id, 0), "comm", "NULL");
  REFUSED(vcollCommInitRank(&comm, 0, id, 0), "nranks", "0");
  REFUSED(vcollCommInitRank(&comm, -3, id, 0), "nranks", "-3");
  REFUSED(vcollCommInitRank(&comm, 2, id, 2), "rank", "2");
  REFUSED(vcollCommInitRank(&comm, 2, id, -1), "rank", "-1");
  REFUSED(vcollCommInitFromEnv(nullptr), "comm", "NULL");
  vcollConfig_t config = VCOLL_CONFIG_INITIALIZER;
  config.timeoutMs = 0;
  REFUSED(vcollCommInitRankConfig(&comm, 2, id, 0, &config), "timeoutMs", "0");
  config.timeoutMs = -7;
  REFUSED(vcollCommInitRankConfig(&comm, 2, id, 0, &config), "timeoutMs", "-7");
  config = VCOLL_CONFIG_INITIALIZER;
  config.check = 2;
  REFUSED(vcollCommInitRankConfig(&comm, 2, id, 0, &config), "check", "2");
  config = VCOLL_CONFIG_INITIALIZER;
  config.size = 4;
  REFUSED(vcollCommInitRankConfig(&comm, 2, id, 0, &config), "size", "4");
  config = VCOLL_CONFIG_INITIALIZER;
  config.magic = 0x1234;
  REFUSED(vcollCommInitRankConfig(&comm, 2, id, 0, &config), "magic", "0x1234");
  config = vcollConfig_t{};
  REFUSED(vcollCommInitRankConfig(&comm, 2, id, 0, &config), "size", "0");
  EXPECT(comm == nullptr, "a failed init left a handle");
}

void communicators(vcollComm_t comm) {
  int value = 0;
  int other = 0;
  vcollResult_t error = vcollSuccess;
  vcollComm_t made = nullptr;
  const std::string worldText = std::to_string(worldSize);
  for (const vcollComm_t bad : {vcollComm_t{nullptr}, garbage<vcollComm_t>()}) {
    REFUSED(vcollCommCount(bad, &value), "comm");
    REFUSED(vcollCommUserRank(bad, &value), "comm");
    REFUSED(vcollCommNodeCount(bad, &value), "comm");
    REFUSED(vcollCommRankNode(bad, 0, &value, &other), "comm");
    REFUSED(vcollCommRailCount(bad, &value), "comm");
    REFUSED(vcollCommSplit(bad, 0, 0, &made, nullptr), "comm");
    REFUSED(vcollCommFinalize(bad), "comm");
    REFUSED(vcollCommAbort(bad), "comm");
    REFUSED(vcollCommGetAsyncError(bad, &error), "comm");
  }
  REFUSED(vcollCommDestroy(garbage<vcollComm_t>()), "comm");
  MUST(vcollCommDestroy(nullptr));
  REFUSED(vcollCommCount(comm, nullptr), "count", "NULL");
  REFUSED(vcollCommUserRank(comm, nullptr), "rank", "NULL");
  REFUSED(vcollCommNodeCount(comm, nullptr), "nodes", "NULL");
  REFUSED(vcollCommRankNode(comm, 0, nullptr, &value), "node", "NULL");
  REFUSED(vcollCommRankNode(comm, 0, &value, nullptr), "localRank", "NULL");
  REFUSED(vcollCommRankNode(comm, -1, &value, &other), "rank", "-1");
  REFUSED(vcollCommRankNode(comm, worldSize, &value, &other), "rank", worldText.c_str());
  REFUSED(vcollCommRailCount(comm, nullptr), "rails", "NULL");
  REFUSED(vcollCommGetAsyncError(comm, nullptr), "asyncError", "NULL");
  REFUSED(vcollCommSplit(comm, 0, 0, nullptr, nullptr), "newcomm", "NULL");
  vcollConfig_t config = VCOLL_CONFIG_INITIALIZER;
  config.check = -1;
  REFUSED(vcollCommSplit(comm, 0, 0, &made, &config), "check", "-1");
}

void memory(vcollComm_t comm) {
  REFUSED(vcollMemAlloc(nullptr, 8), "ptr", "NULL");
  void* pointer = nullptr;
  REFUSED(vcollMemAlloc(&pointer, SIZE_MAX), "bytes");
  expectRefused(__LINE__, vcollMemAlloc(&pointer, size_t{1} << 60), vcollSystemError, {"vcollMemAlloc"});
  MUST(vcollMemFree(nullptr));
  int local = 0;
  REFUSED(vcollMemFree(&local), "ptr");
  MUST(vcollMemAlloc(&pointer, 1000));
  auto* bytes = static_cast<unsigned char*>(pointer);
  for (size_t i = 0; i < 1000; ++i) EXPECT(bytes[i] == 0, "byte {} of new memory is {}", i, bytes[i]);
  REFUSED(vcollMemFree(bytes + 16), "ptr");

  vcollWindow_t window = nullptr;
  REFUSED(vcollWindowRegister(nullptr, pointer, 100, &window), "comm");
  REFUSED(vcollWindowRegister(comm, nullptr, 100, &window), "ptr", "NULL");
  REFUSED(vcollWindowRegister(comm, pointer, 100, nullptr), "window", "NULL");
  REFUSED(vcollWindowRegister(comm, &local, 4, &window), "ptr", "bytes = 4");
  REFUSED(vcollWindowRegister(comm, bytes + 8, 4096, &window), "bytes = 4096");
  REFUSED(vcollWindowRegister(comm, pointer, SIZE_MAX, &window), "bytes");
  MUST(vcollWindowRegister(comm, bytes + 3, 900, &window));
  expectRefused(__LINE__, vcollMemFree(pointer), vcollInvalidUsage, {"ptr", "window"});
  REFUSED(vcollWindowDeregister(comm, garbage<vcollWindow_t>()), "window");
  REFUSED(vcollWindowDeregister(nullptr, window), "comm");
  REFUSED(vcollWindowQuery(nullptr, nullptr, nullptr), "window");
  MUST(vcollWindowQuery(window, nullptr, nullptr));
  vcollComm_t second = nullptr;
  MUST(vcollCommSplit(comm, 0, 0, &second, nullptr));
  REFUSED(vcollWindowDeregister(second, window), "window", "another communicator");
  MUST(vcollCommDestroy(second));
  MUST(vcollWindowDeregister(comm, nullptr));
  MUST(vcollWindowDeregister(comm, window));
  REFUSED(vcollWindowDeregister(comm, window), "window");
  REFUSED(vcollWindowQuery(window, nullptr, nullptr), "window");
  MUST(vcollMemFree(pointer));
  REFUSED(vcollMemFree(pointer), "ptr");
  // A window of no bytes is one.
  MUST(vcollMemAlloc(&pointer, 0));
  MUST(vcollWindowRegister(comm, pointer, 0, &window));
  MUST(vcollWindowDeregister(comm, window));
  MUST(vcollMemFree(pointer));
}

void streams() {
  REFUSED(vcollHostStreamCreate(nullptr), "stream", "NULL");
  MUST(vcollHostStreamDestroy(nullptr));
  REFUSED(vcollHostStreamSynchronize(nullptr), "stream");
  REFUSED(vcollHostStreamQuery(nullptr), "stream");
  REFUSED(vcollHostStreamSynchronize(garbage<vcollStream_t>()), "stream");
  REFUSED(vcollHostStreamQuery(garbage<vcollStream_t>()), "stream");
  REFUSED(vcollHostStreamDestroy(garbage<vcollStream_t>()), "stream");
  vcollStream_t stream = nullptr;
  MUST(vcollHostStreamCreate(&stream));
  MUST(vcollHostStreamQuery(stream));
  MUST(vcollHostStreamDestroy(stream));
  REFUSED(vcollHostStreamDestroy(stream), "stream");
}

void privateCalls(vcollComm_t comm) {
  const auto ranks = static_cast<size_t>(worldSize);
  const auto rank = static_cast<size_t>(worldRank);
  std::vector<int32_t> send(8 * ranks, 1);
  std::vector<int32_t> recv(8 * ranks, 1);
  std::vector<size_t> counts(ranks, 4);
  std::vector<size_t> displs;
  for (size_t r = 0; r < ranks; ++r) displs.push_back(6 * r);
  const auto gather = [&](const void* from, size_t count, void* to, const size_t* all, const size_t* at) {
    return vcollAllGatherV(from, count, to, all, at, vcollInt32, comm, nullptr);
  };
  const auto badType = outside<vcollDataType_t>(99);
  const auto negativeType = outside<vcollDataType_t>(-1);
  REFUSED(gather(send.data(), 4, recv.data(), nullptr, nullptr), "recvcounts", "NULL");
  REFUSED(gather(send.data(), 5, recv.data(), counts.data(), nullptr), "sendcount", "5");
  REFUSED(gather(nullptr, 4, recv.data(), counts.data(), nullptr), "sendbuf", "NULL");
  REFUSED(gather(send.data(), 4, nullptr, counts.data(), nullptr), "recvbuf", "NULL");
  REFUSED(vcollAllGatherV(send.data(), 4, recv.data(), counts.data(), nullptr, badType, comm, nullptr), "type", "99");
  REFUSED(vcollAllGatherV(send.data(), 4, recv.data(), counts.data(), nullptr, negativeType, comm, nullptr), "type",
          "-1");
  REFUSED(vcollAllGatherV(send.data(), 4, recv.data(), counts.data(), nullptr, vcollInt32, nullptr, nullptr), "comm");
  REFUSED(
      vcollAllGatherV(send.data(), 4, recv.data(), counts.data(), nullptr, vcollInt32, comm, garbage<vcollStream_t>()),
      "stream");
  std::vector<size_t> huge(ranks, SIZE_MAX / 2 + 1);
  REFUSED(gather(send.data(), huge[rank], recv.data(), huge.data(), nullptr), "recvcounts", "9223372036854775808");
  huge.assign(ranks, SIZE_MAX / 4);  // fits in elements, not in bytes
  REFUSED(gather(send.data(), huge[rank], recv.data(), huge.data(), nullptr), "recvcounts", "overflows");
  REFUSED(vcollReduceScatterV(send.data(), recv.data(), huge.data(), vcollInt32, vcollSum, comm, nullptr),
          "recvcounts");
  if (ranks > 1) {
    std::vector<size_t> at = displs;
    at[1] = at[0] + 3;
    REFUSED(gather(send.data(), 4, recv.data(), counts.data(), at.data()), "displs", "rank 0", "rank 1", "overlap");
    at[1] = SIZE_MAX - 1;
    REFUSED(gather(send.data(), 4, recv.data(), counts.data(), at.data()), "displs[1]", "18446744073709551614");
  }
  const auto reduce = [&](const void* from, void* to, const size_t* all, vcollDataType_t type, vcollRedOp_t op) {
    return vcollReduceScatterV(from, to, all, type, op, comm, nullptr);
  };
  REFUSED(reduce(send.data(), recv.data(), nullptr, vcollInt32, vcollSum), "recvcounts", "NULL");
  REFUSED(reduce(nullptr, recv.data(), counts.data(), vcollInt32, vcollSum), "sendbuf", "NULL");
  REFUSED(reduce(send.data(), nullptr, counts.data(), vcollInt32, vcollSum), "recvbuf", "NULL");
  REFUSED(reduce(send.data(), recv.data(), counts.data(), badType, vcollSum), "type", "99");
  REFUSED(reduce(send.data(), recv.data(), counts.data(), vcollInt32, outside<vcollRedOp_t>(5)), "op", "5");
  REFUSED(reduce(send.data(), recv.data(), counts.data(), vcollInt32, outside<vcollRedOp_t>(-2)), "op", "-2");
  REFUSED(vcollReduceScatterV(send.data(), recv.data(), counts.data(), vcollInt32, vcollSum, nullptr, nullptr), "comm");
  REFUSED(vcollReduceScatterV(send.data(), recv.data(), counts.data(), vcollInt32, vcollSum, comm,
                              garbage<vcollStream_t>()),
          "stream");
  // NULL is fine where the count is 0.
  const std::vector<size_t> none(ranks, 0);
  MUST(gather(nullptr, 0, nullptr, none.data(), nullptr));
  MUST(reduce(nullptr, nullptr, none.data(), vcollInt32, vcollSum));
}

void plans(vcollComm_t comm) {
  const std::string worldText = std::to_string(worldSize);
  vcollPlan_t plan = nullptr;
  const auto create = [&](std::vector<vcollSegment_t> segments, const vcollPlanConfig_t* config = nullptr) {
    return vcollPlanCreate(comm, segments.data(), segments.size(), vcollInt32, config, &plan);
  };
  const vcollSegment_t good = {0, 0, 0, 64};
  REFUSED(vcollPlanCreate(nullptr, &good, 1, vcollInt32, nullptr, &plan), "comm");
  REFUSED(vcollPlanCreate(comm, nullptr, 1, vcollInt32, nullptr, &plan), "segments", "NULL");
  REFUSED(vcollPlanCreate(comm, &good, 1, vcollInt32, nullptr, nullptr), "plan", "NULL");
  REFUSED(vcollPlanCreate(comm, &good, 1, outside<vcollDataType_t>(12), nullptr, &plan), "type", "12");
  REFUSED(vcollPlanCreate(comm, &good, SIZE_MAX, vcollInt32, nullptr, &plan), "nsegments", "18446744073709551615");
  REFUSED(create({good, {-1, 0, 64, 4}}), "segments[1].owner", "-1");
  REFUSED(create({{worldSize, 0, 64, 4}}), "segments[0].owner", worldText.c_str());
  REFUSED(create({{0, 7, 64, 4}}), "reserved", "7");
  REFUSED(create({{0, 0, UINT64_MAX - 3, 8}}), "segments[0]", "18446744073709551612");
  REFUSED(create({{0, 0, 0, UINT64_MAX - 3}}), "segments[0]", "18446744073709551612");
  REFUSED(create({{0, 0, 2, 4}}), "segments[0]", "offset 2");
  REFUSED(create({{0, 0, 4, 6}}), "segments[0]", "bytes 6");
  REFUSED(create({good, {0, 0, 60, 8}}), "segments[0]", "segments[1]", "60");
  const auto withConfig = [&](auto change) {
    vcollPlanConfig_t config = VCOLL_PLAN_CONFIG_INITIALIZER;
    change(&config);
    return create({good}, &config);
  };
  REFUSED(withConfig([](auto* c) { c->path = 3; }), "path", "3");
  REFUSED(withConfig([](auto* c) { c->path = -2; }), "path", "-2");
  REFUSED(withConfig([](auto* c) { c->lanes = 0; }), "lanes", "0");
  REFUSED(withConfig([](auto* c) { c->lanes = 17; }), "lanes", "17");
  REFUSED(withConfig([](auto* c) { c->chunkBytes = -16; }), "chunkBytes", "-16");
  REFUSED(withConfig([](auto* c) { c->chunkBytes = 8; }), "chunkBytes", "8");
  REFUSED(withConfig([](auto* c) { c->chunkBytes = 4100; }), "chunkBytes", "4100");
  REFUSED(withConfig([](auto* c) { c->size = 8; }), "size", "8");
  REFUSED(withConfig([](auto* c) { c->magic = 1; }), "magic", "0x1");
  EXPECT(plan == nullptr, "a failed creation left a handle");

  MUST(create({good}));
  vcollPlanInfo_t info = VCOLL_PLAN_INFO_INITIALIZER;
  REFUSED(vcollPlanGetInfo(nullptr, &info), "plan");
  REFUSED(vcollPlanGetInfo(plan, nullptr), "info", "NULL");
  info.size = 3;
  REFUSED(vcollPlanGetInfo(plan, &info), "size", "3");
  info.size = sizeof info;
  info.magic = 0;
  REFUSED(vcollPlanGetInfo(plan, &info), "magic");

  void* pointer = nullptr;
  MUST(vcollMemAlloc(&pointer, 128));
  vcollWindow_t window = nullptr;
  MUST(vcollWindowRegister(comm, pointer, 128, &window));
  vcollComm_t second = nullptr;
  MUST(vcollCommSplit(comm, 0, 0, &second, nullptr));
  vcollWindow_t foreign = nullptr;
  MUST(vcollWindowRegister(second, pointer, 128, &foreign));
  REFUSED(vcollPlanAllGatherV(nullptr, window, 0, nullptr), "plan");
  REFUSED(vcollPlanAllGatherV(plan, nullptr, 0, nullptr), "window");
  REFUSED(vcollPlanAllGatherV(plan, foreign, 0, nullptr), "window", "another communicator");
  REFUSED(vcollPlanAllGatherV(plan, window, 68, nullptr), "offset", "68");
  REFUSED(vcollPlanAllGatherV(plan, window, SIZE_MAX, nullptr), "offset", "18446744073709551615");
  REFUSED(vcollPlanAllGatherV(plan, window, 0, garbage<vcollStream_t>()), "stream");
  const auto reduce = [&](vcollWindow_t from, size_t fromAt, vcollWindow_t to, size_t toAt, vcollRedOp_t op) {
    return vcollPlanReduceScatterV(plan, from, fromAt, to, toAt, op, nullptr);
  };
  REFUSED(vcollPlanReduceScatterV(nullptr, window, 0, window, 0, vcollSum, nullptr), "plan");
  REFUSED(reduce(nullptr, 0, window, 0, vcollSum), "src");
  REFUSED(reduce(window, 0, nullptr, 0, vcollSum), "dst");
  REFUSED(reduce(window, 0, foreign, 0, vcollSum), "dst", "another communicator");
  REFUSED(reduce(window, 100, window, 0, vcollSum), "srcOffset", "100");
  REFUSED(reduce(window, 0, window, 129, vcollSum), "dstOffset", "129");
  REFUSED(reduce(window, 0, window, 0, vcollNumOps), "op", "5");
  MUST(reduce(window, 64, window, 64, vcollSum));
  REFUSED(vcollPlanDestroy(garbage<vcollPlan_t>()), "plan");
  MUST(vcollPlanDestroy(nullptr));
  MUST(vcollPlanDestroy(plan));
  REFUSED(vcollPlanDestroy(plan), "plan");
  REFUSED(vcollPlanAllGatherV(plan, window, 0, nullptr), "plan");
  MUST(vcollCommDestroy(second));
  REFUSED(vcollWindowDeregister(comm, foreign), "window");
  MUST(vcollWindowDeregister(comm, window));
  MUST(vcollMemFree(pointer));
}

// Structs of programs built against other headers: shorter ones end at a protected page, longer ones hold more.
void structSizes() {
  GuardedBuffer end;
  const size_t prefix = offsetof(vcollConfig_t, timeoutMs);
  vcollConfig_t config = VCOLL_CONFIG_INITIALIZER;
  config.size = prefix + sizeof config.timeoutMs;
  config.timeoutMs = 12345;
  end.reset(config.size, 0);
  std::memcpy(end.data(), &config, config.size);
  vcollComm_t comm = nullptr;
  MUST(vcollCommInitRankConfig(&comm, worldSize, sharedId(), worldRank,
                               reinterpret_cast<const vcollConfig_t*>(end.data())));
  expectUsable(comm);
  config.timeoutMs = 0;
  std::memcpy(end.data(), &config, config.size);
  vcollComm_t made = nullptr;
  REFUSED(vcollCommSplit(comm, 0, 0, &made, reinterpret_cast<const vcollConfig_t*>(end.data())), "timeoutMs");

  const vcollSegment_t segment = {0, 0, 0, 64};
  vcollPlanConfig_t planConfig = VCOLL_PLAN_CONFIG_INITIALIZER;
  planConfig.size = offsetof(vcollPlanConfig_t, lanes);
  planConfig.path = vcollPathStar;
  end.reset(planConfig.size, 0);
  std::memcpy(end.data(), &planConfig, planConfig.size);
  vcollPlan_t plan = nullptr;
  MUST(vcollPlanCreate(comm, &segment, 1, vcollUint8, reinterpret_cast<const vcollPlanConfig_t*>(end.data()), &plan));

  vcollPlanInfo_t info = VCOLL_PLAN_INFO_INITIALIZER;
  info.size = offsetof(vcollPlanInfo_t, nodes);
  end.reset(info.size, 0);
  std::memcpy(end.data(), &info, info.size);
  MUST(vcollPlanGetInfo(plan, reinterpret_cast<vcollPlanInfo_t*>(end.data())));
  std::memcpy(&info, end.data(), info.size);
  EXPECT(info.path == vcollPathStar && info.bytes == 0, "path {}, bytes {}", info.path, info.bytes);

  struct {
    vcollPlanInfo_t known;
    uint64_t later[4];
  } longer = {VCOLL_PLAN_INFO_INITIALIZER, {1, 2, 3, 4}};
  longer.known.size = sizeof longer;
  MUST(vcollPlanGetInfo(plan, &longer.known));
  EXPECT(longer.known.bytes == 64 && longer.known.size == sizeof longer, "bytes {}", longer.known.bytes);
  EXPECT(longer.later[0] == 1 && longer.later[3] == 4, "fields of a later version were written");
  struct {
    vcollConfig_t known;
    uint64_t later[4];
  } longConfig = {VCOLL_CONFIG_INITIALIZER, {~0ull, ~0ull, ~0ull, ~0ull}};
  longConfig.known.size = sizeof longConfig;
  MUST(vcollCommSplit(comm, 0, 0, &made, &longConfig.known));
  expectUsable(made);
  MUST(vcollCommDestroy(made));
  MUST(vcollCommDestroy(comm));
  REFUSED(vcollCommDestroy(comm), "comm");
  REFUSED(vcollPlanDestroy(plan), "plan");
}

}  // namespace

void argumentsSuite() {
  runCase("arguments.library", library);
  runCase("arguments.init", initialization);
  runCase("arguments.streams", streams);
  runCase("arguments.calls", [] {
    const WorldComm comm;
    for (const auto body : {communicators, memory, privateCalls, plans}) {
      body(comm.get());
      expectUsable(comm.get());
    }
  });
  runCase("arguments.structs", structSizes);
}

}  // namespace suite
