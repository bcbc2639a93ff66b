// SPDX-License-Identifier: Apache-2.0
// A listening socket on the progress thread.
#pragma once

#include <functional>
#include <memory>

#include "bootstrap/engine.h"
#include "bootstrap/socket.h"

namespace vcoll {

class Acceptor final : public EventHandler {
 public:
  // onConnection runs on the progress thread and owns the fd (non-blocking, CLOEXEC).
  using OnConnection = std::function<void(int fd, const Endpoint& peer)>;
  static Status open(const Endpoint& at, OnConnection onConnection, std::unique_ptr<Acceptor>* acceptor);
  ~Acceptor() override;

  const Endpoint& endpoint() const { return endpoint_; }
  void onEvents(uint32_t epollEvents) override;

 private:
  Acceptor(Engine* engine, OnConnection onConnection) : engine_(engine), onConnection_(std::move(onConnection)) {}
  void pause(int errnoValue);

  Engine* engine_;
  OnConnection onConnection_;
  int fd_ = -1;
  Endpoint endpoint_;
  uint64_t resumeTimer_ = 0;
};

// Hands a fresh connection to the process's dispatch of hellos. Progress thread.
void receiveHello(int fd, const Endpoint& peer);

}  // namespace vcoll
