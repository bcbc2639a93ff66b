// SPDX-License-Identifier: Apache-2.0
// Built without MPI.
#include <cstdio>

#include "perf/bridge.h"
#include "perf/options.h"
#include "vcoll/vcoll.h"

namespace vcoll::perf {
namespace {

// Processes of a launcher in a program without MPI: they meet through a communicator of their own.
class VcollBridge : public ProcessBridge {
 public:
  explicit VcollBridge(int expected) {
    if (vcollCommInitFromEnv(&comm_) != vcollSuccess) {
      std::fprintf(stderr, "vcollCommInitFromEnv: %s\n", vcollGetLastError(nullptr));
      ProcessBridge::abort(kExitLibrary);
    }
    vcollCommCount(comm_, &processes_);
    vcollCommUserRank(comm_, &process_);
    if (process_ == 0) {
      std::fprintf(stderr,
                   "warning: built without MPI, and the launcher says %d processes: they were joined to one "
                   "communicator of %d ranks by vcollCommInitFromEnv\n",
                   expected, processes_);
    }
  }
  ~VcollBridge() override { vcollCommDestroy(comm_); }
  VcollBridge(const VcollBridge&) = delete;
  VcollBridge& operator=(const VcollBridge&) = delete;

  int processes() const override { return processes_; }
  int process() const override { return process_; }
  void barrier() override {
    const char mine = 0;
    std::vector<char> all(static_cast<size_t>(processes_));
    gather(&mine, 1, all.data());
  }
  void gather(const void* mine, size_t bytes, void* all) override {
    const std::vector<size_t> counts(static_cast<size_t>(processes_), bytes);
    if (vcollAllGatherV(mine, bytes, all, counts.data(), nullptr, vcollUint8, comm_, nullptr) != vcollSuccess) {
      std::fprintf(stderr, "gather: %s\n", vcollGetLastError(comm_));
      ProcessBridge::abort(kExitLibrary);
    }
  }

 private:
  vcollComm_t comm_ = nullptr;
  int processes_ = 1;
  int process_ = 0;
};

}  // namespace

const bool kHaveMpi = false;

std::unique_ptr<ProcessBridge> makeBridge(int*, char***) {
  const int processes = launcherProcesses();
  if (processes > 1) return std::make_unique<VcollBridge>(processes);
  return std::make_unique<ProcessBridge>();
}

}  // namespace vcoll::perf
