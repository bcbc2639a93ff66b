// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/collective.h"

namespace vcoll::perf {

// main() of a perf program.
int perfMain(int argc, char** argv, const Collective& collective);

}  // namespace vcoll::perf
