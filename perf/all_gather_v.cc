// SPDX-License-Identifier: Apache-2.0
// AllGatherV: every owner's bytes reach every rank.
#include "perf/collective.h"
#include "perf/values.h"

namespace vcoll::perf {
namespace {

char* at(const Case& c, const Buffer& buffer, uint64_t element) {
  return buffer.data + c.start + static_cast<size_t>(element) * c.type->size;
}

bool gathersInPlace(const Case& c) { return c.window || c.inPlace; }

void fill(const Case& c) {
  clearBuffer(c, c.recv);
  if (!gathersInPlace(c)) clearBuffer(c, c.send);
  for (const LayoutSegment& segment : c.layout->segments) {
    if (segment.owner != c.rank) continue;
    char* to = gathersInPlace(c) ? at(c, c.recv, segment.offset) : at(c, c.send, 0);
    fillBytes(c.seed, c.rank, segment.offset * c.type->size, static_cast<size_t>(segment.count) * c.type->size, to);
  }
}

uint64_t check(const Case& c) {
  uint64_t wrong = wrongGuards(c, c.recv, c.layout->elements);
  for (const LayoutSegment& s : c.layout->segments) {
    wrong += wrongBytes(c.seed, s.owner, s.offset * c.type->size, s.count, c.type->size, at(c, c.recv, s.offset));
  }
  if (!gathersInPlace(c)) {
    wrong += wrongGuards(c, c.send, c.ownCount());
    wrong += wrongBytes(c.seed, c.rank, c.ownOffset() * c.type->size, c.ownCount(), c.type->size, at(c, c.send, 0));
  }
  return wrong;
}

vcollResult_t call(const Case& c, const Handles& h) {
  if (c.window) return vcollPlanAllGatherV(h.plan, c.recv.window, c.start, h.stream);
  static_assert(sizeof(size_t) == sizeof(uint64_t));
  const void* send = c.inPlace ? at(c, c.recv, c.ownOffset()) : at(c, c.send, 0);
  return vcollAllGatherV(send, c.ownCount(), at(c, c.recv, 0), c.layout->counts.data(), nullptr, c.type->type, h.comm,
                         h.stream);
}

// A rank has to get what it does not own.
size_t limitBytes(const Case& c) { return static_cast<size_t>(c.layout->elements - c.ownCount()) * c.type->size; }

}  // namespace

const Collective kAllGatherV = {
    .program = "all_gather_v_perf",
    .name = "AllGatherV",
    .reduces = false,
    .comparesInPlace = true,
    .fill = fill,
    .check = check,
    .call = call,
    .limitBytes = limitBytes,
};

}  // namespace vcoll::perf
