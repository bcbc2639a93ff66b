// SPDX-License-Identifier: Apache-2.0
// What the build chooses: programs with MPI are linked with bridge_mpi.cc and peers_mpi.cc, others with bridge_none.cc
// and peers_none.cc. All else is the same object code.
#pragma once

#include <memory>

#include "perf/world.h"

namespace vcoll::perf {

extern const bool kHaveMpi;

// With MPI: MPI_Init, once; the bridge's end is MPI_Finalize. Without: vcoll itself under a launcher (with a warning),
// else alone.
std::unique_ptr<ProcessBridge> makeBridge(int* argc, char*** argv);

}  // namespace vcoll::perf
