// SPDX-License-Identifier: Apache-2.0
// Host streams: order, queries, several streams and communicators, errors of the work.
#include "harness.h"
#include "suites.h"
#include "values.h"

namespace suite {

namespace {

class Stream {
 public:
  Stream() { MUST(vcollHostStreamCreate(&stream_)); }
  ~Stream() { EXPECT(vcollHostStreamDestroy(stream_) == vcollSuccess, "{}", vcollGetLastError(nullptr)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  vcollStream_t get() const { return stream_; }
  void synchronize() const { MUST(vcollHostStreamSynchronize(stream_)); }

 private:
  vcollStream_t stream_ = nullptr;
};

size_t ranks() { return static_cast<size_t>(worldSize); }

// Puts a gather of `value` on a stream. The arrays that are passed end with this call.
void gatherOn(vcollComm_t comm, vcollStream_t stream, const int32_t* value, int32_t* all) {
  std::vector<size_t> counts(ranks(), 1);
  std::vector<size_t> places;
  for (size_t r = 0; r < ranks(); ++r) places.push_back(r);
  MUST(vcollAllGatherV(value, 1, all, counts.data(), places.data(), vcollInt32, comm, stream));
  counts.assign(counts.size(), 1u << 20);
  places.assign(places.size(), 0);
}

// Each call reads what the one before wrote.
void order() {
  const WorldComm comm;
  const Stream stream;
  constexpr int kSteps = 50;
  std::vector<int32_t> all(ranks());
  int32_t value = worldRank;
  std::vector<size_t> counts(ranks(), 1);
  for (int step = 0; step < kSteps; ++step) {
    gatherOn(comm.get(), stream.get(), &value, all.data());
    // The sum of everybody's copies of element `rank`: value * ranks.
    MUST(vcollReduceScatterV(all.data(), &value, counts.data(), vcollInt32, vcollSum, comm.get(), stream.get()));
  }
  stream.synchronize();
  uint32_t expected = static_cast<uint32_t>(worldRank);
  for (int step = 0; step < kSteps; ++step) expected *= static_cast<uint32_t>(worldSize);
  EXPECT(static_cast<uint32_t>(value) == expected, "{} instead of {}", value, static_cast<int32_t>(expected));
}

void query() {
  const WorldComm comm;
  const Stream stream;
  const int32_t value = worldRank;
  std::vector<int32_t> all(ranks(), -1);
  EXPECT(vcollHostStreamQuery(stream.get()) == vcollSuccess, "an empty stream is busy");
  if (worldRank == 0) {
    const double start = now();
    gatherOn(comm.get(), stream.get(), &value, all.data());
    EXPECT(now() - start < 1, "an asynchronous call took {} s", now() - start);
    if (worldSize > 1) {
      EXPECT(vcollHostStreamQuery(stream.get()) == vcollInProgress, "done before the others came");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    while (vcollHostStreamQuery(stream.get()) == vcollInProgress) sleepMs(1);
  } else {
    MPI_Barrier(MPI_COMM_WORLD);
    gatherOn(comm.get(), stream.get(), &value, all.data());
  }
  stream.synchronize();
  for (size_t r = 0; r < ranks(); ++r) EXPECT(all[r] == static_cast<int32_t>(r), "element {} is {}", r, all[r]);
}

// Work of one communicator on two streams and on none runs in the order of the calls.
void twoStreams() {
  const WorldComm comm;
  const Stream first;
  const Stream second;
  constexpr int kCalls = 60;
  std::vector<std::vector<int32_t>> all(kCalls, std::vector<int32_t>(ranks(), -1));
  std::vector<int32_t> values(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    values[static_cast<size_t>(i)] = 1000 * worldRank + i;
    const vcollStream_t stream = i % 3 == 0 ? first.get() : i % 3 == 1 ? second.get() : nullptr;
    gatherOn(comm.get(), stream, &values[static_cast<size_t>(i)], all[static_cast<size_t>(i)].data());
  }
  first.synchronize();
  second.synchronize();
  for (int i = 0; i < kCalls; ++i) {
    for (size_t r = 0; r < ranks(); ++r) {
      const int32_t got = all[static_cast<size_t>(i)][r];
      EXPECT(got == 1000 * static_cast<int32_t>(r) + i, "call {} element {} is {}", i, r, got);
    }
  }
}

// Communicators are independent: each rank may put work on them in another order.
void severalComms() {
  constexpr size_t kComms = 3;
  vcollComm_t comms[kComms];
  for (auto& comm : comms) comm = makeComm();
  Stream streams[kComms];
  std::vector<int32_t> all(kComms * ranks(), -1);
  const int32_t value = 7 * worldRank + 1;
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < kComms; ++i) {
      const size_t which = (i + static_cast<size_t>(worldRank)) % kComms;
      gatherOn(comms[which], streams[which].get(), &value, all.data() + which * ranks());
    }
  }
  for (const Stream& stream : streams) stream.synchronize();
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT(all[i] == 7 * static_cast<int32_t>(i % ranks()) + 1, "element {} is {}", i, all[i]);
  }
  for (const auto comm : comms) MUST(vcollCommDestroy(comm));
}

// Plan calls on a stream; destroy waits for the work.
void plansOnStreams() {
  const WorldComm comm;
  std::vector<vcollSegment_t> segments;
  for (int r = 0; r < worldSize; ++r) segments.push_back({r, 0, 4096 * static_cast<uint64_t>(r), 4000});
  const size_t bytes = 4096 * ranks();
  vcollPlan_t plan = nullptr;
  MUST(vcollPlanCreate(comm.get(), segments.data(), segments.size(), vcollInt32, nullptr, &plan));
  void* memory = nullptr;
  MUST(vcollMemAlloc(&memory, bytes));
  vcollWindow_t window = nullptr;
  MUST(vcollWindowRegister(comm.get(), memory, bytes, &window));
  auto* words = static_cast<int32_t*>(memory);
  for (size_t i = 0; i < 1000; ++i) words[1024 * static_cast<size_t>(worldRank) + i] = worldRank + 1;
  {
    const Stream stream;
    MUST(vcollPlanAllGatherV(plan, window, 0, stream.get()));
    // Every rank now holds r + 1 in segment r: the sum is ranks * (r + 1).
    MUST(vcollPlanReduceScatterV(plan, window, 0, window, 0, vcollSum, stream.get()));
  }
  for (size_t i = 0; i < 1000; ++i) {
    const int32_t got = words[1024 * static_cast<size_t>(worldRank) + i];
    EXPECT(got == worldSize * (worldRank + 1), "element {} is {}", i, got);
  }
  MUST(vcollWindowDeregister(comm.get(), window));
  MUST(vcollMemFree(memory));
}

// An error of the work is found by synchronize once, by later calls and by vcollCommGetAsyncError.
void errors() {
  const WorldComm comm;
  const Stream stream;
  std::vector<int32_t> all(ranks());
  const int32_t value = 1;
  if (worldRank > 0) {
    MPI_Barrier(MPI_COMM_WORLD);
    sleepMs(100);
    MUST(vcollCommAbort(comm.get()));
  } else {
    gatherOn(comm.get(), stream.get(), &value, all.data());
    MPI_Barrier(MPI_COMM_WORLD);
    if (worldSize == 1) MUST(vcollHostStreamSynchronize(stream.get()));
  }
  if (worldSize == 1) return;
  vcollResult_t state = vcollSuccess;
  const double start = now();
  while (state == vcollSuccess && now() - start < 5) {
    MUST(vcollCommGetAsyncError(comm.get(), &state));
    sleepMs(1);
  }
  EXPECT(state == vcollAborted, "{} after {} s", vcollGetErrorString(state), now() - start);
  if (worldRank == 0) {
    EXPECT(vcollHostStreamSynchronize(stream.get()) == vcollAborted, "{}", vcollGetLastError(nullptr));
    EXPECT(vcollHostStreamSynchronize(stream.get()) == vcollSuccess, "the error is reported twice");
  }
  std::vector<size_t> counts(ranks(), 1);
  const vcollResult_t later =
      vcollAllGatherV(&value, 1, all.data(), counts.data(), nullptr, vcollInt32, comm.get(), nullptr);
  EXPECT(later == vcollAborted, "{}", vcollGetErrorString(later));
}

}  // namespace

void streamsSuite() {
  runCase("streams.order", order);
  runCase("streams.query", query);
  runCase("streams.two_streams", twoStreams);
  runCase("streams.several_comms", severalComms);
  runCase("streams.plans", plansOnStreams);
  runCase("streams.errors", errors);
}

}  // namespace suite
