// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/engine.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace vcoll {
namespace {

constexpr uint32_t kWakeTag = 0;  // no registration has this generation

struct Registration {
  uint64_t token;  // unique: tells a registration from an earlier one of the same fd number
  EventHandler* handler;
};

// The whole state. Made once, never freed: the thread uses it until the process ends.
struct Loop {
  std::mutex mutex;
  std::condition_variable stepDone;
  int epollFd = -1;
  int wakeFd = -1;
  bool wakePending = false;
  uint64_t lastToken = 0;
  std::unordered_map<int, Registration> registrations;
  std::unordered_set<int> inSets;  // the descriptors that poll sets watch
  std::vector<std::function<void()>> tasks;
  std::map<std::pair<Deadline::Clock::time_point, uint64_t>, std::function<void()>> timers;
  std::unordered_map<uint64_t, Deadline::Clock::time_point> timerTimes;
  uint64_t runningToken = 0;  // of the handler or timer that runs now; tokens are shared by both
  Engine engine;
};

std::mutex startMutex;
std::atomic<Loop*> theLoop{nullptr};
std::atomic<bool> forkedChild{false};
thread_local bool onLoopThread = false;

// A forked child must not keep our connections open: the peers of a killed parent would never see them close. The mutex
// is taken before the fork, so that the child finds the table whole.
void beforeFork() {
  if (Loop* loop = theLoop.load()) loop->mutex.lock();
}
void afterForkInParent() {
  if (Loop* loop = theLoop.load()) loop->mutex.unlock();
}
void afterForkInChild() {
  forkedChild = true;
  Loop* loop = theLoop.load();
  if (loop == nullptr) return;
  for (const auto& [fd, registration] : loop->registrations) ::close(fd);
  for (const int fd : loop->inSets) ::close(fd);
  ::close(loop->epollFd);
  ::close(loop->wakeFd);
  loop->mutex.unlock();
}

uint64_t eventTag(int fd, uint64_t token) { return token << 32 | static_cast<uint32_t>(fd); }

void wake(Loop& loop) {  // mutex held
  if (onLoopThread || loop.wakePending) return;
  loop.wakePending = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(loop.wakeFd, &one, sizeof one);
}

void runTasks(Loop& loop) {
  std::vector<std::function<void()>> tasks;
  {
    std::lock_guard lock(loop.mutex);
    tasks.swap(loop.tasks);
  }
  for (auto& task : tasks) {
    task();
    task = nullptr;
  }
}

void finishStep(Loop& loop) {
  {
    std::lock_guard lock(loop.mutex);
    loop.runningToken = 0;
  }
  loop.stepDone.notify_all();
}

void runTimers(Loop& loop) {
  const auto now = Deadline::Clock::now();
  for (;;) {
    std::function<void()> task;
    {
      std::lock_guard lock(loop.mutex);
      const auto first = loop.timers.begin();
      if (first == loop.timers.end() || first->first.first > now) return;
      loop.runningToken = first->first.second;
      task = std::move(first->second);
      loop.timerTimes.erase(first->first.second);
      loop.timers.erase(first);
    }
    task();
    task = nullptr;
    finishStep(loop);
  }
}

int waitMs(Loop& loop) {
  std::lock_guard lock(loop.mutex);
  if (!loop.tasks.empty()) return 0;
  if (loop.timers.empty()) return -1;
  const auto left = loop.timers.begin()->first.first - Deadline::Clock::now();
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return ms <= 0 ? 0 : ms > INT_MAX ? INT_MAX : static_cast<int>(ms);
}

void dispatch(Loop& loop, const epoll_event& event) {
  const int fd = static_cast<int>(event.data.u64 & 0xffffffffu);
  EventHandler* handler = nullptr;
  {
    std::lock_guard lock(loop.mutex);
    if (event.data.u64 >> 32 == kWakeTag) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = ::read(loop.wakeFd, &count, sizeof count);
      loop.wakePending = false;
      return;
    }
    const auto found = loop.registrations.find(fd);
    if (found == loop.registrations.end() || eventTag(fd, found->second.token) != event.data.u64) return;
    handler = found->second.handler;
    loop.runningToken = found->second.token;
  }
  handler->onEvents(event.events);
  finishStep(loop);
}

void* runLoop(void* argument) {
  Loop& loop = *static_cast<Loop*>(argument);
  onLoopThread = true;
  std::array<epoll_event, 64> events;
  for (;;) {
    runTasks(loop);
    runTimers(loop);
    const int count = ::epoll_wait(loop.epollFd, events.data(), static_cast<int>(events.size()), waitMs(loop));
    for (int i = 0; i < count; ++i) dispatch(loop, events[static_cast<size_t>(i)]);
  }
  return nullptr;
}

Status startThread(Loop& loop) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // inherited: signals are the application's business
  pthread_t thread;
  const int error = pthread_create(&thread, nullptr, runLoop, &loop);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) return systemError("starting the progress thread", error);
  pthread_setname_np(thread, "vcoll-progress");
  pthread_detach(thread);
  return {};
}

Status startLoop(Loop& loop) {
  loop.epollFd = ::epoll_create1(EPOLL_CLOEXEC);
  if (loop.epollFd < 0) return systemError("epoll_create1 for the progress thread");
  loop.wakeFd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (loop.wakeFd < 0) return systemError("eventfd for the progress thread");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = eventTag(loop.wakeFd, kWakeTag);
  if (::epoll_ctl(loop.epollFd, EPOLL_CTL_ADD, loop.wakeFd, &event) != 0) {
    return systemError("epoll_ctl for the progress thread's eventfd");
  }
  return startThread(loop);
}

// Tags carry 32 bits of a token; 0 is taken by the wake fd.
uint64_t nextToken(Loop& loop) {
  if ((++loop.lastToken & 0xffffffffu) == kWakeTag) ++loop.lastToken;
  return loop.lastToken;
}

void awaitStep(Loop& loop, std::unique_lock<std::mutex>& lock, uint64_t token) {
  if (onLoopThread) return;
  loop.stepDone.wait(lock, [&] { return loop.runningToken != token; });
}

}  // namespace

bool inForkedChild() { return forkedChild.load(std::memory_order_relaxed); }

Status Engine::get(Engine** engine) {
  if (inForkedChild()) {
    return makeError(vcollInvalidUsage, "vcoll was used before fork() and cannot be used in the child process");
  }
  Loop* loop = theLoop.load();
  if (loop == nullptr) {
    std::lock_guard lock(startMutex);
    loop = theLoop.load();
    if (loop == nullptr) {
      static const int atfork = pthread_atfork(beforeFork, afterForkInParent, afterForkInChild);
      if (atfork != 0) return systemError("pthread_atfork for the progress thread", atfork);
      auto fresh = std::make_unique<Loop>();
      const Status started = startLoop(*fresh);
      if (!started.ok()) {
        if (fresh->epollFd >= 0) ::close(fresh->epollFd);
        if (fresh->wakeFd >= 0) ::close(fresh->wakeFd);
        return started;
      }
      loop = fresh.release();
      theLoop = loop;
    }
  }
  *engine = &loop->engine;
  return {};
}

Status Engine::add(int fd, uint32_t epollEvents, EventHandler* handler) {
  Loop& loop = *theLoop.load();
  std::lock_guard lock(loop.mutex);
  const uint64_t token = nextToken(loop);
  epoll_event event{};
  event.events = epollEvents;
  event.data.u64 = eventTag(fd, token);
  if (::epoll_ctl(loop.epollFd, EPOLL_CTL_ADD, fd, &event) != 0) {
    return systemError(formatText("epoll_ctl to watch fd {}", fd));
  }
  loop.registrations[fd] = {token, handler};
  return {};
}

Status Engine::modify(int fd, uint32_t epollEvents, EventHandler* handler) {
  Loop& loop = *theLoop.load();
  std::lock_guard lock(loop.mutex);
  const auto found = loop.registrations.find(fd);
  if (found == loop.registrations.end()) return makeError(vcollInternalError, "fd {} is not watched", fd);
  epoll_event event{};
  event.events = epollEvents;
  event.data.u64 = eventTag(fd, found->second.token);
  if (::epoll_ctl(loop.epollFd, EPOLL_CTL_MOD, fd, &event) != 0) {
    return systemError(formatText("epoll_ctl to change the events of fd {}", fd));
  }
  found->second.handler = handler;
  return {};
}

void Engine::remove(int fd) {
  if (inForkedChild()) return;
  Loop& loop = *theLoop.load();
  std::unique_lock lock(loop.mutex);
  const auto found = loop.registrations.find(fd);
  if (found == loop.registrations.end()) return;
  const uint64_t token = found->second.token;
  ::epoll_ctl(loop.epollFd, EPOLL_CTL_DEL, fd, nullptr);
  loop.registrations.erase(found);
  awaitStep(loop, lock, token);
}

void Engine::post(std::function<void()> task) {
  if (inForkedChild()) return;
  Loop& loop = *theLoop.load();
  std::lock_guard lock(loop.mutex);
  loop.tasks.push_back(std::move(task));
  wake(loop);
}

uint64_t Engine::addTimer(Deadline at, std::function<void()> task) {
  if (inForkedChild()) return 0;
  Loop& loop = *theLoop.load();
  std::lock_guard lock(loop.mutex);
  const uint64_t id = nextToken(loop);
  loop.timers.emplace(std::pair{at.at(), id}, std::move(task));
  loop.timerTimes[id] = at.at();
  if (loop.timers.begin()->first.second == id) wake(loop);
  return id;
}

void Engine::cancelTimer(uint64_t id) {
  if (inForkedChild()) return;
  Loop& loop = *theLoop.load();
  std::function<void()> dropped;  // destroyed after the lock: its captures may come back here
  std::unique_lock lock(loop.mutex);
  const auto found = loop.timerTimes.find(id);
  if (found != loop.timerTimes.end()) {
    const auto timer = loop.timers.find({found->second, id});
    dropped = std::move(timer->second);
    loop.timers.erase(timer);
    loop.timerTimes.erase(found);
    return;
  }
  awaitStep(loop, lock, id);
}

bool Engine::onProgressThread() const { return onLoopThread; }

Status PollSet::open(Engine* engine) {
  fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (fd_ < 0) return systemError("epoll_create1 for a set of sockets");
  const Status added = engine->add(fd_, EPOLLIN, this);
  if (added.ok()) engine_ = engine;
  return added;
}

PollSet::~PollSet() {
  if (fd_ < 0 || inForkedChild()) return;
  if (engine_ != nullptr) engine_->remove(fd_);
  ::close(fd_);
}

Status PollSet::add(int fd, uint32_t epollEvents, EventHandler* handler) {
  Loop& loop = *theLoop.load();
  std::lock_guard lock(loop.mutex);
  epoll_event event{};
  event.events = epollEvents;
  event.data.ptr = handler;
  if (::epoll_ctl(fd_, EPOLL_CTL_ADD, fd, &event) != 0) return systemError(formatText("epoll_ctl to watch fd {}", fd));
  loop.inSets.insert(fd);
  return {};
}

Status PollSet::modify(int fd, uint32_t epollEvents, EventHandler* handler) {
  epoll_event event{};
  event.events = epollEvents;
  event.data.ptr = handler;
  if (::epoll_ctl(fd_, EPOLL_CTL_MOD, fd, &event) == 0) return {};
  return systemError(formatText("epoll_ctl to change the events of fd {}", fd));
}

void PollSet::remove(int fd) {
  if (inForkedChild()) return;
  Loop& loop = *theLoop.load();
  std::lock_guard lock(loop.mutex);
  if (loop.inSets.erase(fd) != 0) ::epoll_ctl(fd_, EPOLL_CTL_DEL, fd, nullptr);
}

void PollSet::attend(bool on) {
  if (attended_ == on) return;
  attended_ = on;
  (void)engine_->modify(fd_, on ? 0u : uint32_t{EPOLLIN}, this);
}

bool PollSet::poll() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && serve();
}

void PollSet::onEvents(uint32_t) {
  const std::lock_guard lock(mutex_);
  serve();
}

bool PollSet::serve() {
  std::array<epoll_event, 16> events;
  const int count = ::epoll_wait(fd_, events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    static_cast<EventHandler*>(event.data.ptr)->onEvents(event.events);
  }
  return count > 0;
}

}  // namespace vcoll
