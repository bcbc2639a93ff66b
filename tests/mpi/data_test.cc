// SPDX-License-Identifier: Apache-2.0
// Calls on private buffers.
#include <numeric>

#include "private_calls.h"
#include "suites.h"

namespace suite {

namespace {

std::vector<size_t> randomCounts(Random* random, size_t ranks, size_t limit) {
  std::vector<size_t> counts(ranks);
  for (size_t& count : counts) count = random->below(4) == 0 ? 0 : random->below(limit);
  return counts;
}

// Places in random order with random gaps.
std::vector<size_t> randomPlaces(Random* random, const std::vector<size_t>& counts) {
  std::vector<size_t> order(counts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  random->shuffle(&order);
  std::vector<size_t> places(counts.size());
  size_t next = random->below(5);
  for (const size_t r : order) {
    places[r] = next;
    next += counts[r] + random->below(9);
  }
  return places;
}

void allTypes(PrivateCalls* calls, Random* random) {
  for (int type = 0; type < vcollNumTypes; ++type) {
    for (const bool inPlace : {false, true}) {
      Shape shape;
      shape.type = static_cast<vcollDataType_t>(type);
      shape.counts = randomCounts(random, calls->ranks(), 400);
      shape.inPlace = inPlace;
      calls->allGatherV(shape, random->next(), true);
      // displs may differ between ranks: each draws its own.
      const uint64_t seed = random->next();
      Random own(seed + calls->rank());
      shape.displs = randomPlaces(&own, shape.counts);
      calls->allGatherV(shape, seed, true);
    }
  }
}

void allReductions(PrivateCalls* calls, Random* random) {
  for (const vcollDataType_t type : kReducible) {
    for (int op = 0; op < vcollNumOps; ++op) {
      for (const bool inPlace : {false, true}) {
        Shape shape;
        shape.type = type;
        shape.op = static_cast<vcollRedOp_t>(op);
        shape.counts = randomCounts(random, calls->ranks(), 300);
        shape.inPlace = inPlace;
        // Open MPI has no such types and operation, and its vector code saturates sums of 8-bit integers.
        const bool mpiKnows = op != vcollAvg && type != vcollFloat16 && type != vcollBfloat16 &&
                              !(op == vcollSum && sizeOfType(type) == 1);
        calls->reduceScatterV(shape, random->next(), mpiKnows);
      }
    }
  }
}

// Buffers start at every multiple of the element size and end, also, at a protected page.
void alignment(PrivateCalls* calls, Random* random) {
  for (size_t count = 1; count <= 17; ++count) {
    for (int type = 0; type < vcollNumTypes; ++type) {
      if (options.light && (count + static_cast<size_t>(type)) % 6 != 0) continue;
      Shape shape;
      shape.type = static_cast<vcollDataType_t>(type);
      for (size_t r = 0; r < calls->ranks(); ++r) shape.counts.push_back((count + 5 * r) % 17 + 1);
      for (const size_t tail : {size_t{0}, size_t{1}, size_t{3}}) {
        shape.tailElements = tail;
        shape.inPlace = tail == 1;
        calls->allGatherV(shape, random->next());
        if (shape.type < vcollFloat8e4m3) calls->reduceScatterV(shape, random->next());
      }
    }
  }
}

void zeroCounts(PrivateCalls* calls, Random* random) {
  const size_t ranks = calls->ranks();
  std::vector<size_t> full(ranks);
  for (size_t r = 0; r < ranks; ++r) full[r] = 5 + 7 * r;
  for (size_t a = 0; a < ranks; ++a) {
    for (size_t b = a; b < ranks; ++b) {
      if (options.light && (a + b) % 5 != 0) continue;
      std::vector<size_t> counts = full;
      counts[a] = counts[b] = 0;
      calls->both(counts, random->next());
    }
    std::vector<size_t> oneHot(ranks, 0);
    oneHot[a] = 3001;
    calls->both(oneHot, random->next());
  }
  calls->both(std::vector<size_t>(ranks, 0), random->next());
}

void rotatingZero(PrivateCalls* calls, Random* random) {
  for (size_t i = 0; i < 100; ++i) {
    std::vector<size_t> counts(calls->ranks());
    for (size_t r = 0; r < counts.size(); ++r) counts[r] = (r + i) % counts.size() == 0 ? 0 : 5 + 4 * r;
    Shape shape;
    shape.type = vcollInt32;
    shape.counts = counts;
    calls->reduceScatterV(shape, random->next());
  }
}

// Larger than the staging memory; parts so different that rounding them to rounds matters.
void manyRounds(PrivateCalls* calls, Random* random) {
  const size_t scale = options.light ? 1 : 4;
  for (int variant = 0; variant < 3; ++variant) {
    Shape shape;
    shape.type = variant == 0 ? vcollUint8 : variant == 1 ? vcollBfloat16 : vcollFloat32;
    for (size_t r = 0; r < calls->ranks(); ++r) {
      static constexpr size_t kParts[] = {1, 1500007, 0, 77777, 400001};
      shape.counts.push_back(kParts[(r + static_cast<size_t>(variant)) % 5] * (r == 0 ? scale : 1));
    }
    shape.tailElements = static_cast<size_t>(variant);
    shape.inPlace = variant == 1;
    calls->allGatherV(shape, random->next());
    calls->reduceScatterV(shape, random->next());
  }
}

// Calls of different shapes one after the other, with no other synchronization: who is late must still get the right
// bytes.
void backToBack(PrivateCalls* calls, Random* random) {
  for (int i = 0; i < (options.light ? 20 : 100); ++i) {
    Shape shape;
    shape.type = vcollInt32;
    shape.counts = randomCounts(random, calls->ranks(), i % 10 == 9 ? 60000 : 500);
    const uint64_t seed = random->next();
    if (random->below(2) == 0) {
      calls->allGatherV(shape, seed);
    } else {
      calls->reduceScatterV(shape, seed);
    }
    if (mix(seed + calls->rank()) % 16 == 0) sleepMs(1);
  }
}

void refusedTypes(PrivateCalls* calls, vcollComm_t comm) {
  const std::vector<size_t> counts(calls->ranks(), 4);
  std::vector<unsigned char> send(4 * calls->ranks());
  unsigned char recv[4];
  for (const vcollDataType_t type : {vcollFloat8e4m3, vcollFloat8e5m2}) {
    const vcollResult_t result = vcollReduceScatterV(send.data(), recv, counts.data(), type, vcollSum, comm, nullptr);
    EXPECT(result == vcollUnsupported, "{}", vcollGetErrorString(result));
    EXPECT(std::string(vcollGetLastError(nullptr)).find("type") != std::string::npos, "{}", vcollGetLastError(nullptr));
  }
  expectUsable(comm);
}

}  // namespace

void dataSuite() {
  Random random(options.seed);
  const auto onFreshComm = [&random](const char* name, void (*body)(PrivateCalls*, Random*)) {
    Random own(random.next());
    runCase(name, [&] {
      const WorldComm comm;
      PrivateCalls calls(comm.get());
      body(&calls, &own);
    });
  };
  onFreshComm("data.types", allTypes);
  onFreshComm("data.reductions", allReductions);
  onFreshComm("data.alignment", alignment);
  onFreshComm("data.zero", zeroCounts);
  onFreshComm("data.rotating_zero", rotatingZero);
  onFreshComm("data.rounds", manyRounds);
  onFreshComm("data.back_to_back", backToBack);
  runCase("data.float8", [] {
    const WorldComm comm;
    PrivateCalls calls(comm.get());
    refusedTypes(&calls, comm.get());
  });
}

}  // namespace suite
