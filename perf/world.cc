// SPDX-License-Identifier: Apache-2.0
#include "perf/world.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace vcoll::perf {
namespace {

int firstInt(std::initializer_list<const char*> names, int fallback) {
  for (const char* name : names) {
    const char* text = std::getenv(name);
    if (text != nullptr && *text != '\0') return std::atoi(text);
  }
  return fallback;
}

}  // namespace

// Slurm's variables are also set in a batch script that is no task: only with a task number do they count.
int launcherProcesses() {
  const int n = firstInt({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 0);
  if (n > 0) return n;
  return std::getenv("SLURM_PROCID") != nullptr ? firstInt({"SLURM_NTASKS", "SLURM_NPROCS"}, 1) : 1;
}

int launcherProcess() { return firstInt({"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}, 0); }

void ProcessBridge::abort(int code) { std::_Exit(code); }

bool allAgree(ProcessBridge& bridge, const std::string& mine) {
  struct Complaint {
    char text[1024];
  };
  Complaint own{};
  mine.copy(own.text, sizeof own.text - 1);
  std::vector<Complaint> all(static_cast<size_t>(bridge.processes()));
  bridge.gather(&own, sizeof own, all.data());
  for (const Complaint& complaint : all) {
    if (complaint.text[0] == '\0') continue;
    if (bridge.process() == 0) fmt::print(stderr, "{}\n", complaint.text);
    return false;
  }
  return true;
}

void ThreadBarrier::arrive() {
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    return;
  }
  for (int polls = 0; phase_.load(std::memory_order_acquire) == phase; ++polls) {
    if (polls > 200) std::this_thread::yield();
  }
}

World::World(std::unique_ptr<ProcessBridge> bridge, int threads)
    : bridge_(std::move(bridge)), threads_(threads), threadBarrier_(threads) {}

void World::barrier(int thread) {
  if (threads_ > 1) threadBarrier_.arrive();
  if (processes() > 1) {
    if (thread == 0) bridge_->barrier();
    if (threads_ > 1) threadBarrier_.arrive();
  }
}

void World::gatherBytes(int thread, const void* mine, size_t bytes, void* all) {
  if (threads_ == 1) return bridge_->gather(mine, bytes, all);
  const size_t threads = static_cast<size_t>(threads_);
  if (thread == 0) {
    mine_.resize(bytes * threads);
    all_.resize(bytes * static_cast<size_t>(ranks()));
  }
  threadBarrier_.arrive();
  std::memcpy(mine_.data() + bytes * static_cast<size_t>(thread), mine, bytes);
  threadBarrier_.arrive();
  if (thread == 0) bridge_->gather(mine_.data(), mine_.size(), all_.data());
  threadBarrier_.arrive();
  std::memcpy(all, all_.data(), all_.size());
  threadBarrier_.arrive();
}

void World::fail(int code, const std::string& text) {
  char host[256] = "?";
  gethostname(host, sizeof(host) - 1);
  const std::string line = fmt::format("{} pid {}: {}\n", host, getpid(), text);
  std::fflush(stdout);
  std::fputs(line.c_str(), stderr);
  bridge_->abort(code);
  std::_Exit(code);
}

}  // namespace vcoll::perf
