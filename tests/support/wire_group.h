// SPDX-License-Identifier: Apache-2.0
// The host fabric's side of a wire for tests: windows and counters that remember, and groups of ranks in one process.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/hash.h"
#include "bootstrap/listener.h"
#include "transport/host/tcp_wire.h"

namespace vcoll::wiretest {

using namespace std::chrono_literals;

constexpr uint32_t kWindow = 7;
constexpr uint32_t kCounters = 16;

inline std::byte hashByte(uint64_t seed, uint64_t position) {
  return static_cast<std::byte>(mix64(seed ^ mix64(position)));
}

inline std::vector<std::byte> hashBytes(uint64_t seed, size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < bytes; i++) data[i] = hashByte(seed, i);
  return data;
}

// A repeatable series of numbers.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(mix64(seed)) {}
  uint64_t below(uint64_t bound) { return mix64(state_++) % bound; }

 private:
  uint64_t state_;
};

// The host fabric's side: a window, counters, and a record of what was reported.
struct FakeHost {
  explicit FakeHost(size_t windowBytes) : window(windowBytes) {}

  vcollWireHost_v1 table() {
    vcollWireHost_v1 host{};
    host.context = this;
    host.resolve = [](void* context, uint32_t id, uint64_t offset, uint64_t bytes) -> void* {
      auto* self = static_cast<FakeHost*>(context);
      if (self->resolveDelay.count() > 0) std::this_thread::sleep_for(self->resolveDelay);
      const size_t size = self->window.size();
      if (id != kWindow || offset > size || bytes > size - offset) return nullptr;
      return self->window.data() + offset;
    };
    host.signal = [](void* context, uint32_t counter, uint64_t add) {
      static_cast<FakeHost*>(context)->counters.at(counter).fetch_add(add, std::memory_order_release);
    };
    host.lost = [](void* context, int peer, const char* why) {
      auto* self = static_cast<FakeHost*>(context);
      const std::lock_guard lock(self->mutex);
      self->lost.emplace_back(peer, why);
      self->changed.notify_all();
    };
    host.wake = [](void* context) {
      auto* self = static_cast<FakeHost*>(context);
      const std::lock_guard lock(self->mutex);
      self->wakes++;
      self->changed.notify_all();
    };
    return host;
  }

  uint64_t counter(uint32_t index) const { return counters.at(index).load(std::memory_order_acquire); }
  bool waitCounter(uint32_t index, uint64_t value) const {
    const Deadline deadline = Deadline::afterMs(20000);
    while (counter(index) < value) {
      if (deadline.passed()) return false;
      std::this_thread::yield();
    }
    return true;
  }
  bool waitLost(size_t count) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 20s, [&] { return lost.size() >= count; });
  }
  size_t lostCount() {
    const std::lock_guard lock(mutex);
    return lost.size();
  }
  // Sleeps until the condition holds, looking only when woken: false if a wake is missing.
  bool sleepUntil(const std::function<bool()>& condition) {
    while (true) {
      uint64_t seen;
      {
        const std::lock_guard lock(mutex);
        seen = wakes;
      }
      if (condition()) return true;
      std::unique_lock lock(mutex);
      if (!changed.wait_for(lock, 20s, [&] { return wakes != seen; })) return false;
    }
  }

  std::vector<std::byte> window;
  std::array<std::atomic<uint64_t>, kCounters> counters{};
  std::chrono::microseconds resolveDelay{0};
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::pair<int, std::string>> lost;
  uint64_t wakes = 0;
};

inline const vcollWire_v1& wire() { return *tcpWire(); }

// The ranks of a group, all in this process.
class Group {
 public:
  Group(int nranks, size_t windowBytes) : nranks_(nranks), nonce_(randomNonce()) {
    addresses_.resize(static_cast<size_t>(nranks) * VCOLL_WIRE_ADDRESS_BYTES);
    for (int rank = 0; rank < nranks; rank++) {
      hosts_.push_back(std::make_unique<FakeHost>(windowBytes));
      comms_.push_back(nullptr);
      const vcollWireHost_v1 table = host(rank).table();
      char error[512] = "";
      const int code =
          wire().open(&table, nonce_.data(), rank, nranks,
                      addresses_.data() + static_cast<size_t>(rank) * VCOLL_WIRE_ADDRESS_BYTES, &comms_.back(), error);
      INFO(error);
      REQUIRE(code == 0);
    }
  }
  ~Group() {
    for (int rank = 0; rank < nranks_; rank++) close(rank, true);
  }

  // "" or the error of the round.
  std::string connect(int rank, const std::vector<int>& peers, int64_t timeoutMs = 20000,
                      const volatile int* cancelled = nullptr, int* code = nullptr) {
    char error[512] = "";
    const int result = wire().connect(comm(rank), addresses_.data(), peers.data(), static_cast<int>(peers.size()),
                                      timeoutMs, cancelled, error);
    if (code != nullptr) *code = result;
    if (result == 0) return "";
    return error[0] != '\0' ? error : "no text";
  }
  // Everyone with everyone.
  void connectAll() {
    std::vector<std::string> errors(static_cast<size_t>(nranks_));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < nranks_; rank++) {
      threads.emplace_back([&, rank] {
        std::vector<int> peers;
        for (int peer = nranks_ - 1; peer >= 0; peer--) {
          if (peer != rank) peers.push_back(peer);
        }
        errors[static_cast<size_t>(rank)] = connect(rank, peers);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& error : errors) REQUIRE(error == "");
  }
  void close(int rank, bool graceful) {
    if (comm(rank) == nullptr) return;
    wire().close(comm(rank), graceful ? 1 : 0);
    comms_[static_cast<size_t>(rank)] = nullptr;
  }

  FakeHost& host(int rank) { return *hosts_[static_cast<size_t>(rank)]; }
  vcollWireComm* comm(int rank) { return comms_[static_cast<size_t>(rank)]; }
  const Nonce& nonce() const { return nonce_; }
  Endpoint endpoint(int rank) const {
    Endpoint endpoint;
    memcpy(&endpoint, addresses_.data() + static_cast<size_t>(rank) * VCOLL_WIRE_ADDRESS_BYTES, sizeof endpoint);
    return endpoint;
  }
  bool put(int from, int to, const std::byte* source, uint64_t bytes, uint64_t offset, uint32_t counter) {
    if (!host(from).sleepUntil([&] { return wire().ready(comm(from), to) != 0; })) return false;
    wire().put(comm(from), to, source, bytes, kWindow, offset, counter, 1);
    return true;
  }
  bool flush(int rank) {
    return host(rank).sleepUntil([&] { return wire().flushed(comm(rank)) != 0; });
  }

 private:
  int nranks_;
  Nonce nonce_;
  std::vector<unsigned char> addresses_;
  std::vector<std::unique_ptr<FakeHost>> hosts_;
  std::vector<vcollWireComm*> comms_;
};

}  // namespace vcoll::wiretest
