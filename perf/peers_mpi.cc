// SPDX-License-Identifier: Apache-2.0
#include <mpi.h>

#include <algorithm>
#include <climits>

#include "perf/peers.h"

// One loop per instruction set, chosen at load time. Not under sanitizers: their start-up runs before the choosers may.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define VCOLL_PERF_CLONES __attribute__((target_clones("arch=skylake-avx512", "avx2", "default"), optimize("O3")))
#else
#define VCOLL_PERF_CLONES
#endif

namespace vcoll::perf {
namespace {

template <vcollRedOp_t op>
inline float combine(float a, float b) {
  if constexpr (op == vcollSum) return a + b;
  if constexpr (op == vcollProd) return a * b;
  if constexpr (op == vcollMin) return a < b ? a : b;
  return a > b ? a : b;
}

template <vcollRedOp_t op, typename ToFloat, typename FromFloat>
__attribute__((always_inline)) inline void combineAll(const void* in, void* inout, int n, ToFloat toFloat,
                                                      FromFloat fromFloat) {
  const uint16_t* __restrict a = static_cast<const uint16_t*>(in);
  uint16_t* __restrict b = static_cast<uint16_t*>(inout);
  for (int i = 0; i < n; ++i) b[i] = fromFloat(combine<op>(toFloat(a[i]), toFloat(b[i])));
}

// MPI has no 16-bit floats: they travel as 16-bit integers and are summed in fp32 by these.
#define VCOLL_PERF_OP(name, op, toFloat, fromFloat)                                                  \
  VCOLL_PERF_CLONES void name(void* in, void* inout, int* n, MPI_Datatype*) {                        \
    combineAll<op>(                                                                                  \
        in, inout, *n, [](uint16_t x) { return toFloat(x); }, [](float x) { return fromFloat(x); }); \
  }
VCOLL_PERF_OP(bfloat16Sum, vcollSum, bfloat16ToFloat, floatToBfloat16)
VCOLL_PERF_OP(bfloat16Prod, vcollProd, bfloat16ToFloat, floatToBfloat16)
VCOLL_PERF_OP(bfloat16Min, vcollMin, bfloat16ToFloat, floatToBfloat16)
VCOLL_PERF_OP(bfloat16Max, vcollMax, bfloat16ToFloat, floatToBfloat16)
VCOLL_PERF_OP(halfSum, vcollSum, halfToFloat, floatToHalf)
VCOLL_PERF_OP(halfProd, vcollProd, halfToFloat, floatToHalf)
VCOLL_PERF_OP(halfMin, vcollMin, halfToFloat, floatToHalf)
VCOLL_PERF_OP(halfMax, vcollMax, halfToFloat, floatToHalf)
#undef VCOLL_PERF_OP

MPI_Datatype mpiType(const PerfType& type) {
  switch (type.type) {
    case vcollInt8:
      return MPI_INT8_T;
    case vcollUint8:
      return MPI_UINT8_T;
    case vcollInt32:
      return MPI_INT32_T;
    case vcollUint32:
      return MPI_UINT32_T;
    case vcollInt64:
      return MPI_INT64_T;
    case vcollUint64:
      return MPI_UINT64_T;
    case vcollFloat32:
      return MPI_FLOAT;
    case vcollFloat64:
      return MPI_DOUBLE;
    default:
      return type.size == 2 ? MPI_UINT16_T : MPI_BYTE;
  }
}

MPI_Op makeOp(MPI_User_function* function) {
  MPI_Op op;
  MPI_Op_create(function, 1, &op);
  return op;
}

// The user operations live until MPI_Finalize.
MPI_Op mpiOp(const PerfType& type, vcollRedOp_t op) {
  if (type.type == vcollBfloat16) {
    static const MPI_Op ops[] = {makeOp(bfloat16Sum), makeOp(bfloat16Prod), makeOp(bfloat16Max), makeOp(bfloat16Min)};
    return ops[op];
  }
  if (type.type == vcollFloat16) {
    static const MPI_Op ops[] = {makeOp(halfSum), makeOp(halfProd), makeOp(halfMax), makeOp(halfMin)};
    return ops[op];
  }
  const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN};
  return ops[op];
}
static_assert(vcollSum == 0 && vcollProd == 1 && vcollMax == 2 && vcollMin == 3);

struct IntLayout {
  std::vector<int> counts;
  std::vector<int> displs;
  int own = 0;
  int rank = 0;
};

IntLayout toInts(const PeerCall& call) {
  IntLayout layout;
  MPI_Comm_rank(MPI_COMM_WORLD, &layout.rank);
  int at = 0;
  for (uint64_t count : call.counts) {
    layout.counts.push_back(static_cast<int>(count));
    layout.displs.push_back(at);
    at += static_cast<int>(count);
  }
  layout.own = layout.counts[static_cast<size_t>(layout.rank)];
  return layout;
}

void runAllGatherV(const PeerCall& call, const IntLayout& l, MPI_Datatype type) {
  char* recv = static_cast<char*>(call.recv);
  const auto part = [&](size_t r) { return recv + static_cast<size_t>(l.displs[r]) * call.type->size; };
  std::vector<MPI_Request> requests;
  switch (call.peer) {
    case Peer::kMpiV:
      MPI_Allgatherv(MPI_IN_PLACE, 0, type, recv, l.counts.data(), l.displs.data(), type, MPI_COMM_WORLD);
      break;
    case Peer::kEqual:
      MPI_Allgather(MPI_IN_PLACE, 0, type, recv, l.own, type, MPI_COMM_WORLD);
      break;
    case Peer::kPerOwner:
      for (size_t r = 0; r < l.counts.size(); ++r) {
        if (l.counts[r] > 0) MPI_Bcast(part(r), l.counts[r], type, static_cast<int>(r), MPI_COMM_WORLD);
      }
      break;
    case Peer::kPerOwnerNonblocking:
      for (size_t r = 0; r < l.counts.size(); ++r) {
        if (l.counts[r] == 0) continue;
        requests.emplace_back();
        MPI_Ibcast(part(r), l.counts[r], type, static_cast<int>(r), MPI_COMM_WORLD, &requests.back());
      }
      MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
      break;
  }
}

void runReduceScatterV(const PeerCall& call, const IntLayout& l, MPI_Datatype type, MPI_Op op) {
  const char* send = static_cast<const char*>(call.send);
  const auto part = [&](size_t r) { return send + static_cast<size_t>(l.displs[r]) * call.type->size; };
  std::vector<MPI_Request> requests;
  switch (call.peer) {
    case Peer::kMpiV:
      MPI_Reduce_scatter(send, call.recv, l.counts.data(), type, op, MPI_COMM_WORLD);
      break;
    case Peer::kEqual:
      MPI_Reduce_scatter_block(send, call.recv, l.own, type, op, MPI_COMM_WORLD);
      break;
    case Peer::kPerOwner:
      for (size_t r = 0; r < l.counts.size(); ++r) {
        if (l.counts[r] > 0) MPI_Reduce(part(r), call.recv, l.counts[r], type, op, static_cast<int>(r), MPI_COMM_WORLD);
      }
      break;
    case Peer::kPerOwnerNonblocking:
      for (size_t r = 0; r < l.counts.size(); ++r) {
        if (l.counts[r] == 0) continue;
        requests.emplace_back();
        MPI_Ireduce(part(r), call.recv, l.counts[r], type, op, static_cast<int>(r), MPI_COMM_WORLD, &requests.back());
      }
      MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
      break;
  }
}

}  // namespace

bool peerApplies(const PeerCall& call) {
  uint64_t total = 0;
  for (uint64_t count : call.counts) total += count;
  if (total > INT_MAX) return false;
  return !call.reduces || (call.op <= vcollMin && call.type->reducible);
}

std::vector<uint64_t> peerCounts(Peer peer, const std::vector<uint64_t>& counts, size_t elementSize) {
  if (peer != Peer::kEqual) return counts;
  uint64_t total = 0;
  for (uint64_t count : counts) total += count;
  const uint64_t unit = total * elementSize / 16 >= counts.size() ? 16 / elementSize : 1;
  return std::vector<uint64_t>(counts.size(), total / counts.size() / unit * unit);
}

void runPeer(const PeerCall& call) {
  const IntLayout layout = toInts(call);
  const MPI_Datatype type = mpiType(*call.type);
  if (call.reduces) {
    runReduceScatterV(call, layout, type, mpiOp(*call.type, call.op));
  } else {
    runAllGatherV(call, layout, type);
  }
}

}  // namespace vcoll::perf
