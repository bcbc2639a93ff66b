// SPDX-License-Identifier: Apache-2.0
// The table that makes a collective measurable: fill, call, check, and what its memory limit counts. One file per
// collective (all_gather_v.cc, reduce_scatter_v.cc); all else is shared.
#pragma once

#include <cstddef>
#include <cstdint>

#include "perf/layout.h"
#include "perf/types.h"
#include "vcoll/vcoll.h"

namespace vcoll::perf {

// Guard bytes before and after the data in every buffer.
inline constexpr size_t kGuardBytes = 256;

struct Buffer {
  char* data = nullptr;
  size_t bytes = 0;
  vcollWindow_t window = nullptr;
};

// One measured call shape. Element 0 of the layout is at byte start of both buffers.
struct Case {
  const PerfType* type;
  vcollRedOp_t op;
  const Layout* layout;
  uint64_t seed;
  int rank;
  int ranks;
  bool window;  // plan call on windows; else the any-memory call
  bool inPlace;
  size_t start;
  Buffer send;
  Buffer recv;

  size_t totalBytes() const { return static_cast<size_t>(layout->elements) * type->size; }
  uint64_t ownCount() const { return layout->counts[static_cast<size_t>(rank)]; }
  // Elements of the ranks before this one, in a packed layout.
  uint64_t ownOffset() const;
};

struct Handles {
  vcollComm_t comm;
  vcollPlan_t plan;      // window calls
  vcollStream_t stream;  // may be NULL
};

struct Collective {
  const char* program;
  const char* name;
  bool reduces;
  bool comparesInPlace;  // the block that peers and limit are compared with
  void (*fill)(const Case& c);
  // Wrong elements and touched guard bytes after a call.
  uint64_t (*check)(const Case& c);
  vcollResult_t (*call)(const Case& c, const Handles& handles);
  // Bytes that the collective makes this rank copy or read.
  size_t (*limitBytes)(const Case& c);
  // Repeats of a call leave the same result.
  bool repeatable(bool inPlace) const { return !reduces || !inPlace; }
};

extern const Collective kAllGatherV;
extern const Collective kReduceScatterV;

// ---- for the collectives' files ----

// Writes guard bytes into the whole part of a buffer that a case uses, data included.
void clearBuffer(const Case& c, const Buffer& buffer);
// Guard bytes that were touched before and after elements [0, count) of a buffer.
uint64_t wrongGuards(const Case& c, const Buffer& buffer, uint64_t count);

}  // namespace vcoll::perf
