// SPDX-License-Identifier: Apache-2.0
// The ranks of a perf program: processes times threads. Gives every rank a barrier and a gather that do not go through
// what is measured. Only the main thread of a process talks to other processes.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace vcoll::perf {

// How processes reach each other: MPI, vcoll itself (processes of a launcher, built without MPI), or alone.
class ProcessBridge {
 public:
  virtual ~ProcessBridge() = default;
  virtual int processes() const { return 1; }
  virtual int process() const { return 0; }
  virtual void barrier() {}
  // Every process's bytes at all[process * bytes].
  virtual void gather(const void* mine, size_t bytes, void* all) { std::memcpy(all, mine, bytes); }
  // Ends all processes.
  virtual void abort(int code);
};

// True if no process has something to complain of; else process 0 has printed the first complaint.
bool allAgree(ProcessBridge& bridge, const std::string& mine);

// Number of processes and own number by the launcher's variables (torchrun, Open MPI, PMIx, Slurm); 1 and 0 without.
int launcherProcesses();
int launcherProcess();

// A barrier of the threads of a process that spins shortly, then yields: ranks may outnumber cores.
class ThreadBarrier {
 public:
  explicit ThreadBarrier(int threads) : threads_(threads) {}
  void arrive();

 private:
  const int threads_;
  std::atomic<int> arrived_{0};
  std::atomic<uint32_t> phase_{0};
};

class World {
 public:
  World(std::unique_ptr<ProcessBridge> bridge, int threads);
  int ranks() const { return bridge_->processes() * threads_; }
  int threads() const { return threads_; }
  int processes() const { return bridge_->processes(); }
  int rankOf(int thread) const { return bridge_->process() * threads_ + thread; }

  void barrier(int thread);
  void gatherBytes(int thread, const void* mine, size_t bytes, void* all);
  // Prints "host pid: text" and ends all processes.
  [[noreturn]] void fail(int code, const std::string& text);

 private:
  std::unique_ptr<ProcessBridge> bridge_;
  const int threads_;
  ThreadBarrier threadBarrier_;
  std::vector<char> mine_;
  std::vector<char> all_;
};

// One rank's view; used by its own thread only.
class Member {
 public:
  Member(World& world, int thread) : world_(world), thread_(thread) {}
  int rank() const { return world_.rankOf(thread_); }
  int ranks() const { return world_.ranks(); }
  bool first() const { return rank() == 0; }
  World& world() const { return world_; }
  void barrier() const { world_.barrier(thread_); }

  // All ranks' vectors, rank by rank; their lengths are equal.
  template <typename T>
  std::vector<T> gather(const std::vector<T>& mine) const {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(mine.size() * static_cast<size_t>(ranks()));
    if (!mine.empty()) world_.gatherBytes(thread_, mine.data(), mine.size() * sizeof(T), all.data());
    return all;
  }
  template <typename T>
  std::vector<T> gather(const T& mine) const {
    return gather(std::vector<T>{mine});
  }
  uint64_t sum(uint64_t mine) const {
    uint64_t total = 0;
    for (uint64_t value : gather(mine)) total += value;
    return total;
  }

 private:
  World& world_;
  const int thread_;
};

}  // namespace vcoll::perf
