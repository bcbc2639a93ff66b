// SPDX-License-Identifier: Apache-2.0
// The least time the memory of this machine allows, measured in the same run: every rank copies or reads, all at once,
// as many bytes as the collective makes it.
#pragma once

#include <cstddef>

#include "perf/world.h"

namespace vcoll::perf {

// Microseconds in which all ranks, each with bytes of its own, can end a memcpy from from to to (to != nullptr) or a
// read of from: the CPU time of the slowest rank, or that of all ranks of a host over its cores if that is more.
// bufferBytes: size of the buffers; more bytes than that go round again. 0 when no rank has bytes.
double ceilingMicroseconds(const Member& member, const void* from, void* to, size_t bufferBytes, size_t bytes);

}  // namespace vcoll::perf
