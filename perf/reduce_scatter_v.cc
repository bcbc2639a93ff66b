// SPDX-License-Identifier: Apache-2.0
// ReduceScatterV: every rank's contributions to a segment are reduced into its owner's memory.
#include "perf/collective.h"
#include "perf/values.h"

namespace vcoll::perf {
namespace {

char* at(const Case& c, const Buffer& buffer, uint64_t element) {
  return buffer.data + c.start + static_cast<size_t>(element) * c.type->size;
}

Reduction reductionOf(const Case& c) { return {c.type, c.op, c.ranks, c.seed}; }

void fill(const Case& c) {
  clearBuffer(c, c.send);
  fillInputs(reductionOf(c), c.rank, 0, c.layout->elements, at(c, c.send, 0));
  if (!c.inPlace) clearBuffer(c, c.recv);
}

// Windows: results lie at their segments; nothing else of the destination may change.
uint64_t checkWindow(const Case& c) {
  const Buffer& target = c.inPlace ? c.send : c.recv;
  uint64_t wrong = wrongGuards(c, target, c.layout->elements);
  for (const LayoutSegment& s : c.layout->segments) {
    const char* got = at(c, target, s.offset);
    if (s.owner == c.rank) {
      wrong += wrongResults(reductionOf(c), s.offset, s.count, got);
    } else if (c.inPlace) {
      wrong += wrongInputs(reductionOf(c), c.rank, s.offset, s.count, got);
    } else {
      wrong += touchedGuards(got, static_cast<size_t>(s.count) * c.type->size);
    }
  }
  return wrong;
}

uint64_t checkPrivate(const Case& c) {
  if (c.inPlace) {
    return wrongGuards(c, c.send, c.layout->elements) +
           wrongResults(reductionOf(c), c.ownOffset(), c.ownCount(), at(c, c.send, c.ownOffset()));
  }
  return wrongGuards(c, c.recv, c.ownCount()) +
         wrongResults(reductionOf(c), c.ownOffset(), c.ownCount(), at(c, c.recv, 0));
}

uint64_t check(const Case& c) {
  uint64_t wrong = c.window ? checkWindow(c) : checkPrivate(c);
  if (!c.inPlace) {
    wrong += wrongGuards(c, c.send, c.layout->elements);
    wrong += wrongInputs(reductionOf(c), c.rank, 0, c.layout->elements, at(c, c.send, 0));
  }
  return wrong;
}

vcollResult_t call(const Case& c, const Handles& h) {
  if (c.window) {
    const vcollWindow_t target = c.inPlace ? c.send.window : c.recv.window;
    return vcollPlanReduceScatterV(h.plan, c.send.window, c.start, target, c.start, c.op, h.stream);
  }
  void* recv = c.inPlace ? at(c, c.send, c.ownOffset()) : at(c, c.recv, 0);
  return vcollReduceScatterV(at(c, c.send, 0), recv, c.layout->counts.data(), c.type->type, c.op, h.comm, h.stream);
}

// All ranks' contributions have to be read once, by all ranks together.
size_t limitBytes(const Case& c) { return c.totalBytes(); }

}  // namespace

const Collective kReduceScatterV = {
    .program = "reduce_scatter_v_perf",
    .name = "ReduceScatterV",
    .reduces = true,
    .comparesInPlace = false,
    .fill = fill,
    .check = check,
    .call = call,
    .limitBytes = limitBytes,
};

}  // namespace vcoll::perf
