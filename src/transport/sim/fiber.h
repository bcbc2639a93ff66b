// SPDX-License-Identifier: Apache-2.0
// Fibers: functions with a stack of their own that one thread runs in turns. AddressSanitizer and ThreadSanitizer are
// told about every switch.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace vcoll::sim {

class Fiber {
 public:
  using Body = void (*)(void*);

  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes the next resume() enter body(argument). What an earlier body left on the stack is given up without running
  // destructors, so bodies own nothing while they are suspended.
  void start(Body body, void* argument);
  // Runs the fiber until it suspends or ends. Not from inside a fiber.
  void resume();
  bool ended() const { return ended_; }

  // Gives control back to resume(). Only inside a fiber.
  static void suspend();
  // The running fiber; nullptr outside.
  static Fiber* current();

 private:
  static void entry();
  void switchOut(bool forever);

  std::byte* map_ = nullptr;  // a guard page, then the stack
  std::byte* stack_ = nullptr;
  ucontext_t context_{};
  ucontext_t resumer_{};
  Body body_ = nullptr;
  void* argument_ = nullptr;
  bool ended_ = true;
  // What the sanitizers need to know about both sides of a switch.
  void* fakeStack_ = nullptr;
  const void* resumerStack_ = nullptr;
  size_t resumerStackBytes_ = 0;
  void* tsanFiber_ = nullptr;
  void* tsanResumer_ = nullptr;
};

// Keeps fibers for reuse: a fresh stack costs page faults.
class FiberPool {
 public:
  Fiber* take();
  void giveBack(Fiber* fiber) { free_.push_back(fiber); }
  // All fibers are free again, suspended ones too.
  void reclaim();

 private:
  std::vector<std::unique_ptr<Fiber>> all_;
  std::vector<Fiber*> free_;
};

}  // namespace vcoll::sim
