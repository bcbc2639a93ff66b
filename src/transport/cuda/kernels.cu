// SPDX-License-Identifier: Apache-2.0
// The kernels of the CUDA fabric. Grid: plan.laneCount blocks of kThreads, all resident together.
// Level of evidence: L0, compiled only. Nothing launches them yet and they have not run on any card.
#include <new>

#include "kernels/allgatherv.h"
#include "kernels/reducescatterv.h"
#include "transport/cuda/device_port.cuh"
#include "transport/cuda/gin_net.cuh"
#include "transport/cuda/memory_net.cuh"
#include "transport/cuda/publish_port.cuh"

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
    serve(command, [&](uint32_t mover) { execute<kWork>(call, command, mover); });
  }
}

template <typename Net>
__device__ __forceinline__ void leadPublish(const PublishCall& call, const Net& net, Command& command, void* portMemory,
                                            void* machineMemory) {
  using Machine = kernels::Publish<PublishPort<Net>>;
  auto& port = *new (portMemory) PublishPort<Net>(call, net, command);
  auto& machine = *new (machineMemory) Machine(call.view, port, static_cast<typename Machine::QueueState*>(call.states),
                                               static_cast<typename Machine::Walk*>(call.sent));
  uint32_t idle = 0;
  for (;;) {
    if (machine.step()) {
      idle = 0;
      continue;
    }
    // Nothing moves: time to say how far the lane is, and to see whether it is over.
    if (idle == 0) {
      for (uint32_t q = 0; q < call.view.queueCount; ++q) port.tellFinished(q, machine.finished(q));
    }
    if (++idle == kIdleRoundsPerLook) {
      if (port.stopped()) break;
      idle = 0;
    }
  }
  port.end();
}

// One block, for one rail.
template <typename Net>
__device__ __forceinline__ void runPublishLane(const PublishCall& call, const Net& net) {
  using Port = PublishPort<Net>;
  using Machine = kernels::Publish<Port>;
  __shared__ Command command;
  __shared__ alignas(Port) unsigned char portMemory[sizeof(Port)];
  __shared__ alignas(Machine) unsigned char machineMemory[sizeof(Machine)];
  if (threadIdx.x == 0) {
    leadPublish(call, net, command, portMemory, machineMemory);
  } else {
    serve(command, [&](uint32_t mover) { copyRange(command.to, command.from, command.bytes, mover); });
  }
}

#ifdef VCOLL_CUDA_GIN
__global__ void __launch_bounds__(kThreads, 1)
    publishKernel(const __grid_constant__ PublishCall call, const __grid_constant__ GinNet net) {
  runPublishLane(call, net);
}

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
    publishMemoryKernel(const __grid_constant__ PublishCall call, const __grid_constant__ MemoryNet net) {
  runPublishLane(call, net);
}

__global__ void __launch_bounds__(kThreads, 1)
    allGatherVMemoryKernel(const __grid_constant__ DeviceCall call, const __grid_constant__ MemoryNet net) {
  runLane<kernels::AllGatherV, Work::kDelivers>(call, net);
}

__global__ void __launch_bounds__(kThreads, 1)
    reduceScatterVMemoryKernel(const __grid_constant__ DeviceCall call, const __grid_constant__ MemoryNet net) {
  runLane<kernels::ReduceScatterV, Work::kReduces>(call, net);
}

}  // namespace vcoll::cuda
