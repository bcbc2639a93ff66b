// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/listener.h"

#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "base/params.h"
#include "bootstrap/acceptor.h"
#include "bootstrap/engine.h"
#include "bootstrap/hello.h"
#include "bootstrap/netif.h"
#include "bootstrap/socket.h"

namespace vcoll {
namespace {

constexpr int64_t kHelloMs = 5000;  // a connection that has not said hello by then is dropped

using Key = std::pair<Nonce, Purpose>;

// Who expects which connections. Made once, never freed.
struct Expectations {
  std::mutex mutex;
  std::condition_variable callbackDone;
  std::map<Key, std::shared_ptr<Listener::Accept>> accepts;
  const Key* running = nullptr;
};
Expectations& expectations() {
  static auto* const instance = new Expectations;
  return *instance;
}

// A connection that has not finished its hello. Progress thread only.
class Handshake final : public EventHandler {
 public:
  Handshake(Engine* engine, int fd, const Endpoint& peer) : engine_(engine), fd_(fd), peer_(peer) {}
  ~Handshake() override {
    engine_->cancelTimer(timer_);
    if (fd_ < 0) return;
    engine_->remove(fd_);
    closeFd(fd_);
  }
  Status start(uint64_t id);
  void drop(std::string_view why);
  void onEvents(uint32_t epollEvents) override;

 private:
  std::string_view checkHeader();
  void handOver();

  Engine* engine_;
  int fd_;
  Endpoint peer_;
  uint64_t id_ = 0;
  uint64_t timer_ = 0;
  HelloHeader header_;
  std::vector<std::byte> payload_;
  size_t got_ = 0;  // bytes of header and payload together
};

// Progress thread only; in order of arrival.
std::map<uint64_t, std::unique_ptr<Handshake>>& handshakes() {
  static auto* const instance = new std::map<uint64_t, std::unique_ptr<Handshake>>;
  return *instance;
}

// Strangers may hold this many descriptors for a few seconds, and never most of what the process has.
size_t maxHandshakes() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 64;
  return std::clamp<size_t>(limit.rlim_cur / 4, 16, 1024);
}

Status Handshake::start(uint64_t id) {
  id_ = id;
  VCOLL_TRY(engine_->add(fd_, EPOLLIN, this));
  timer_ = engine_->addTimer(Deadline::afterMs(kHelloMs), [this] { drop("it did not say hello"); });
  return {};
}

void Handshake::drop(std::string_view why) {
  logInfo("dropped a connection from {}: {}", peer_.text(), why);
  handshakes().erase(id_);  // frees this
}

// Empty while all that came so far may be the start of a hello.
std::string_view Handshake::checkHeader() {
  if (std::memcmp(header_.magic.data(), kHelloMagic.data(), std::min(got_, kHelloMagic.size())) != 0) {
    return "it does not speak vcoll's protocol";
  }
  if (got_ < sizeof header_) return {};
  if (header_.version != kHelloVersion) return "another version of the protocol";
  if (header_.payloadBytes > kMaxHelloPayload) return "its hello is too long";
  Expectations& expected = expectations();
  std::lock_guard lock(expected.mutex);
  if (!expected.accepts.contains({header_.nonce, static_cast<Purpose>(header_.purpose)})) {
    return "nobody here expects its nonce";
  }
  return {};
}

void Handshake::onEvents(uint32_t) {
  for (;;) {
    const bool inHeader = got_ < sizeof header_;
    const size_t wanted = inHeader ? sizeof header_ - got_ : sizeof header_ + payload_.size() - got_;
    if (wanted == 0) break;
    void* target = inHeader ? static_cast<void*>(reinterpret_cast<std::byte*>(&header_) + got_)
                            : payload_.data() + (got_ - sizeof header_);
    const ssize_t count = ::recv(fd_, target, wanted, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      drop("it closed the connection before its hello was complete");
      return;
    }
    got_ += static_cast<size_t>(count);
    if (!inHeader) continue;
    const std::string_view wrong = checkHeader();
    if (!wrong.empty()) {
      drop(wrong);
      return;
    }
    if (got_ == sizeof header_) payload_.resize(header_.payloadBytes);
  }
  handOver();
}

void Handshake::handOver() {
  const int fd = std::exchange(fd_, -1);
  engine_->remove(fd);
  const std::unique_ptr<Handshake> self = std::move(handshakes().at(id_));
  handshakes().erase(id_);
  setNoDelay(fd);
  const Key key{header_.nonce, static_cast<Purpose>(header_.purpose)};
  Expectations& expected = expectations();
  std::shared_ptr<Listener::Accept> accept;
  {
    std::lock_guard lock(expected.mutex);
    const auto found = expected.accepts.find(key);
    if (found != expected.accepts.end()) {
      accept = found->second;
      expected.running = &key;
    }
  }
  if (accept == nullptr) {
    closeFd(fd);
    return;
  }
  (*accept)(fd, std::move(payload_));
  {
    std::lock_guard lock(expected.mutex);
    expected.running = nullptr;
  }
  expected.callbackDone.notify_all();
}

struct ListenerState {
  Listener listener;
  std::unique_ptr<Acceptor> acceptor;
};
std::mutex openMutex;
std::atomic<ListenerState*> theListener{nullptr};

Status openListener(ListenerState& state) {
  Params fresh;
  VCOLL_TRY(readParams(&fresh));
  std::vector<IfAddress> interfaces;
  VCOLL_TRY(listInterfaces(&interfaces));
  IfAddress chosen;
  std::string why;
  VCOLL_TRY(chooseInterface(interfaces, fresh.socketIfname, fresh.socketFamily, &chosen, &why));
  VCOLL_TRY(Acceptor::open(chosen.endpoint, receiveHello, &state.acceptor));
  logInfo("listening at {}: {}", state.acceptor->endpoint().text(), why);
  return {};
}

}  // namespace

void receiveHello(int fd, const Endpoint& peer) {
  static uint64_t lastId = 0;  // progress thread only
  static const size_t limit = maxHandshakes();
  auto& pending = handshakes();
  if (pending.size() >= limit) pending.begin()->second->drop("too many connections without a hello; it was the oldest");
  Engine* engine = nullptr;
  if (!Engine::get(&engine).ok()) {
    closeFd(fd);
    return;
  }
  const uint64_t id = ++lastId;
  auto& handshake = *pending.emplace(id, std::make_unique<Handshake>(engine, fd, peer)).first->second;
  const Status started = handshake.start(id);
  if (!started.ok()) handshake.drop(started.text());
}

Nonce randomNonce() {
  Nonce nonce{};
  size_t got = 0;
  while (got < sizeof nonce) {
    const ssize_t count = ::getrandom(reinterpret_cast<char*>(&nonce) + got, sizeof nonce - got, 0);
    if (count > 0) {
      got += static_cast<size_t>(count);
    } else if (errno != EINTR) {
      // No source of randomness: still unlike any other process's and any other call's nonce.
      static std::atomic<uint64_t> calls{0};
      const auto now = static_cast<uint64_t>(Deadline::Clock::now().time_since_epoch().count());
      nonce = {mix64(now ^ mix64(static_cast<uint64_t>(::getpid()))), mix64(++calls ^ mix64(now))};
      break;
    }
  }
  return nonce;
}

Status Listener::get(Listener** listener) {
  Engine* engine = nullptr;
  VCOLL_TRY(Engine::get(&engine));  // refuses forked children
  ListenerState* state = theListener.load();
  if (state == nullptr) {
    std::lock_guard lock(openMutex);
    state = theListener.load();
    if (state == nullptr) {
      auto fresh = std::make_unique<ListenerState>();
      VCOLL_TRY(openListener(*fresh));
      state = fresh.release();
      theListener = state;
    }
  }
  *listener = &state->listener;
  return {};
}

const Endpoint& Listener::endpoint() const { return theListener.load()->acceptor->endpoint(); }

void Listener::expect(const Nonce& nonce, Purpose purpose, Accept accept) {
  Expectations& expected = expectations();
  std::lock_guard lock(expected.mutex);
  expected.accepts[{nonce, purpose}] = std::make_shared<Accept>(std::move(accept));
}

void Listener::forget(const Nonce& nonce, Purpose purpose) {
  if (inForkedChild()) return;
  const Key key{nonce, purpose};
  Expectations& expected = expectations();
  std::shared_ptr<Accept> dropped;  // destroyed after the lock: its captures may come back here
  std::unique_lock lock(expected.mutex);
  const auto found = expected.accepts.find(key);
  if (found != expected.accepts.end()) {
    dropped = std::move(found->second);
    expected.accepts.erase(found);
  }
  Engine* engine = nullptr;
  if (!Engine::get(&engine).ok() || engine->onProgressThread()) return;
  expected.callbackDone.wait(lock, [&] { return expected.running == nullptr || *expected.running != key; });
}

}  // namespace vcoll
