// SPDX-License-Identifier: Apache-2.0
// The kernels of the CUDA fabric. Grid: plan.laneCount blocks of kThreads, all resident together.
// Level of evidence: L0, compiled only. Nothing launches them yet and they have not run on any card.
#include <new>

#include "kernels/allgatherv.h"
#include "kernels/reducescatterv.h"
#include "transport/cuda/device_port.cuh"
#include "transport/cuda/gin_net.cuh"
#include "transport/cuda/memory_net.cuh"

namespace vcoll::cuda {

// A look at the abort flag reads host memory: not on every idle round.
constexpr uint32_t kIdleRoundsPerLook = 64;

template <template <typename> class Machine, typename Net>
__device__ __forceinline__ void lead(const DeviceCall& call, const Net& net, Command& command, void* portMemory,
                                     void* machineMemory) {
  using Port = DevicePort<Net>;
  using Task = typename Machine<Port>::Task;
  const uint32_t lane = blockIdx.x;
  Port& port = *new (portMemory) Port(call, net, command, lane);
  Task* tasks = static_cast<Task*>(call.tasks) + uint64_t{lane} * call.plan.maxTasks;
  auto& machine = *new (machineMemory) Machine<Port>(call.plan, port, call.bases, tasks, lane);

  LaneReport& report = call.reports[lane];
  LaneReport::State state = LaneReport::kRunning;
  uint32_t idle = 0;
  machine.begin();
  while (!machine.done() && state == LaneReport::kRunning) {
    if (machine.step()) {
      idle = 0;
    } else if (++idle % kIdleRoundsPerLook == 0) {
      state = port.verdict();
    }
  }
  if (machine.done()) state = LaneReport::kDone;
  if (state == LaneReport::kTimedOut) report.pending = machine.pending();
  ptx::storeReleaseSystem(&report.state, state);
  port.end();
}

template <template <typename> class Machine, Work kWork, typename Net>
__device__ __forceinline__ void runLane(const DeviceCall& call, const Net& net) {
  using Port = DevicePort<Net>;
  __shared__ Command command;
  // The leader's state. The other threads do not touch it.
  __shared__ alignas(Port) unsigned char portMemory[sizeof(Port)];
  __shared__ alignas(Machine<Port>) unsigned char machineMemory[sizeof(Machine<Port>)];
  if (threadIdx.x == 0) {
    lead<Machine>(call, net, command, portMemory, machineMemory);
  } else {
    serve<kWork>(call, command);
  }
}

#ifdef VCOLL_CUDA_GIN
__global__ void __launch_bounds__(kThreads, 1)
    allGatherVKernel(const __grid_constant__ DeviceCall call, const __grid_constant__ GinNet net) {
  runLane<kernels::AllGatherV, Work::kDelivers>(call, net);
}

__global__ void __launch_bounds__(kThreads, 1)
    reduceScatterVKernel(const __grid_constant__ DeviceCall call, const __grid_constant__ GinNet net) {
  runLane<kernels::ReduceScatterV, Work::kReduces>(call, net);
}
#endif

__global__ void __launch_bounds__(kThreads, 1)
    allGatherVMemoryKernel(const __grid_constant__ DeviceCall call, const __grid_constant__ MemoryNet net) {
  runLane<kernels::AllGatherV, Work::kDelivers>(call, net);
}

__global__ void __launch_bounds__(kThreads, 1)
    reduceScatterVMemoryKernel(const __grid_constant__ DeviceCall call, const __grid_constant__ MemoryNet net) {
  runLane<kernels::ReduceScatterV, Work::kReduces>(call, net);
}

}  // namespace vcoll::cuda
