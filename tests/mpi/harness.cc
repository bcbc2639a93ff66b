// SPDX-License-Identifier: Apache-2.0
#define FMT_HEADER_ONLY
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>

#include "harness.h"

namespace suite {

Options options;
int worldRank = 0;
int worldSize = 1;

namespace {
std::atomic<int> failures{0};
const char* runningCase = "";

std::vector<int> nodeSizes() {
  std::vector<int> sizes;
  std::stringstream text(options.layout);
  for (std::string piece; std::getline(text, piece, ',');) sizes.push_back(std::atoi(piece.c_str()));
  return sizes;
}
}  // namespace

std::string sayArguments(fmt::string_view format, fmt::format_args arguments) {
  return fmt::vformat(format, arguments);
}

void fail(const char* file, int line, const std::string& text) {
  constexpr int kShown = 12;
  const int count = ++failures;
  if (count > kShown) return;
  const char* slash = std::strrchr(file, '/');
  const std::string message =
      say("FAIL rank {} {} {}:{}: {}{}\n", worldRank, runningCase, slash == nullptr ? file : slash + 1, line, text,
          count == kShown ? " (further ones of this rank are not shown)" : "");
  std::fputs(message.c_str(), stderr);
}

int failureCount() { return failures.load(); }

void runCase(const char* name, const std::function<void()>& body) {
  runningCase = name;
  const int before = failures.load();
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = now();
  try {
    body();
  } catch (const Abandon&) {
    sleepMs(2000);  // let the others say what they saw
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  int mine = failures.load() - before;
  int all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (worldRank == 0) {
    std::printf("%-28s %s %.2f s\n", name, all == 0 ? "ok    " : "FAILED", now() - start);
    std::fflush(stdout);
  }
}

int nodeOfRank(int rank) {
  if (options.layout == "one") return 0;
  if (options.layout.rfind("rr", 0) == 0) return rank % std::atoi(options.layout.c_str() + 2);
  int node = 0;
  for (const int size : nodeSizes()) {
    if (rank < size) break;
    rank -= size;
    ++node;
  }
  return node;
}

int nodesOfLayout() {
  int nodes = 0;
  for (int rank = 0; rank < worldSize; ++rank) nodes = std::max(nodes, nodeOfRank(rank) + 1);
  return nodes;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void sleepMs(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

double cpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

vcollUniqueId sharedId() {
  vcollUniqueId id{};
  if (worldRank == 0) MUST(vcollGetUniqueId(&id));
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  return id;
}

vcollComm_t makeComm(const CommOptions& commOptions) {
  const vcollUniqueId id = sharedId();
  vcollConfig_t config = VCOLL_CONFIG_INITIALIZER;
  if (commOptions.timeoutMs > 0) config.timeoutMs = commOptions.timeoutMs;
  config.name = commOptions.name;
  vcollComm_t comm = nullptr;
  MUST(vcollCommInitRankConfig(&comm, worldSize, id, worldRank, &config));
  int nodes = 0;
  MUST(vcollCommNodeCount(comm, &nodes));
  EXPECT(nodes == nodesOfLayout(), "{} nodes for layout {}", nodes, options.layout);
  return comm;
}

std::vector<std::string> gatherTexts(const std::string& mine) {
  constexpr size_t kBytes = 2048;
  std::vector<char> sent(kBytes, 0);
  std::memcpy(sent.data(), mine.data(), std::min(mine.size(), kBytes - 1));
  std::vector<char> all(kBytes * static_cast<size_t>(worldSize));
  MPI_Allgather(sent.data(), kBytes, MPI_CHAR, all.data(), kBytes, MPI_CHAR, MPI_COMM_WORLD);
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < static_cast<size_t>(worldSize); ++rank) texts.emplace_back(all.data() + rank * kBytes);
  return texts;
}

GuardedBuffer::~GuardedBuffer() {
  if (base_ != nullptr) munmap(base_, capacity_ + static_cast<size_t>(sysconf(_SC_PAGESIZE)));
}

void GuardedBuffer::reset(size_t bytes, size_t tail) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  used_ = kLead + bytes + tail;
  if (used_ > capacity_) {
    if (base_ != nullptr) munmap(base_, capacity_ + page);
    capacity_ = (used_ + page - 1) / page * page;
    void* made = mmap(nullptr, capacity_ + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED || mprotect(static_cast<unsigned char*>(made) + capacity_, page, PROT_NONE) != 0) {
      std::perror("mmap of a guarded buffer");
      std::abort();
    }
    base_ = static_cast<unsigned char*>(made);
  }
  data_ = base_ + capacity_ - tail - bytes;
  std::memset(data_ - kLead, kGuard, used_);
}

std::vector<unsigned char> GuardedBuffer::image() const { return {data_ - kLead, data_ - kLead + used_}; }

void GuardedBuffer::expectImage(const std::vector<unsigned char>& expected, const std::string& what) const {
  const unsigned char* begin = data_ - kLead;
  if (expected.size() == used_ && std::memcmp(expected.data(), begin, used_) == 0) return;
  const auto differs = std::mismatch(expected.begin(), expected.end(), begin);
  EXPECT(false, "{}: byte {} is {:#x}, expected {:#x}", what, differs.first - expected.begin() - std::ptrdiff_t{kLead},
         *differs.second, *differs.first);
}

void expectUsable(vcollComm_t comm) {
  int size = 0;
  int rank = 0;
  MUST(vcollCommCount(comm, &size));
  MUST(vcollCommUserRank(comm, &rank));
  const std::vector<size_t> counts(static_cast<size_t>(size), 1);
  std::vector<int32_t> got(static_cast<size_t>(size), -1);
  const int32_t mine = rank * 3 + 1;
  MUST(vcollAllGatherV(&mine, 1, got.data(), counts.data(), nullptr, vcollInt32, comm, nullptr));
  for (int r = 0; r < size; ++r) {
    EXPECT(got[static_cast<size_t>(r)] == r * 3 + 1, "element {} is {}", r, got[static_cast<size_t>(r)]);
  }
}

}  // namespace suite
