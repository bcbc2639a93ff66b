// SPDX-License-Identifier: Apache-2.0
// What TCP gives between the ranks, measured with bare sockets in the same run.
#pragma once

#include <cstddef>

#include "perf/world.h"

namespace vcoll::perf {

// Bytes per microsecond; 0 with one rank.
struct LinkSpeed {
  double stream = 0;  // rank 0 sends to rank 1, all else is quiet
  double ring = 0;    // of each link, when all ranks send to the next one at the same time
};

// from and to: memory to send from and to receive into, of `bytes` each; it goes round when more is sent.
LinkSpeed measureLink(const Member& member, const char* from, char* to, size_t bytes);

}  // namespace vcoll::perf
