// SPDX-License-Identifier: Apache-2.0
// One call on private buffers, checked byte by byte: the result, the bytes around and between, the send buffer.
#pragma once

#include <string>
#include <vector>

#include "harness.h"
#include "values.h"

namespace suite {

struct Shape {
  vcollDataType_t type = vcollUint8;
  std::vector<size_t> counts;
  std::vector<size_t> displs;  // AllGatherV; empty: NULL
  bool inPlace = false;
  size_t tailElements = 0;  // guard between the buffers' ends and the protected page, which moves their start
  vcollRedOp_t op = vcollSum;
  std::string text() const;
};

class PrivateCalls {
 public:
  explicit PrivateCalls(vcollComm_t comm);
  // compareMpi: MPI makes the same call, too.
  void allGatherV(const Shape& shape, uint64_t seed, bool compareMpi = false);
  void reduceScatterV(const Shape& shape, uint64_t seed, bool compareMpi = false);
  // AllGatherV and a float ReduceScatterV of the same counts, in place and not.
  void both(const std::vector<size_t>& counts, uint64_t seed);
  size_t rank() const { return rank_; }
  size_t ranks() const { return ranks_; }

 private:
  vcollComm_t comm_;
  size_t rank_ = 0;
  size_t ranks_ = 1;
  GuardedBuffer send_;
  GuardedBuffer recv_;
};

}  // namespace suite
