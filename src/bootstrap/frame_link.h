// SPDX-License-Identifier: Apache-2.0
// A connection that carries typed frames, without ever blocking.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "bootstrap/engine.h"

namespace vcoll {

using SharedBytes = std::shared_ptr<const std::vector<std::byte>>;

struct FrameHeader {
  static constexpr uint32_t kMagic = 0x4d524676;  // "vFRM"
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 31;
  uint32_t magic = kMagic;
  uint32_t type = 0;
  uint64_t bytes = 0;
};
static_assert(sizeof(FrameHeader) == 16);

// All members are for the progress thread only, but for the constructor. A callback may call any member; it must not
// destroy the link.
class FrameLink final : public EventHandler {
 public:
  using OnFrame = std::function<void(uint32_t type, SharedBytes payload)>;
  // Called once, after the fd was closed: 0 for an orderly end of the stream, else an errno (EPROTO: not a frame).
  using OnEnd = std::function<void(int errnoValue)>;

  FrameLink(Engine* engine, OnFrame onFrame, OnEnd onEnd)
      : engine_(engine), onFrame_(std::move(onFrame)), onEnd_(std::move(onEnd)) {}
  ~FrameLink() override { close(); }

  // Takes fd; frames sent so far go out. On an error the fd is closed.
  Status open(int fd);
  bool isOpen() const { return fd_ >= 0; }
  // Before open() frames wait; after the end they are dropped.
  void send(uint32_t type, SharedBytes payload);
  // After what is queued: no more is sent, and what comes is read until the peer closes, so that no reset destroys data
  // on its way to the peer.
  void finish();
  void close();

  void onEvents(uint32_t epollEvents) override;

 private:
  struct Outgoing {
    FrameHeader header;
    SharedBytes payload;
    size_t sent = 0;
  };
  void flush();
  void read();
  int readStep(bool* more);  // 0 or why the connection ended
  void end(int errnoValue);

  Engine* engine_;
  OnFrame onFrame_;
  OnEnd onEnd_;
  int fd_ = -1;
  bool ended_ = false;
  bool finishing_ = false;
  bool writable_ = true;  // false once a write failed: what was received is still read
  uint32_t events_ = 0;
  std::deque<Outgoing> queue_;
  FrameHeader header_;
  std::vector<std::byte> payload_;
  size_t got_ = 0;  // bytes of header and payload together
};

}  // namespace vcoll
