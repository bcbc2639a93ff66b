// SPDX-License-Identifier: Apache-2.0
// How the bytes of one collective are divided over ranks: the --dist option and the segments it comes to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perf/models.h"

namespace vcoll::perf {

struct Distribution {
  enum class Kind { kEven, kCycle, kRamp, kOneHot, kEvery, kModel, kFile };
  Kind kind = Kind::kCycle;
  std::vector<uint64_t> weights = {1, 2, 3};  // kCycle, kEvery: cycled; kFile: one per rank
  int k = 0;                                  // kOneHot: the owner; kEvery: the step
  const ModelShape* model = nullptr;
  bool allLayers = false;
  std::string text = "1:2:3";  // as given

  // Sizes are fixed by the distribution, not by -b and -e.
  bool fixedSize(bool sizesGiven) const { return kind == Kind::kModel || (kind == Kind::kFile && !sizesGiven); }
};

// even | a:b:c... | ramp | onehot:k | every:k | model:NAME[:all] | file:PATH. On failure *error says what is wrong.
// A file is not opened here: not every host may have it, and only ranks that have met can say so with one voice.
bool parseDistribution(std::string_view text, Distribution* distribution, std::string* error);
// Reads the numbers of file:PATH; nothing to do for others.
bool loadDistribution(Distribution* distribution, std::string* error);

// All in elements.
struct LayoutSegment {
  int owner;
  uint64_t offset;
  uint64_t count;
};

struct Layout {
  std::vector<LayoutSegment> segments;
  std::vector<uint64_t> counts;  // per rank, over all its segments
  uint64_t elements = 0;

  // The share of the total that the most loaded link has to carry: max over ranks of (total - own) / total.
  double busFactor() const;
};

// One segment per rank, in rank order, without gaps.
Layout packedLayout(const std::vector<uint64_t>& counts);

// The layout of at most totalBytes; parts are multiples of 16 bytes where there are enough bytes for that. A model (and
// a file whose numbers are bytes: totalBytes 0) ignores totalBytes. On failure (a file with another number of ranks, an
// owner out of range) *error says why.
bool makeLayout(const Distribution& distribution, int ranks, uint64_t totalBytes, size_t elementSize, Layout* layout,
                std::string* error);

// Owners of weighted items: the heaviest first, each to the least loaded rank (the lowest of equals).
std::vector<int> assignGreedy(const std::vector<uint64_t>& weights, int ranks);

}  // namespace vcoll::perf
