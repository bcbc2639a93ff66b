// SPDX-License-Identifier: Apache-2.0
// vcoll.hpp as its users meet it: two ranks, each a thread, through every wrapper.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vcoll/vcoll.hpp>
#include <vector>

namespace {

static_assert(std::is_nothrow_move_constructible_v<vcoll::Comm> && !std::is_copy_constructible_v<vcoll::Comm>);
static_assert(std::is_move_constructible_v<vcoll::Plan> && !std::is_copy_constructible_v<vcoll::Plan>);
static_assert(std::is_move_constructible_v<vcoll::Window> && !std::is_copy_constructible_v<vcoll::Window>);
static_assert(std::is_move_constructible_v<vcoll::Memory> && !std::is_copy_constructible_v<vcoll::Memory>);
static_assert(std::is_move_constructible_v<vcoll::Stream> && !std::is_copy_constructible_v<vcoll::Stream>);

constexpr int kRanks = 2;
std::atomic<int> failures{0};

void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "FAILED: %s\n", what);
  ++failures;
}
#define EXPECT(condition) expect(condition, #condition)

template <typename Call>
vcollResult_t codeOf(Call call, const char* inText) {
  try {
    call();
  } catch (const vcoll::Error& error) {
    EXPECT(std::string(error.what()).find(inText) != std::string::npos);
    return error.code();
  }
  return vcollSuccess;
}

void windows(vcoll::Comm& comm) {
  const int rank = comm.rank();
  vcoll::Memory memory(4096);
  vcoll::Window window(comm, memory);
  // Rank 0 owns one number, rank 1 two, behind a gap.
  vcoll::Plan made(comm, {{0, 0, 0, 4}, {1, 0, 16, 8}}, vcollInt32);
  vcoll::Plan plan = std::move(made);
  EXPECT(made.native() == nullptr);
  EXPECT(plan.info().segments == 2 && plan.info().bytes == 12);

  int32_t* data = memory.as<int32_t>();
  if (rank == 0) data[0] = 7;
  if (rank == 1) data[4] = 8, data[5] = 9;
  vcoll::Stream stream;
  plan.allGatherV(window, 0, stream.native());
  stream.synchronize();
  EXPECT(stream.done());
  EXPECT(data[0] == 7 && data[4] == 8 && data[5] == 9 && data[1] == 0);

  plan.reduceScatterV(window, 0, window, 0, vcollSum);
  if (rank == 0) EXPECT(data[0] == 14 && data[4] == 8);
  if (rank == 1) EXPECT(data[0] == 7 && data[4] == 16 && data[5] == 18);
}

void anyMemory(vcoll::Comm& comm) {
  const int32_t rank = comm.rank();
  const std::vector<size_t> counts = {1, 2};
  const int32_t send[2] = {10 + rank, 20 + rank};
  int32_t all[3] = {};
  comm.allGatherV(send, counts[static_cast<size_t>(rank)], all, counts, nullptr, vcollInt32);
  EXPECT(all[0] == 10 && all[1] == 11 && all[2] == 21);
  int32_t mine[2] = {};
  comm.reduceScatterV(all, mine, counts, vcollInt32, vcollSum);
  EXPECT(rank == 0 ? mine[0] == 20 && mine[1] == 0 : mine[0] == 22 && mine[1] == 42);

  const std::vector<size_t> shortCounts = {1};
  EXPECT(codeOf([&] { comm.allGatherV(send, 1, all, shortCounts, nullptr, vcollInt32); }, "recvcounts") ==
         vcollInvalidArgument);
  const auto noType = static_cast<vcollDataType_t>(99);
  EXPECT(codeOf([&] { comm.allGatherV(send, 1, all, counts, nullptr, noType); }, "99") == vcollInvalidArgument);
  comm.checkAsync();  // an invalid argument leaves the communicator usable
}

// One node: each owner reads its own versions.
void publishing(vcoll::Comm& comm) {
  const int rank = comm.rank();
  vcoll::Memory memory(256);
  vcoll::Window window(comm, memory);
  vcollPublishConfig_t config = VCOLL_PUBLISH_CONFIG_INITIALIZER;
  config.copies = 2;
  config.copyStride = 128;
  vcoll::PublishStream stream(comm, window, {{7, 0, 0, 0, 64}, {8, 1, 0, 64, 64}}, &config);
  const uint64_t own = rank == 0 ? 7 : 8;
  EXPECT(stream.version(own) == VCOLL_NO_STEP && stream.leader(own, 0) == rank);
  for (const uint64_t step : {3u, 4u}) {
    stream.begin(step);
    *stream.address<uint64_t>(own, step) = step;
    EXPECT(!stream.ready(own, step));
    stream.push(own);
    stream.wait(own, step);
    stream.waitAll(step);
    stream.end(step);
    const vcoll::PublishStream::Lease lease(stream, own, step);
    EXPECT(*static_cast<const uint64_t*>(lease.data()) == step && stream.version(own) == step);
  }
  EXPECT(codeOf([&] { stream.begin(4); }, "does not grow") == vcollInvalidArgument);
}

void runRank(const vcollUniqueId& id, int rank) {
  try {
    vcoll::Comm comm(kRanks, id, rank);
    EXPECT(comm.rank() == rank && comm.size() == kRanks && comm.nodes() == 1 && comm.rails() >= 1);
    windows(comm);
    anyMemory(comm);
    publishing(comm);
    vcoll::Comm alone = comm.split(rank == 0 ? 0 : -1, 0);
    EXPECT(static_cast<bool>(alone) == (rank == 0));
    if (alone) EXPECT(alone.size() == 1);
    alone = vcoll::Comm();
    comm.finalize();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    ++failures;
  }
}

}  // namespace

int main() {
  const vcollUniqueId id = vcoll::makeUniqueId();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) ranks.emplace_back(runRank, id, rank);
  for (std::thread& thread : ranks) thread.join();
  return failures == 0 ? 0 : 1;
}
