// SPDX-License-Identifier: Apache-2.0
// Measured times on disk (JSON), so that only the first run on a machine measures.
#pragma once

#include <string>

#include "plan/costs.h"

namespace vmuon {

// Times are used again only where all of this is the same.
struct CostKey {
  std::string cpu;           // cpuModel()
  std::string blas;          // name and version; threads if more than one
  std::string coefficients;  // of Newton-Schulz

  bool operator==(const CostKey&) const = default;
};

std::string cpuModel();  // from /proc/cpuinfo; "unknown" without it

// Adds the times stored for the key. Returns a note for people, empty if there is nothing to say: a file that does not
// exist is nothing, one that cannot be read or understood is ignored as a whole and named.
std::string loadCosts(const std::string& path, const CostKey& key, MeasuredCosts* costs);

// Stores the times under the key, beside those of other keys. Others see the old file or the new one, never a part.
// Returns a note, empty if it worked.
std::string saveCosts(const std::string& path, const CostKey& key, const MeasuredCosts& costs);

}  // namespace vmuon
