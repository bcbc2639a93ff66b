// SPDX-License-Identifier: Apache-2.0
// Ranks that disagree get the same vcollMismatch with the same text, soon, and the communicator stays in error.
#include <cstdlib>
#include <initializer_list>

#include "harness.h"
#include "suites.h"

namespace suite {

namespace {

bool odd() { return worldRank == worldSize - 1; }

// Texts start with the entry point's name, which may be what differs.
std::string withoutCall(const std::string& text) {
  const size_t colon = text.find(": ");
  return text.rfind("vcoll", 0) == 0 && colon != std::string::npos ? text.substr(colon + 2) : text;
}

void expectSameVerdict(vcollResult_t result, const std::string& text, double seconds,
                       std::initializer_list<const char*> words) {
  EXPECT(result == vcollMismatch, "{}: {}", vcollGetErrorString(result), text);
  EXPECT(seconds < 5, "took {} s", seconds);
  const std::vector<std::string> all = gatherTexts(withoutCall(text));
  for (size_t r = 0; r < all.size(); ++r)
    EXPECT(all[r] == all[0], "rank {} says \"{}\", rank 0 \"{}\"", r, all[r], all[0]);
  for (const char* word : words)
    EXPECT(all[0].find(word) != std::string::npos, "\"{}\" does not say \"{}\"", all[0], word);
  if (worldRank == 0) std::printf("  %s\n", all[0].c_str());
}

void disagree(const char* name, std::initializer_list<const char*> words,
              const std::function<vcollResult_t(vcollComm_t)>& call) {
  runCase(name, [&] {
    const WorldComm comm;
    expectUsable(comm.get());
    double start = now();
    const vcollResult_t result = call(comm.get());
    expectSameVerdict(result, vcollGetLastError(comm.get()), now() - start, words);
    start = now();
    const std::vector<size_t> counts(static_cast<size_t>(worldSize), 1);
    std::vector<int> all(counts.size());
    const vcollResult_t later =
        vcollAllGatherV(&worldRank, 1, all.data(), counts.data(), nullptr, vcollInt32, comm.get(), nullptr);
    EXPECT(later == vcollMismatch && now() - start < 0.5, "a later call gave {}", vcollGetErrorString(later));
    vcollResult_t state = vcollSuccess;
    MUST(vcollCommGetAsyncError(comm.get(), &state));
    EXPECT(state == vcollMismatch, "{}", vcollGetErrorString(state));
  });
}

struct Buffers {
  std::vector<double> send = std::vector<double>(4096, 1);
  std::vector<double> recv = std::vector<double>(4096, 0);
};

vcollResult_t gather(vcollComm_t comm, size_t ownCount, size_t oddCount, vcollDataType_t type) {
  Buffers buffers;
  std::vector<size_t> counts(static_cast<size_t>(worldSize), ownCount);
  counts.back() = oddCount;
  return vcollAllGatherV(buffers.send.data(), counts[static_cast<size_t>(worldRank)], buffers.recv.data(),
                         counts.data(), nullptr, type, comm, nullptr);
}

vcollResult_t reduce(vcollComm_t comm, size_t count, vcollDataType_t type, vcollRedOp_t op) {
  Buffers buffers;
  const std::vector<size_t> counts(static_cast<size_t>(worldSize), count);
  return vcollReduceScatterV(buffers.send.data(), buffers.recv.data(), counts.data(), type, op, comm, nullptr);
}

vcollResult_t createPlan(vcollComm_t comm, const std::vector<vcollSegment_t>& segments, vcollPlan_t* plan,
                         const vcollPlanConfig_t* config = nullptr) {
  return vcollPlanCreate(comm, segments.data(), segments.size(), vcollInt32, config, plan);
}

}  // namespace

void mismatchSuite() {
  disagree("mismatch.padded_counts", {"recvcounts", "10", "16"},
           [](vcollComm_t comm) { return gather(comm, 10, odd() ? 16 : 10, vcollInt32); });
  disagree("mismatch.even_counts", {"recvcounts", "10", "11"}, [](vcollComm_t comm) {
    return odd() ? gather(comm, 11, 11, vcollInt32) : gather(comm, 10, 10, vcollInt32);
  });
  disagree("mismatch.type", {"type", "int32", "float"},
           [](vcollComm_t comm) { return gather(comm, 10, 10, odd() ? vcollFloat32 : vcollInt32); });
  disagree("mismatch.op", {"op", "sum", "max"},
           [](vcollComm_t comm) { return reduce(comm, 10, vcollInt32, odd() ? vcollMax : vcollSum); });
  disagree("mismatch.op_of_known_shape", {"op", "min", "prod", "call #"}, [](vcollComm_t comm) {
    MUST(reduce(comm, 10, vcollInt32, vcollSum));
    return reduce(comm, 10, vcollInt32, odd() ? vcollProd : vcollMin);
  });
  disagree("mismatch.call", {"AllGatherV", "ReduceScatterV"}, [](vcollComm_t comm) {
    return odd() ? gather(comm, 10, 10, vcollInt32) : reduce(comm, 10, vcollInt32, vcollSum);
  });
  disagree("mismatch.call_of_known_shapes", {"AllGatherV", "ReduceScatterV", "call #"}, [](vcollComm_t comm) {
    MUST(gather(comm, 10, 10, vcollInt32));
    MUST(reduce(comm, 10, vcollInt32, vcollSum));
    return odd() ? gather(comm, 10, 10, vcollInt32) : reduce(comm, 10, vcollInt32, vcollSum);
  });
  disagree("mismatch.one_finalizes", {"CommFinalize", "AllGatherV"},
           [](vcollComm_t comm) { return odd() ? vcollCommFinalize(comm) : gather(comm, 12, 12, vcollInt32); });
  disagree("mismatch.plan_bytes", {"segment", "bytes", "64", "68"}, [](vcollComm_t comm) {
    vcollPlan_t plan = nullptr;
    return createPlan(comm, {{0, 0, 0, 32}, {0, 0, 100, odd() ? 68u : 64u}}, &plan);
  });
  disagree("mismatch.plan_segments", {"segments", "1", "2"}, [](vcollComm_t comm) {
    vcollPlan_t plan = nullptr;
    return odd() ? createPlan(comm, {{0, 0, 0, 32}}, &plan) : createPlan(comm, {{0, 0, 0, 32}, {0, 0, 32, 32}}, &plan);
  });
  disagree("mismatch.plan_lanes", {"lanes", "1", "3"}, [](vcollComm_t comm) {
    vcollPlan_t plan = nullptr;
    vcollPlanConfig_t config = VCOLL_PLAN_CONFIG_INITIALIZER;
    config.lanes = odd() ? 3 : 1;
    return createPlan(comm, {{0, 0, 0, 32}}, &plan, &config);
  });
  disagree("mismatch.window_bytes", {"bytes", "1000", "1004"}, [](vcollComm_t comm) {
    void* memory = nullptr;
    MUST(vcollMemAlloc(&memory, 4096));
    vcollWindow_t window = nullptr;
    const vcollResult_t result = vcollWindowRegister(comm, memory, odd() ? 1004 : 1000, &window);
    EXPECT(vcollMemFree(memory) == vcollSuccess, "{}", vcollGetLastError(nullptr));
    return result;
  });
  disagree("mismatch.plan_called", {"call #"}, [](vcollComm_t comm) {
    void* memory = nullptr;
    MUST(vcollMemAlloc(&memory, 65536));
    vcollWindow_t window = nullptr;
    MUST(vcollWindowRegister(comm, memory, 65536, &window));
    vcollPlan_t plans[2];
    std::vector<vcollSegment_t> segments;
    for (int r = 0; r < worldSize; ++r) segments.push_back({r, 0, 256 * static_cast<uint64_t>(r), 128});
    MUST(createPlan(comm, segments, &plans[0]));
    for (vcollSegment_t& segment : segments) segment.bytes = 64;
    MUST(createPlan(comm, segments, &plans[1]));
    const vcollResult_t result = vcollPlanAllGatherV(plans[odd() ? 1 : 0], window, 0, nullptr);
    const std::string text = vcollGetLastError(comm);
    MUST(vcollWindowDeregister(comm, window));
    MUST(vcollMemFree(memory));
    EXPECT(text == vcollGetLastError(comm), "the communicator's error text changed: {}", vcollGetLastError(comm));
    return result;
  });
}

// VCOLL_CHUNK_BYTES differs: found by init, on every rank.
void settingsSuite() {
  if (odd()) setenv("VCOLL_CHUNK_BYTES", "2048", 1);
  runCase("settings.chunk_bytes", [] {
    const vcollUniqueId id = sharedId();
    vcollComm_t comm = nullptr;
    const double start = now();
    const vcollResult_t result = vcollCommInitRank(&comm, worldSize, id, worldRank);
    expectSameVerdict(result, vcollGetLastError(nullptr), now() - start, {"VCOLL_CHUNK_BYTES", "2048", "65536"});
    EXPECT(comm == nullptr, "a failed init left a handle");
  });
}

}  // namespace suite
