// SPDX-License-Identifier: Apache-2.0
#include "transport/sim/fiber.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace vcoll::sim {

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kStackBytes = 256 << 10;
#else
constexpr size_t kStackBytes = 64 << 10;
#endif

thread_local Fiber* runningFiber = nullptr;

[[noreturn]] void die(const char* what) {
  fmt::print(stderr, "simulator: {}: {}\n", what, std::strerror(errno));
  std::abort();
}

size_t guardBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

Fiber::Fiber() {
  void* map =
      mmap(nullptr, guardBytes() + kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (map == MAP_FAILED) die("mmap of a fiber's stack");
  map_ = static_cast<std::byte*>(map);
  if (mprotect(map_, guardBytes(), PROT_NONE) != 0) die("mprotect of a fiber's guard page");
  stack_ = map_ + guardBytes();
#if defined(__SANITIZE_THREAD__)
  tsanFiber_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(tsanFiber_);
#endif
  munmap(map_, guardBytes() + kStackBytes);
}

void Fiber::start(Body body, void* argument) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(stack_, kStackBytes);
  fakeStack_ = nullptr;
#endif
  if (getcontext(&context_) != 0) die("getcontext");
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = kStackBytes;
  context_.uc_link = nullptr;
  body_ = body;
  argument_ = argument;
  ended_ = false;
  makecontext(&context_, &Fiber::entry, 0);
}

void Fiber::entry() {
  Fiber* self = runningFiber;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &self->resumerStack_, &self->resumerStackBytes_);
#endif
  self->body_(self->argument_);
  self->ended_ = true;
  self->switchOut(true);
}

void Fiber::resume() {
  runningFiber = this;
#if defined(__SANITIZE_ADDRESS__)
  void* resumerFakeStack = nullptr;
  __sanitizer_start_switch_fiber(&resumerFakeStack, stack_, kStackBytes);
#endif
#if defined(__SANITIZE_THREAD__)
  tsanResumer_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsanFiber_, 0);
#endif
  if (swapcontext(&resumer_, &context_) != 0) die("swapcontext");
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(resumerFakeStack, nullptr, nullptr);
#endif
  runningFiber = nullptr;
}

void Fiber::switchOut([[maybe_unused]] bool forever) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(forever ? nullptr : &fakeStack_, resumerStack_, resumerStackBytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(tsanResumer_, 0);
#endif
  if (swapcontext(&context_, &resumer_) != 0) die("swapcontext");
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fakeStack_, &resumerStack_, &resumerStackBytes_);
#endif
}

void Fiber::suspend() { runningFiber->switchOut(false); }

Fiber* Fiber::current() { return runningFiber; }

Fiber* FiberPool::take() {
  if (free_.empty()) {
    all_.push_back(std::make_unique<Fiber>());
    return all_.back().get();
  }
  Fiber* fiber = free_.back();
  free_.pop_back();
  return fiber;
}

void FiberPool::reclaim() {
  free_.clear();
  for (const auto& fiber : all_) free_.push_back(fiber.get());
}

}  // namespace vcoll::sim
