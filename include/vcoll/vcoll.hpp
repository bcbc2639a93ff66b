// SPDX-License-Identifier: Apache-2.0
// vcoll for C++17: owners of the C handles that free them in their destructors and throw vcoll::Error. Nothing here
// adds to the C library; vcoll.h has the rules. Everything is move-only. Plans and windows must go before their
// communicator, streams before their window, and a window before its memory: declare them in the order Comm, Memory,
// Window, Plan, PublishStream.
#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "vcoll/vcoll.h"

namespace vcoll {
// The inline namespace keeps these names apart from the library's own in programs that link both.
inline namespace cpp {

class Error : public std::runtime_error {
 public:
  Error(vcollResult_t code, const std::string& text) : std::runtime_error(text), code_(code) {}
  vcollResult_t code() const noexcept { return code_; }

 private:
  vcollResult_t code_;
};

// Throws what the library says about a result that is not vcollSuccess.
inline void check(vcollResult_t result, vcollComm_t comm = nullptr) {
  if (result == vcollSuccess) return;
  const std::string text = vcollGetLastError(comm);
  throw Error(result, vcollGetErrorString(result) + (text.empty() ? text : ": " + text));
}

inline vcollUniqueId makeUniqueId() {
  vcollUniqueId id;
  check(vcollGetUniqueId(&id));
  return id;
}

template <auto kDestroy>
struct Free {
  template <typename T>
  void operator()(T* handle) const noexcept {
    (void)kDestroy(handle);
  }
};

// A host stream.
class Stream {
 public:
  Stream() {
    vcollStream_t stream = nullptr;
    check(vcollHostStreamCreate(&stream));
    handle_.reset(stream);
  }
  vcollStream_t native() const noexcept { return handle_.get(); }
  void synchronize() { check(vcollHostStreamSynchronize(native())); }
  // True once all work has ended.
  bool done() {
    const vcollResult_t result = vcollHostStreamQuery(native());
    if (result != vcollInProgress) check(result);
    return result != vcollInProgress;
  }

 private:
  std::unique_ptr<vcollStream, Free<vcollHostStreamDestroy>> handle_;
};

class Comm {
 public:
  Comm() = default;  // empty
  explicit Comm(vcollComm_t owned) noexcept : handle_(owned) {}
  Comm(int nranks, const vcollUniqueId& id, int rank, const vcollConfig_t* config = nullptr) {
    vcollComm_t comm = nullptr;
    check(vcollCommInitRankConfig(&comm, nranks, id, rank, config));
    handle_.reset(comm);
  }
  static Comm fromEnv() {
    vcollComm_t comm = nullptr;
    check(vcollCommInitFromEnv(&comm));
    return Comm(comm);
  }

  vcollComm_t native() const noexcept { return handle_.get(); }
  explicit operator bool() const noexcept { return handle_ != nullptr; }
  int size() const { return ask(vcollCommCount); }
  int rank() const { return ask(vcollCommUserRank); }
  int nodes() const { return ask(vcollCommNodeCount); }
  int rails() const { return ask(vcollCommRailCount); }

  // Empty where color < 0.
  Comm split(int color, int key, const vcollConfig_t* config = nullptr) {
    vcollComm_t comm = nullptr;
    check(vcollCommSplit(native(), color, key, &comm, config), native());
    return Comm(comm);
  }
  void finalize() { check(vcollCommFinalize(native()), native()); }
  void abort() { check(vcollCommAbort(native()), native()); }
  // Throws the error the communicator is in, if it is in one.
  void checkAsync() const {
    vcollResult_t error = vcollSuccess;
    check(vcollCommGetAsyncError(native(), &error), native());
    check(error, native());
  }

  void allGatherV(const void* sendbuf, size_t sendcount, void* recvbuf, const std::vector<size_t>& recvcounts,
                  const size_t* displs, vcollDataType_t type, vcollStream_t stream = nullptr) {
    checkCounts(recvcounts);
    check(vcollAllGatherV(sendbuf, sendcount, recvbuf, recvcounts.data(), displs, type, native(), stream), native());
  }
  void reduceScatterV(const void* sendbuf, void* recvbuf, const std::vector<size_t>& recvcounts, vcollDataType_t type,
                      vcollRedOp_t op, vcollStream_t stream = nullptr) {
    checkCounts(recvcounts);
    check(vcollReduceScatterV(sendbuf, recvbuf, recvcounts.data(), type, op, native(), stream), native());
  }

 private:
  int ask(vcollResult_t (*call)(vcollComm_t, int*)) const {
    int value = 0;
    check(call(native(), &value), native());
    return value;
  }
  // The C call cannot see how long the array is.
  void checkCounts(const std::vector<size_t>& counts) const {
    const std::string have = std::to_string(counts.size()), want = std::to_string(size());
    if (have != want) throw Error(vcollInvalidArgument, "recvcounts has " + have + " entries for " + want + " ranks");
  }
  std::unique_ptr<vcollComm, Free<vcollCommDestroy>> handle_;
};

// Zeroed memory that can become a window.
class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_(bytes) {
    void* ptr = nullptr;
    check(vcollMemAlloc(&ptr, bytes));
    handle_.reset(ptr);
  }
  void* native() const noexcept { return handle_.get(); }
  size_t bytes() const noexcept { return bytes_; }
  template <typename T>
  T* as(size_t offset = 0) const noexcept {
    return reinterpret_cast<T*>(static_cast<char*>(native()) + offset);
  }

 private:
  std::unique_ptr<void, Free<vcollMemFree>> handle_;
  size_t bytes_;
};

class Window {
 public:
  Window(const Comm& comm, void* ptr, size_t bytes) : handle_(nullptr, Deregister{comm.native()}) {
    vcollWindow_t window = nullptr;
    check(vcollWindowRegister(comm.native(), ptr, bytes, &window), comm.native());
    handle_.reset(window);
  }
  Window(const Comm& comm, const Memory& memory) : Window(comm, memory.native(), memory.bytes()) {}
  vcollWindow_t native() const noexcept { return handle_.get(); }

 private:
  struct Deregister {
    vcollComm_t comm;
    void operator()(vcollWindow_t window) const noexcept { (void)vcollWindowDeregister(comm, window); }
  };
  std::unique_ptr<vcollWindow, Deregister> handle_;
};

class Plan {
 public:
  Plan(const Comm& comm, const std::vector<vcollSegment_t>& segments, vcollDataType_t type,
       const vcollPlanConfig_t* config = nullptr)
      : comm_(comm.native()) {
    vcollPlan_t plan = nullptr;
    check(vcollPlanCreate(comm_, segments.data(), segments.size(), type, config, &plan), comm_);
    handle_.reset(plan);
  }
  vcollPlan_t native() const noexcept { return handle_.get(); }
  vcollPlanInfo_t info() const {
    vcollPlanInfo_t info = VCOLL_PLAN_INFO_INITIALIZER;
    check(vcollPlanGetInfo(native(), &info), comm_);
    return info;
  }
  void allGatherV(const Window& window, size_t offset = 0, vcollStream_t stream = nullptr) {
    check(vcollPlanAllGatherV(native(), window.native(), offset, stream), comm_);
  }
  void reduceScatterV(const Window& src, size_t srcOffset, const Window& dst, size_t dstOffset, vcollRedOp_t op,
                      vcollStream_t stream = nullptr) {
    check(vcollPlanReduceScatterV(native(), src.native(), srcOffset, dst.native(), dstOffset, op, stream), comm_);
  }

 private:
  vcollComm_t comm_ = nullptr;
  std::unique_ptr<vcollPlan, Free<vcollPlanDestroy>> handle_;
};

class PublishStream {
 public:
  PublishStream(const Comm& comm, const Window& window, const std::vector<vcollPublishItem_t>& items,
                const vcollPublishConfig_t* config = nullptr)
      : comm_(comm.native()) {
    vcollPublishStream_t stream = nullptr;
    check(vcollPublishStreamCreate(comm_, window.native(), items.data(), items.size(), config, &stream), comm_);
    handle_.reset(stream);
  }
  vcollPublishStream_t native() const noexcept { return handle_.get(); }
  void begin(uint64_t step) { check(vcollPublishStreamBegin(native(), step)); }
  void push(uint64_t item, vcollStream_t stream = nullptr) { check(vcollPublishStreamPush(native(), item, stream)); }
  void end(uint64_t step) { check(vcollPublishStreamEnd(native(), step)); }
  void wait(uint64_t item, uint64_t step, vcollStream_t stream = nullptr) {
    check(vcollPublishStreamWait(native(), item, step, stream));
  }
  void waitAll(uint64_t step, vcollStream_t stream = nullptr) {
    check(vcollPublishStreamWaitAll(native(), step, stream));
  }
  bool ready(uint64_t item, uint64_t step) {
    int ready = 0;
    check(vcollPublishStreamTest(native(), item, step, &ready));
    return ready != 0;
  }
  // Where the version is, or is to be written by its owner.
  template <typename T>
  T* address(uint64_t item, uint64_t step) {
    void* ptr = nullptr;
    check(vcollPublishStreamAddress(native(), item, step, &ptr));
    return static_cast<T*>(ptr);
  }
  // The newest whole version, VCOLL_NO_STEP if there is none.
  uint64_t version(uint64_t item) {
    uint64_t step = VCOLL_NO_STEP;
    check(vcollPublishStreamGetVersion(native(), item, &step, nullptr));
    return step;
  }
  int leader(uint64_t item, int node) const {
    int rank = 0;
    check(vcollPublishStreamGetLeader(native(), item, node, &rank));
    return rank;
  }

  // A lease on one version, for as long as this lives.
  class Lease {
   public:
    Lease(PublishStream& stream, uint64_t item, uint64_t step) : stream_(stream.native()), item_(item), step_(step) {
      check(vcollPublishStreamAcquire(stream_, item_, step_, &ptr_));
    }
    ~Lease() { (void)vcollPublishStreamRelease(stream_, item_, step_); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    const void* data() const noexcept { return ptr_; }

   private:
    vcollPublishStream_t stream_;
    uint64_t item_;
    uint64_t step_;
    const void* ptr_ = nullptr;
  };

 private:
  vcollComm_t comm_ = nullptr;
  std::unique_ptr<vcollPublishStream, Free<vcollPublishStreamDestroy>> handle_;
};

}  // namespace cpp
}  // namespace vcoll
