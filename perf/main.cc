// SPDX-License-Identifier: Apache-2.0
// One program per collective; the build names it.
#include "perf/driver.h"

int main(int argc, char** argv) { return vcoll::perf::perfMain(argc, argv, vcoll::perf::VCOLL_PERF_COLLECTIVE); }
