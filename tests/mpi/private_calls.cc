// SPDX-License-Identifier: Apache-2.0
#include "private_calls.h"

#include <numeric>

namespace suite {

namespace {

MPI_Datatype mpiType(vcollDataType_t type) {
  switch (type) {
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
      return MPI_DATATYPE_NULL;
  }
}

MPI_Op mpiOp(vcollRedOp_t op) {
  switch (op) {
    case vcollSum:
      return MPI_SUM;
    case vcollProd:
      return MPI_PROD;
    case vcollMax:
      return MPI_MAX;
    case vcollMin:
      return MPI_MIN;
    default:
      return MPI_OP_NULL;
  }
}

std::vector<int> asInts(const std::vector<size_t>& values, size_t factor) {
  std::vector<int> ints;
  for (const size_t value : values) ints.push_back(static_cast<int>(value * factor));
  return ints;
}

}  // namespace

std::string Shape::text() const {
  std::string all = say("{} {} {}tail {} counts", typeName(type), opName(op), inPlace ? "in place " : "", tailElements);
  for (const size_t count : counts) all += say(" {}", count);
  if (!displs.empty()) all += " displs";
  for (const size_t displ : displs) all += say(" {}", displ);
  return all;
}

PrivateCalls::PrivateCalls(vcollComm_t comm) : comm_(comm) {
  int size = 0;
  int rank = 0;
  MUST(vcollCommCount(comm, &size));
  MUST(vcollCommUserRank(comm, &rank));
  ranks_ = static_cast<size_t>(size);
  rank_ = static_cast<size_t>(rank);
}

void PrivateCalls::allGatherV(const Shape& shape, uint64_t seed, bool compareMpi) {
  const size_t element = sizeOfType(shape.type);
  std::vector<size_t> places = shape.displs;
  size_t extent = 0;
  for (size_t r = 0, sum = 0; r < ranks_; sum += shape.counts[r++]) {
    if (shape.displs.empty()) places.push_back(sum);
    if (shape.counts[r] > 0) extent = std::max(extent, places[r] + shape.counts[r]);
  }
  const size_t tail = shape.tailElements * element;
  recv_.reset(extent * element, tail);
  std::vector<unsigned char> expected = recv_.image();
  for (size_t r = 0; r < ranks_; ++r) {
    fillBytes(expected.data() + GuardedBuffer::kLead + places[r] * element, shape.counts[r] * element, seed, r);
  }
  const size_t mine = shape.counts[rank_];
  unsigned char* own = recv_.data() + places[rank_] * element;
  if (!shape.inPlace) {
    send_.reset(mine * element, tail);
    own = send_.data();
  }
  fillBytes(own, mine * element, seed, rank_);
  const std::vector<unsigned char> sent = shape.inPlace ? std::vector<unsigned char>() : send_.image();

  const vcollResult_t result =
      vcollAllGatherV(mine == 0 ? nullptr : own, mine, extent == 0 ? nullptr : recv_.data(), shape.counts.data(),
                      shape.displs.empty() ? nullptr : shape.displs.data(), shape.type, comm_, nullptr);
  EXPECT(result == vcollSuccess, "AllGatherV {}: {}", shape.text(), vcollGetLastError(comm_));
  if (result != vcollSuccess) throw Abandon();
  recv_.expectImage(expected, "AllGatherV " + shape.text());
  if (!shape.inPlace) send_.expectImage(sent, "send buffer of AllGatherV " + shape.text());
  if (!compareMpi) return;
  std::vector<unsigned char> theirs(extent * element + 1, GuardedBuffer::kGuard);
  const std::vector<int> counts = asInts(shape.counts, element);
  MPI_Allgatherv(own, static_cast<int>(mine * element), MPI_BYTE, theirs.data(), counts.data(),
                 asInts(places, element).data(), MPI_BYTE, MPI_COMM_WORLD);
  EXPECT(std::memcmp(theirs.data(), recv_.data(), extent * element) == 0, "MPI_Allgatherv differs: {}", shape.text());
}

void PrivateCalls::reduceScatterV(const Shape& shape, uint64_t seed, bool compareMpi) {
  const size_t element = sizeOfType(shape.type);
  const size_t total = std::accumulate(shape.counts.begin(), shape.counts.end(), size_t{0});
  const size_t before =
      std::accumulate(shape.counts.begin(), shape.counts.begin() + static_cast<std::ptrdiff_t>(rank_), size_t{0});
  const size_t mine = shape.counts[rank_];
  const size_t tail = shape.tailElements * element;
  send_.reset(total * element, tail);
  fillElements(send_.data(), shape.type, shape.op, 0, total, seed, rank_);
  std::vector<unsigned char> sent = send_.image();
  unsigned char* own = send_.data() + before * element;
  std::vector<unsigned char> theirs(mine * element + 1);
  if (compareMpi) {
    MPI_Reduce_scatter(send_.data(), theirs.data(), asInts(shape.counts, 1).data(), mpiType(shape.type),
                       mpiOp(shape.op), MPI_COMM_WORLD);
  }
  if (!shape.inPlace) {
    recv_.reset(mine * element, tail);
    own = recv_.data();
  }
  std::vector<unsigned char> expected = shape.inPlace ? std::vector<unsigned char>() : recv_.image();

  const vcollResult_t result = vcollReduceScatterV(total == 0 ? nullptr : send_.data(), mine == 0 ? nullptr : own,
                                                   shape.counts.data(), shape.type, shape.op, comm_, nullptr);
  EXPECT(result == vcollSuccess, "ReduceScatterV {}: {}", shape.text(), vcollGetLastError(comm_));
  if (result != vcollSuccess) throw Abandon();
  std::vector<unsigned char>& target = shape.inPlace ? sent : expected;
  const size_t at = GuardedBuffer::kLead + (shape.inPlace ? before * element : 0);
  fillReduced(target.data() + at, own, shape.type, shape.op, before, mine, seed, ranks_);
  if (!shape.inPlace) recv_.expectImage(expected, "ReduceScatterV " + shape.text());
  send_.expectImage(sent, "send buffer of ReduceScatterV " + shape.text());
  if (compareMpi) {
    EXPECT(std::memcmp(theirs.data(), own, mine * element) == 0, "MPI_Reduce_scatter differs: {}", shape.text());
  }
}

void PrivateCalls::both(const std::vector<size_t>& counts, uint64_t seed) {
  for (const bool inPlace : {false, true}) {
    Shape shape;
    shape.type = vcollFloat32;
    shape.counts = counts;
    shape.inPlace = inPlace;
    allGatherV(shape, seed);
    reduceScatterV(shape, seed);
  }
}

}  // namespace suite
