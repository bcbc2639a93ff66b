// SPDX-License-Identifier: Apache-2.0
#include "plan/costs.h"

#include <algorithm>
#include <cmath>

namespace vmuon {

double newtonSchulzFlops(uint64_t rows, uint64_t cols) {
  const auto m = static_cast<double>(std::min(rows, cols));
  const auto n = static_cast<double>(std::max(rows, cols));
  return rows == cols ? 20 * m * m * m : 6 * m * m * n + 14 * m * m * m;
}

double MeasuredCosts::seconds(uint64_t rows, uint64_t cols) const {
  for (const Shape& shape : {Shape{rows, cols}, Shape{cols, rows}}) {
    const auto found = times.find(shape);
    if (found != times.end()) return found->second;
  }
  const double flops = newtonSchulzFlops(rows, cols);
  double nearest = 0;  // distance as a factor
  double best = flops / 50e9;
  for (const auto& [shape, time] : times) {
    const double measured = newtonSchulzFlops(shape.first, shape.second);
    const double distance = std::max(measured / flops, flops / measured);
    if (nearest != 0 && distance >= nearest) continue;
    nearest = distance;
    best = time * (flops / measured);
  }
  return best;
}

double ToyCosts::seconds(uint64_t rows, uint64_t cols) const {
  const Shape shape = std::minmax(rows, cols);
  if (shape == Shape{256, 1536}) return 0.43;
  if (shape == Shape{1536, 1536}) return 0.53;
  return 0.43 + 0.57 * newtonSchulzFlops(rows, cols) / newtonSchulzFlops(8960, 1536);
}

std::vector<uint64_t> unitTimes(const UnitTable& table, const CostTable& costs) {
  std::vector<uint64_t> times(table.units.size(), 0);
  for (const Piece& piece : table.pieces) {
    for (const MatrixBlock& block : piece.blocks) {
      const double nanoseconds = std::round(costs.seconds(block.rows, block.cols) * 1e9);
      times[static_cast<size_t>(piece.unit)] += std::max(uint64_t{1}, static_cast<uint64_t>(nanoseconds));
    }
  }
  return times;
}

}  // namespace vmuon
