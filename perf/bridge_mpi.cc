// SPDX-License-Identifier: Apache-2.0
#include "perf/bridge.h"

#include <mpi.h>
#include <sched.h>

namespace vcoll::perf {
namespace {

class MpiBridge : public ProcessBridge {
 public:
  MpiBridge(int* argc, char*** argv) {
    int provided = 0;
    MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_size(MPI_COMM_WORLD, &processes_);
    MPI_Comm_rank(MPI_COMM_WORLD, &process_);
  }
  ~MpiBridge() override { MPI_Finalize(); }
  MpiBridge(const MpiBridge&) = delete;
  MpiBridge& operator=(const MpiBridge&) = delete;

  int processes() const override { return processes_; }
  int process() const override { return process_; }

  // MPI_Barrier itself spins for ever when yielding is not switched on; with more ranks than cores that costs whole
  // time slices.
  void barrier() override {
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    int done = 0;
    for (int polls = 0; done == 0; ++polls) {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done == 0 && polls > 100) sched_yield();
    }
  }

  void gather(const void* mine, size_t bytes, void* all) override {
    MPI_Allgather(mine, static_cast<int>(bytes), MPI_BYTE, all, static_cast<int>(bytes), MPI_BYTE, MPI_COMM_WORLD);
  }

  void abort(int code) override {
    MPI_Abort(MPI_COMM_WORLD, code);
    ProcessBridge::abort(code);
  }

 private:
  int processes_ = 1;
  int process_ = 0;
};

}  // namespace

const bool kHaveMpi = true;

std::unique_ptr<ProcessBridge> makeBridge(int* argc, char*** argv) { return std::make_unique<MpiBridge>(argc, argv); }

}  // namespace vcoll::perf
