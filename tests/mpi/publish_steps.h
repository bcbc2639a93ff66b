// SPDX-License-Identifier: Apache-2.0
// What the suites of PublishStream share: items in a window, versions of them, and steps that write, push and check.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "harness.h"
#include "values.h"

namespace suite {

constexpr size_t kGap = 64;  // guard bytes between items

inline uint64_t idOf(size_t index) { return 1000 + 7 * index; }

// A window full of items, the same on every rank.
struct Layout {
  std::vector<vcollPublishItem_t> items;
  int copies = 1;
  uint64_t stride = 0;
  size_t windowBytes = 0;

  void add(int owner, uint64_t bytes) {
    const uint64_t offset = windowBytes + kGap;
    items.push_back({idOf(items.size()), owner, 0, offset, bytes});
    windowBytes = offset + bytes;
  }
  // Sizes from nothing to a few chunks, dealt over all ranks; some ranks own nothing.
  static Layout random(uint64_t seed, size_t count, int copies, uint64_t most) {
    Layout layout;
    layout.copies = copies;
    Random random(seed);
    for (size_t i = 0; i < count; ++i) {
      const auto owner = static_cast<int>(random.below(static_cast<uint64_t>(worldSize)));
      const uint64_t kind = random.below(8);
      layout.add(owner, kind == 0 ? 0 : kind == 1 ? 1 + random.below(15) : 1 + random.below(most));
    }
    layout.finish();
    return layout;
  }
  void finish() {
    windowBytes += kGap;
    stride = copies == 2 ? windowBytes : 0;
    windowBytes *= static_cast<size_t>(copies);
  }
};

class Stream {
 public:
  Stream(vcollComm_t comm, const Layout& layout, vcollPublishConfig_t config = VCOLL_PUBLISH_CONFIG_INITIALIZER,
         bool describeAll = true)
      : layout_(layout), comm_(comm) {
    MUST(vcollMemAlloc(&memory_, layout.windowBytes));
    std::memset(memory_, GuardedBuffer::kGuard, layout.windowBytes);
    MUST(vcollWindowRegister(comm, memory_, layout.windowBytes, &window_));
    config.copies = layout.copies;
    config.copyStride = layout.stride;
    std::vector<vcollPublishItem_t> listed;
    for (const vcollPublishItem_t& item : layout.items) {
      if (describeAll || item.owner == worldRank) listed.push_back(item);
    }
    MUST(vcollPublishStreamCreate(comm, window_, listed.data(), listed.size(), &config, &stream_));
    int node = 0;
    int local = 0;
    MUST(vcollCommRankNode(comm, worldRank, &node, &local));
    for (size_t i = 0; i < layout.items.size(); ++i) {
      int leader = -1;
      MUST(vcollPublishStreamGetLeader(stream_, layout.items[i].id, node, &leader));
      if (leader == worldRank) mine_.push_back(i);
    }
  }
  ~Stream() {
    const vcollResult_t result = vcollPublishStreamDestroy(stream_);
    EXPECT(result == vcollSuccess || failed_, "destroy: {}", vcollGetLastError(nullptr));
    EXPECT(vcollWindowDeregister(comm_, window_) == vcollSuccess, "{}", vcollGetLastError(nullptr));
    EXPECT(vcollMemFree(memory_) == vcollSuccess, "{}", vcollGetLastError(nullptr));
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  vcollPublishStream_t get() const { return stream_; }
  const Layout& layout() const { return layout_; }
  unsigned char* memory() const { return static_cast<unsigned char*>(memory_); }
  const vcollPublishItem_t& item(size_t i) const { return layout_.items[i]; }
  // Items that this rank has copies of.
  const std::vector<size_t>& mine() const { return mine_; }
  void expectFailure() { failed_ = true; }

  // The bytes of an item's version; every 64 of them hold the step.
  static void fill(unsigned char* out, const vcollPublishItem_t& item, uint64_t step) {
    fillBytes(out, item.bytes, step, item.id);
    for (uint64_t at = 0; at + 8 <= item.bytes; at += 64) std::memcpy(out + at, &step, 8);
  }
  void write(size_t i, uint64_t step) {
    void* place = nullptr;
    MUST(vcollPublishStreamAddress(stream_, item(i).id, step, &place));
    fill(static_cast<unsigned char*>(place), item(i), step);
  }
  void push(size_t i, uint64_t step, vcollStream_t hostStream = nullptr) {
    write(i, step);
    MUST(vcollPublishStreamPush(stream_, item(i).id, hostStream));
  }
  void expectVersion(size_t i, uint64_t step, const void* at) const {
    std::vector<unsigned char> expected(item(i).bytes);
    fill(expected.data(), item(i), step);
    const auto* got = static_cast<const unsigned char*>(at);
    const auto wrong = std::mismatch(expected.begin(), expected.end(), got).first;
    EXPECT(wrong == expected.end(), "item {} step {}: byte {} of {} is wrong", item(i).id, step,
           wrong - expected.begin(), expected.size());
  }
  void expectVersion(size_t i, uint64_t step) const {
    void* place = nullptr;
    MUST(vcollPublishStreamAddress(stream_, item(i).id, step, &place));
    expectVersion(i, step, place);
  }
  // Between and around items, and where this rank has no copies, nothing was touched.
  void expectGuards() const {
    std::vector<bool> used(layout_.windowBytes, false);
    for (const size_t i : mine_) {
      for (int copy = 0; copy < layout_.copies; ++copy) {
        const uint64_t begin = item(i).offset + static_cast<uint64_t>(copy) * layout_.stride;
        std::fill_n(used.begin() + static_cast<ptrdiff_t>(begin), item(i).bytes, true);
      }
    }
    size_t touched = 0;
    for (size_t at = 0; at < used.size(); ++at) touched += !used[at] && memory()[at] != GuardedBuffer::kGuard ? 1u : 0u;
    EXPECT(touched == 0, "{} bytes outside of this rank's copies were touched", touched);
  }

 private:
  const Layout layout_;
  vcollComm_t comm_;
  void* memory_ = nullptr;
  vcollWindow_t window_ = nullptr;
  vcollPublishStream_t stream_ = nullptr;
  std::vector<size_t> mine_;
  bool failed_ = false;
};

inline std::vector<size_t> ownItems(const Layout& layout) {
  std::vector<size_t> own;
  for (size_t i = 0; i < layout.items.size(); ++i) {
    if (layout.items[i].owner == worldRank) own.push_back(i);
  }
  return own;
}

inline vcollPublishConfig_t configWith(int path, int64_t chunkBytes, int verify) {
  vcollPublishConfig_t config = VCOLL_PUBLISH_CONFIG_INITIALIZER;
  config.path = path;
  config.chunkBytes = chunkBytes;
  config.verify = verify;
  return config;
}

// Steps of one stream: own items pushed in random order, all others read, each in an order of this rank's own.
inline void steps(Stream& stream, uint64_t first, int count, uint64_t seed, vcollStream_t hostStream = nullptr) {
  Random mineOnly(seed * 100 + static_cast<uint64_t>(worldRank));
  for (int s = 0; s < count; ++s) {
    const uint64_t step = first + 3 * static_cast<uint64_t>(s);
    MUST(vcollPublishStreamBegin(stream.get(), step));
    std::vector<size_t> own = ownItems(stream.layout());
    mineOnly.shuffle(&own);
    for (const size_t i : own) {
      stream.push(i, step, hostStream);
      if (mineOnly.below(4) == 0) std::this_thread::yield();
    }
    std::vector<size_t> read = stream.mine();
    mineOnly.shuffle(&read);
    for (const size_t i : read) {
      if (hostStream != nullptr && mineOnly.below(2) == 0) {
        MUST(vcollPublishStreamWait(stream.get(), stream.item(i).id, step, hostStream));
        MUST(vcollHostStreamSynchronize(hostStream));
      } else {
        MUST(vcollPublishStreamWait(stream.get(), stream.item(i).id, step, nullptr));
      }
      stream.expectVersion(i, step);
      int ready = 0;
      MUST(vcollPublishStreamTest(stream.get(), stream.item(i).id, step, &ready));
      EXPECT(ready == 1, "item {} step {} was there and is not ready", stream.item(i).id, step);
    }
    MUST(vcollPublishStreamWaitAll(stream.get(), step, hostStream));
    if (hostStream != nullptr) MUST(vcollHostStreamSynchronize(hostStream));
    MUST(vcollPublishStreamEnd(stream.get(), step));
  }
}

}  // namespace suite
