// SPDX-License-Identifier: Apache-2.0
// A plan as one rank's lanes see it: plain arrays, readable by host, simulator and device code alike. Built by
// topology/plan.h; immutable.
#pragma once

#include "kernels/config.h"

namespace vcoll::kernels {

// The part of a segment that one rail carries.
struct Slice {
  uint64_t offset;      // in the window, from the call's offset
  uint64_t bytes;       // > 0
  uint32_t owner;       // rank
  uint32_t ownerLocal;  // its local rank on its node
};

// One hop of a queue's path. The near end is nearer to the queue's source node. Data of AllGatherV flows near to far,
// partial sums of ReduceScatterV far to near. Each end has counters (and the near end a slot ring) for this hop alone.
struct Edge {
  uint32_t peer;    // rank of the agent at the other end
  uint32_t nearId;  // index of this hop's counters and ring at its near end
  uint32_t farId;   // index of this hop's counters at its far end
};

// The chunks of one source node on one rail. Queues never wait for each other.
struct Queue {
  uint32_t node;  // source node
  uint32_t rail;
  uint32_t lane;        // the same on every rank
  uint32_t agentLocal;  // local rank of this node's agent on the rail
  uint32_t firstSlice;
  uint32_t sliceCount;
  uint64_t chunks;        // of AllGatherV
  uint64_t reduceChunks;  // of ReduceScatterV
  uint64_t ownBytes;      // bytes of this queue that this rank owns
  uint32_t arrivedBase;   // index of the queue in the table of arrival bases
  uint32_t arrivedId;     // index of the arrival counter at this node's agent (its farId)
  uint32_t firstDown;     // edges away from the source; filled where this rank is the agent
  uint32_t downCount;
  uint32_t hasUp;  // 0 on the source node
  Edge up;         // the edge towards the source
};

struct PlanView {
  uint32_t rank;
  uint32_t node;
  uint32_t local;       // local rank
  uint32_t localCount;  // ranks of this node
  const uint32_t* localRanks;
  uint32_t laneCount;
  uint32_t queueCount;
  const Queue* queues;
  const Slice* slices;
  const Edge* edges;
  uint64_t chunkBytes;        // of AllGatherV
  uint64_t reduceChunkBytes;  // of ReduceScatterV, in bytes of the source type
  uint32_t slots;             // per slot ring
  uint32_t maxTasks;          // bound of the tasks of one lane
};

}  // namespace vcoll::kernels
