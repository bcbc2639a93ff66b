// SPDX-License-Identifier: Apache-2.0
// One TCP connection of the tcp wire: frames out through a short queue, frames in straight to where they belong.
//
// Who runs where: put and signal on the caller's thread, everything else on the thread that serves the communicator's
// sockets, with the poll set's mutex held: the progress thread, or a caller that waits. A connection that lingers is
// the progress thread's alone. mutex_ guards the sending side only; who serves gives it up while it is inside sendmsg,
// so callers never wait for a long copy. Only who serves closes the descriptor.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"
#include "bootstrap/engine.h"
#include "transport/host/wire.h"

namespace vcoll {

// What the connections of one communicator share.
struct TcpShared {
  vcollWireHost_v1 host{};
  PollSet sockets;
  std::atomic<int64_t> unflushed{0};  // queued puts whose source is the caller's memory
  // Guards and announces handshakes: a connection came up, failed before that, or was accepted.
  std::mutex mutex;
  std::condition_variable changed;
};

// What travels, in host byte order (a peer of the other order fails the check of `kind`). A put's payload follows it.
struct TcpFrame {
  static constexpr uint32_t kMagic = 0x76570100;  // the low byte is the kind, the next one the version
  static constexpr uint32_t kUp = kMagic | 1;     // the first frame: the sender listens
  static constexpr uint32_t kPut = kMagic | 2;
  static constexpr uint32_t kSignal = kMagic | 3;
  static constexpr uint32_t kBye = kMagic | 4;  // the last frame: an orderly end

  uint32_t kind = 0;
  uint32_t window = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t add = 0;
  uint32_t counter = 0;
  uint32_t zero = 0;
};
static_assert(sizeof(TcpFrame) == 40);

class TcpConnection final : public EventHandler {
 public:
  // Owns fd from here on. name: "rank 3 at 10.0.0.1:4000", for error texts.
  TcpConnection(Engine* engine, TcpShared* shared, int peer, std::string name, int fd);
  ~TcpConnection() override;

  // Begins to serve the socket and tells the peer that this side is up.
  Status start();

  // The peer's side is up.
  bool up() const { return up_.load(std::memory_order_acquire); }
  // Ended by the peer or lost: puts are dropped.
  bool over() const { return over_.load(std::memory_order_acquire); }
  // Why it failed before it was up, or empty. Call with shared->mutex held.
  const std::string& failure() const { return failure_; }
  const std::string& name() const { return name_; }

  bool ready() const { return !full_.load(std::memory_order_acquire); }
  void put(const void* source, uint64_t bytes, uint32_t window, uint64_t offset, uint32_t counter, uint64_t add);
  // hold: may wait for the next put or flush() and go with it.
  void signal(uint32_t counter, uint64_t add, bool hold);
  void flush();

  // These run with shared->sockets.mutex() held.
  void onEvents(uint32_t epollEvents) override;
  // The window is gone. A put that is being received into it breaks the connection.
  void forgetWindow(uint32_t window);
  // No callbacks after this. Says bye and frees itself when the peer has seen it; graceful: delivers what is queued
  // first.
  static void release(std::unique_ptr<TcpConnection> connection, bool graceful);

 private:
  struct Entry {
    TcpFrame frame;
    const std::byte* source = nullptr;
    std::unique_ptr<std::byte[]> own;  // the payload, once the caller's memory can't be used any more
    uint64_t sent = 0;                 // bytes of frame and payload that the kernel has taken
    uint64_t left() const { return sizeof(TcpFrame) + (source != nullptr ? frame.bytes : 0) - sent; }
  };

  struct Batch;
  void send(const TcpFrame& frame, const void* source, bool hold);
  bool mergeSignal(const TcpFrame& frame);
  void updateFull();
  Status listen(bool output);
  void gather(Batch* batch);
  bool consume(uint64_t bytes);
  void sendNow();
  void dropQueue();
  void failSend(int error);
  void sendQueued();

  void receive();
  bool parse();
  bool accept(const TcpFrame& frame);
  void discard();

  void closeSocket();
  void lose(const std::string& why);
  void endOrderly();
  void beginLinger(bool deliver);
  void linger();
  void endLinger();

  Engine* const engine_;
  TcpShared* shared_;  // nullptr while lingering
  const int peer_;
  const std::string name_;
  int fd_;

  std::atomic<bool> up_{false};
  std::atomic<bool> over_{false};
  std::atomic<bool> full_{false};
  std::string failure_;

  // Sending.
  std::mutex mutex_;
  std::deque<Entry> queue_;
  uint64_t queuedBytes_ = 0;
  size_t inFlight_ = 0;  // entries at the front that a sendmsg is reading now
  bool armed_ = false;   // EPOLLOUT is asked for
  bool sendClosed_ = false;
  int sendError_ = 0;

  // Receiving. `ahead_` holds bytes that came behind the payload in the same call: the next frames, and the first bytes
  // of the next payload, which are copied from there.
  static constexpr size_t kAheadBytes = 4096;
  TcpFrame current_;
  std::byte* target_ = nullptr;
  uint64_t left_ = 0;  // bytes of the current payload still to come
  bool inPut_ = false;
  bool byeSeen_ = false;
  size_t aheadEnd_ = 0;
  alignas(8) std::byte ahead_[kAheadBytes];

  // Lingering.
  uint64_t timer_ = 0;
  bool counted_ = false;
};

}  // namespace vcoll
