// SPDX-License-Identifier: Apache-2.0
// What a loop of broadcasts, one per owner, costs beside one AllGatherV of the same segments. Three ways, one table:
// one plan with every owner; one plan per owner, called in turn; and, where built with MPI and started by mpirun, one
// MPI_Bcast per owner. Each broadcast fills and drains the whole pipeline again and only one owner sends at a time.
// usage: agv_vs_broadcast [total bytes] [iterations]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <vcoll/vcoll.hpp>
#include <vector>
#ifdef VCOLL_EXAMPLE_MPI
#include <mpi.h>
#endif

namespace {

using Clock = std::chrono::steady_clock;

unsigned char byteOf(int owner) { return static_cast<unsigned char>(17 * owner + 1); }

// Owners' bytes are 1:2:3 in turn, on 16-byte boundaries, summing to about total.
std::vector<vcollSegment_t> makeSegments(int size, size_t total) {
  size_t weights = 0;
  for (int r = 0; r < size; ++r) weights += static_cast<size_t>(r % 3) + 1;
  std::vector<vcollSegment_t> segments;
  uint64_t offset = 0;
  for (int r = 0; r < size; ++r) {
    const uint64_t bytes = total / weights * (static_cast<size_t>(r % 3) + 1) / 16 * 16;
    segments.push_back({r, 0, offset, bytes});
    offset += bytes;
  }
  return segments;
}

// Clears what others own, runs once, compares every byte.
void verify(const char* what, int rank, const std::vector<vcollSegment_t>& segments, unsigned char* data,
            const std::function<void()>& run) {
  for (const vcollSegment_t& s : segments) {
    std::fill_n(data + s.offset, s.bytes, s.owner == rank ? byteOf(rank) : static_cast<unsigned char>(0));
  }
  run();
  for (const vcollSegment_t& s : segments) {
    const unsigned char* begin = data + s.offset;
    const unsigned char want = byteOf(s.owner);
    if (std::all_of(begin, begin + s.bytes, [want](unsigned char byte) { return byte == want; })) continue;
    throw vcoll::Error(vcollInternalError, std::string(what) + ": wrong data of rank " + std::to_string(s.owner));
  }
}

// Slowest rank's mean time of a call, in microseconds.
double measure(vcoll::Comm& comm, int iterations, const std::function<void()>& run) {
  const auto begin = Clock::now();
  for (int i = 0; i < iterations; ++i) run();
  const double mine = std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / iterations;
  std::vector<double> all(static_cast<size_t>(comm.size()));
  comm.allGatherV(&mine, 1, all.data(), std::vector<size_t>(all.size(), 1), nullptr, vcollFloat64);
  return *std::max_element(all.begin(), all.end());
}

void compare(size_t total, int iterations) {
  vcoll::Comm comm = vcoll::Comm::fromEnv();
  const std::vector<vcollSegment_t> segments = makeSegments(comm.size(), total);
  vcoll::Memory memory(std::max<size_t>(segments.back().offset + segments.back().bytes, 16));
  vcoll::Window window(comm, memory);
  vcoll::Plan all(comm, segments, vcollUint8);
  std::vector<vcoll::Plan> each;
  for (const vcollSegment_t& s : segments) each.emplace_back(comm, std::vector<vcollSegment_t>{s}, vcollUint8);

  const int rank = comm.rank();
  if (rank == 0) std::printf("%d ranks, %d nodes, %zu bytes in all\n", comm.size(), comm.nodes(), memory.bytes());
  double base = 0;
  const auto row = [&](const char* what, const std::function<void()>& run) {
    verify(what, rank, segments, memory.as<unsigned char>(), run);
    const double us = measure(comm, iterations, run);
    if (base == 0) base = us;
    if (rank == 0) std::printf("%-34s %10.1f us %6.2fx\n", what, us, us / base);
  };
  row("one AllGatherV", [&] { all.allGatherV(window); });
  row("one AllGatherV call per owner", [&] {
    for (vcoll::Plan& plan : each) plan.allGatherV(window);
  });
#ifdef VCOLL_EXAMPLE_MPI
  int mpiSize = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &mpiSize);
  if (mpiSize == comm.size()) {
    row("one MPI_Bcast per owner", [&] {
      for (const vcollSegment_t& s : segments) {
        MPI_Bcast(memory.as<char>(s.offset), static_cast<int>(s.bytes), MPI_BYTE, s.owner, MPI_COMM_WORLD);
      }
    });
  }
#endif
}

}  // namespace

int main(int argc, char** argv) {
  const size_t total = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : size_t{16} << 20;
  const int iterations = argc > 2 ? std::atoi(argv[2]) : 20;
  if (iterations < 1 || total > std::numeric_limits<int>::max()) {
    std::fprintf(stderr, "usage: agv_vs_broadcast [total bytes, below 2 GiB] [iterations]\n");
    return 2;
  }
#ifdef VCOLL_EXAMPLE_MPI
  MPI_Init(&argc, &argv);
#endif
  int status = 0;
  try {
    compare(total, iterations);
  } catch (const vcoll::Error& error) {
    std::fprintf(stderr, "agv_vs_broadcast: %s\n", error.what());
    status = 1;
  }
#ifdef VCOLL_EXAMPLE_MPI
  // A rank that failed must not wait for the others in MPI_Finalize.
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
#endif
  return status;
}
