// SPDX-License-Identifier: Apache-2.0
// How long it takes to orthogonalise matrices of given shapes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plan/units.h"

namespace vmuon {

using Shape = std::pair<uint64_t, uint64_t>;  // rows, columns

// Operations of Gram Newton-Schulz (standard for squares) with five steps and one restart; symmetric products at half
// cost.
double newtonSchulzFlops(uint64_t rows, uint64_t cols);

class CostTable {
 public:
  virtual ~CostTable() = default;
  // Of one orthogonalisation; more than 0.
  virtual double seconds(uint64_t rows, uint64_t cols) const = 0;
};

// Measured times. A shape without one takes its transpose's, then operations at the rate of the measured shape that is
// nearest in operations; without any measured shape, at 50 GFLOP/s.
class MeasuredCosts final : public CostTable {
 public:
  double seconds(uint64_t rows, uint64_t cols) const override;
  bool has(uint64_t rows, uint64_t cols) const { return times.count({rows, cols}) != 0; }

  std::map<Shape, double> times;
};

// Operations at a fixed rate.
class FlopCosts final : public CostTable {
 public:
  explicit FlopCosts(double flopsPerSecond = 50e9) : rate_(flopsPerSecond) {}
  double seconds(uint64_t rows, uint64_t cols) const override { return newtonSchulzFlops(rows, cols) / rate_; }

 private:
  double rate_;
};

// Number of elements, for comparison: what balancing by size would do.
class ElementCosts final : public CostTable {
 public:
  double seconds(uint64_t rows, uint64_t cols) const override { return static_cast<double>(rows * cols) * 1e-9; }
};

// A GPU on which small matrices cost mostly their kernel launches, in units of Qwen2.5-1.5B's MLP matrix: 0.43 for that
// model's k and v, 0.53 for q and o, 1 for the MLP; other shapes 0.43 + 0.57 of the MLP's operations.
class ToyCosts final : public CostTable {
 public:
  double seconds(uint64_t rows, uint64_t cols) const override;
};

// Times of units in nanoseconds: whole numbers, so that sums are the same everywhere. 0 without orthogonalisations,
// else at least 1.
std::vector<uint64_t> unitTimes(const UnitTable& table, const CostTable& costs);

}  // namespace vmuon
