// SPDX-License-Identifier: Apache-2.0
// What the state machines need to compile everywhere: as device code under nvcc, as plain C++ elsewhere.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define VCOLL_HD __device__
#else
#define VCOLL_HD
#endif
