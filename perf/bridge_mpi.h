// SPDX-License-Identifier: Apache-2.0
// Processes that were started by mpirun.
#pragma once

#include <memory>

#include "perf/world.h"

namespace vcoll::perf {

// MPI_Init, once; the bridge's end is MPI_Finalize.
std::unique_ptr<ProcessBridge> makeMpiBridge(int* argc, char*** argv);

}  // namespace vcoll::perf
