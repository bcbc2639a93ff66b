// SPDX-License-Identifier: Apache-2.0
// How a host fabric comes up, and its windows. Running calls: host_run.cc.
#include "transport/host/host_fabric.h"

#include <sched.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <unordered_map>

#include "base/hash.h"
#include "base/log.h"
#include "base/params.h"
#include "transport/host/wire_select.h"

namespace vcoll {

namespace {

// What all ranks must have set alike.
struct Setting {
  const char* name;
  int64_t value;
};
constexpr size_t kSettings = 10;
std::array<Setting, kSettings> settings(const HostFabric::Options& options) {
  const auto text = [](const std::string& value) {
    Digest digest;
    for (const char c : value) digest.add(static_cast<unsigned char>(c));
    return static_cast<int64_t>(digest.value() >> 1);
  };
  return {{{"library version", VCOLL_VERSION_CODE},
           {"VCOLL_CHUNK_BYTES", params().chunkBytes},
           {"VCOLL_SLOTS", params().slots},
           {"VCOLL_LANES", params().lanes},
           {"VCOLL_STAGING_BYTES", params().stagingBytes},
           {"VCOLL_DIRECT_BYTES", params().directBytes},
           {"VCOLL_PATH (as a hash)", text(params().path)},
           {"VCOLL_PARTIALS (as a hash)", text(params().partials)},
           {"VCOLL_HOP (as a hash)", text(params().hop)},
           {"VCOLL_CHECK", options.check ? 1 : 0}}};
}

struct Hello {
  std::array<int64_t, kSettings> settings;
  uint64_t machine;
  uint64_t host;   // machine and VCOLL_HOSTID
  cpu_set_t cpus;  // usable by the rank
  int64_t pid;
  const uint64_t* probe;  // where this rank's memory holds
  uint64_t probed;        // a value that no other rank has: a pid may name another process in another namespace
};

// Ranks and usable cores of each machine. Ranks bound to cores of their own have few each, but together enough.
struct Machine {
  int ranks = 0;
  cpu_set_t cpus{};
  bool roomy() const { return ranks <= CPU_COUNT(&cpus); }
};

struct Ready {
  bool readsPeers;
  unsigned char wireAddress[VCOLL_WIRE_ADDRESS_BYTES];
};

// May this process read the private memory of the rank that sent `hello`? Containers and ptrace rules may forbid it.
bool canRead(const Hello& hello) {
  uint64_t value = 0;
  const iovec here = {&value, sizeof value};
  const iovec there = {const_cast<uint64_t*>(hello.probe), sizeof value};
  return process_vm_readv(static_cast<pid_t>(hello.pid), &here, 1, &there, 1, 0) == sizeof value &&
         value == hello.probed;
}

// Ranks of another machine than this need not be tried.
uint64_t machineKey() {
  std::string text;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  if (!std::getline(file, text)) {
    char name[256] = {};
    gethostname(name, sizeof name - 1);
    text = name;
  }
  Digest digest;
  for (const char c : text) digest.add(static_cast<unsigned char>(c));
  return digest.value();
}

template <typename T>
Blob blobOf(const T& value) {
  Blob blob(sizeof value);
  std::memcpy(blob.data(), &value, sizeof value);
  return blob;
}

// A peer on this machine that cannot hand over a descriptor within this time counts as another node.
constexpr int64_t kHandshakeMs = 10000;

}  // namespace

const char* callName(CallKind kind) {
  switch (kind) {
    case CallKind::kAllGatherV:
      return "AllGatherV";
    case CallKind::kReduceScatterV:
      return "ReduceScatterV";
    case CallKind::kPlanCreate:
      return "PlanCreate";
    case CallKind::kWindowRegister:
      return "WindowRegister";
    case CallKind::kPublishStreamCreate:
      return "PublishStreamCreate";
    case CallKind::kSplit:
      return "CommSplit";
    case CallKind::kFinalize:
      return "CommFinalize";
    case CallKind::kNone:
      break;
  }
  return "no call";
}

Status HostFabric::open(Group& group, const Options& options, std::unique_ptr<HostFabric>* fabric) {
  std::unique_ptr<HostFabric> made(new HostFabric(group));
  made->options_ = options;
  made->openDeadline_ = Deadline::afterMs(options.timeoutMs);
  HostFabric* self = made.get();
  group.onRaised([self] {
    __atomic_store_n(&self->cancelled_, 1, __ATOMIC_SEQ_CST);
    ControlHeader* header = self->ownHeader_.load();
    if (header != nullptr) ringDoorbell(*header);
  });

  const auto mySettings = settings(options);
  Hello hello{};
  for (size_t i = 0; i < kSettings; ++i) hello.settings[i] = mySettings[i].value;
  hello.machine = machineKey();
  Digest host;
  host.add(hello.machine);
  for (const char c : options.hostId) host.add(static_cast<unsigned char>(c));
  hello.host = host.value();
  const uint64_t probe = mix64(group.nonce()[0] + static_cast<uint64_t>(group.rank()));
  hello.pid = getpid();
  hello.probe = &probe;
  hello.probed = probe;
  if (sched_getaffinity(0, sizeof hello.cpus, &hello.cpus) != 0) CPU_SET(0, &hello.cpus);
  // A wire that the user names is looked for even where it is not needed: a wrong name is an error everywhere.
  if (params().wire != "auto") VCOLL_TRY(selectWire(params().wire, &made->wire_));
  if (group.size() > 1) VCOLL_TRY(FdExchange::open(group.nonce(), group.rank(), &made->exchange_));

  std::vector<Blob> blobs;
  VCOLL_TRY(group.allGather("Init", blobOf(hello), &blobs, made->openDeadline_));
  std::vector<uint64_t> hosts;
  std::vector<Hello> hellos;
  std::unordered_map<uint64_t, Machine> machines;
  for (size_t rank = 0; rank < blobs.size(); ++rank) {
    Hello other{};
    if (blobs[rank].size() != sizeof other) {
      return makeError(vcollMismatch, "rank {} runs a library with another start-up message", rank);
    }
    std::memcpy(&other, blobs[rank].data(), sizeof other);
    Hello first{};
    std::memcpy(&first, blobs[0].data(), sizeof first);
    for (size_t i = 0; i < kSettings; ++i) {
      if (other.settings[i] != first.settings[i]) {
        return makeError(vcollMismatch, "{}: rank 0 has {}, rank {} has {}", mySettings[i].name, first.settings[i],
                         rank, other.settings[i]);
      }
    }
    hosts.push_back(other.host);
    hellos.push_back(other);
    Machine& machine = machines[other.machine];
    ++machine.ranks;
    CPU_OR(&machine.cpus, &machine.cpus, &other.cpus);
  }
  made->policy_ = makeWaitPolicy(machines[hello.machine].roomy());
  made->roomy_ = std::all_of(machines.begin(), machines.end(), [](const auto& entry) { return entry.second.roomy(); });

  std::vector<UniqueFd> fds;
  VCOLL_TRY(made->shareControl(hello.host, hosts, &fds));
  if (made->topology_->nodes() > 1) VCOLL_TRY(made->openWire());
  for (const uint32_t member : made->topology_->members(made->topology_->nodeOf(static_cast<uint32_t>(group.rank())))) {
    made->pids_.push_back(static_cast<int>(hellos[member].pid));
  }
  Ready ready{};
  ready.readsPeers = made->topology_->nodes() == 1 && std::all_of(hellos.begin(), hellos.end(), canRead);
  if (made->wireComm_ != nullptr) {
    std::memcpy(ready.wireAddress, made->wireAddress(group.rank()), sizeof ready.wireAddress);
  }
  // After this every rank's control memory has its size and can be mapped, and nobody reads probes any more.
  VCOLL_TRY(group.allGather("InitReady", blobOf(ready), &blobs, made->openDeadline_));
  made->readsPeers_ = true;
  for (size_t rank = 0; rank < blobs.size(); ++rank) {
    std::memcpy(&ready, blobs[rank].data(), std::min(blobs[rank].size(), sizeof ready));
    made->readsPeers_ = made->readsPeers_ && ready.readsPeers;
    if (made->wireComm_ != nullptr) {
      std::memcpy(made->wireAddress(static_cast<int>(rank)), ready.wireAddress, sizeof ready.wireAddress);
    }
  }
  for (size_t local = 0; local < fds.size(); ++local) {
    if (local == made->local_) continue;
    VCOLL_TRY(Mapping::make(fds[local].get(), 0, made->layout_.totalBytes, "control memory of a local rank",
                            &made->controlMappings_[local]));
    made->controls_[local] = ControlView(made->controlMappings_[local].base(), made->layout_);
    made->windows_[0]->bases[local] = made->controls_[local].staging();
  }
  *fabric = std::move(made);
  return {};
}

// Proves who shares memory with whom, which makes the topology; then gives this rank's control memory its size.
Status HostFabric::shareControl(uint64_t hostKey, const std::vector<uint64_t>& hostKeys, std::vector<UniqueFd>* fds) {
  const auto ranks = static_cast<size_t>(group_.size());
  const auto me = static_cast<size_t>(group_.rank());
  VCOLL_TRY(createSharedFile("control memory", &controlFd_));
  std::vector<int> candidates;
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (rank != me && hostKeys[rank] == hostKey) candidates.push_back(static_cast<int>(rank));
  }
  std::vector<UniqueFd> received;
  if (!candidates.empty()) {
    const Deadline deadline = Deadline::afterMs(std::min(kHandshakeMs, openDeadline_.leftMs()));
    VCOLL_TRY(exchange_.exchange(
        exchangeRound_++, controlFd_.get(), candidates, false, deadline, [this] { return group_.raised(); },
        &received));
  } else {
    ++exchangeRound_;
  }

  Blob shares(ranks, std::byte{0});
  shares[me] = std::byte{1};
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (received[i]) shares[static_cast<size_t>(candidates[i])] = std::byte{1};
  }
  std::vector<Blob> all;
  VCOLL_TRY(group_.allGather("InitNodes", shares, &all, openDeadline_));
  // A rank joins the first node all of whose ranks share memory with it, both ways.
  std::vector<std::vector<size_t>> nodes;
  std::vector<uint64_t> nodeKeys(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (all[rank].size() != ranks) return makeError(vcollMismatch, "rank {} sent a malformed node table", rank);
    const auto fits = [&](const std::vector<size_t>& members) {
      return std::all_of(members.begin(), members.end(), [&](size_t member) {
        return all[rank][member] == std::byte{1} && all[member][rank] == std::byte{1};
      });
    };
    const auto node = std::find_if(nodes.begin(), nodes.end(), fits);
    nodeKeys[rank] = static_cast<uint64_t>(node - nodes.begin());
    if (node == nodes.end()) nodes.emplace_back();
    nodes[nodeKeys[rank]].push_back(rank);
  }
  topology_ = std::make_unique<Topology>(nodeKeys);
  flow_ = makeFlowLayout(*topology_, static_cast<uint32_t>(params().slots), static_cast<uint64_t>(params().chunkBytes));
  layout_ = makeControlLayout(flow_, static_cast<uint64_t>(params().stagingBytes));
  const auto rank = static_cast<uint32_t>(me);
  local_ = topology_->localOf(rank);
  if (rank == 0) logInfo("fabric host: the only one in this build");
  logInfo("rank {} of {}: node {} of {}, local rank {}, {} rails, ring memory {} KiB", rank, ranks,
          topology_->nodeOf(rank), topology_->nodes(), local_, topology_->rails(), 2 * flow_.ringBytes() / 1024);

  const std::vector<uint32_t>& members = topology_->members(topology_->nodeOf(rank));
  fds->resize(members.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    const auto member = std::find(members.begin(), members.end(), static_cast<uint32_t>(candidates[i]));
    if (member != members.end()) (*fds)[static_cast<size_t>(member - members.begin())] = std::move(received[i]);
  }
  VCOLL_TRY(reserveSharedFile(controlFd_.get(), layout_.totalBytes, "control and staging memory"));
  controlMappings_.resize(members.size());
  std::vector<ControlView> controls(members.size());
  VCOLL_TRY(Mapping::make(controlFd_.get(), 0, layout_.totalBytes, "control memory", &controlMappings_[local_]));
  controls[local_] = ControlView(controlMappings_[local_].base(), layout_);
  controls_ = std::move(controls);
  ownHeader_ = &controls_[local_].header();

  auto staging = std::make_unique<HostWindow>();
  staging->id = nextWindow_++;
  staging->bytes = layout_.stagingBytes;
  staging->bases.resize(members.size());
  staging->bases[local_] = controls_[local_].staging();
  windows_.push_back(std::move(staging));

  const uint64_t queues = uint64_t{topology_->nodes()} * topology_->rails();
  baseWords_.assign(3 * uint64_t{flow_.ids()} + kPathKinds * queues, 0);
  bases_.ready = baseWords_.data();
  bases_.partial = bases_.ready + flow_.ids();
  bases_.credit = bases_.partial + flow_.ids();
  bases_.arrived = bases_.credit + flow_.ids();
  if (flow_.ringBytes() > 0) VCOLL_TRY(Mapping::make(-1, 0, 2 * flow_.ringBytes(), "slot rings", &rings_));
  reduceSources_.resize(members.size());
  reducePartials_.resize(topology_->nodes());
  return {};
}

Status HostFabric::openWire() {
  if (wire_ == nullptr) VCOLL_TRY(selectWire(params().wire, &wire_));
  wireHost_ = {this, resolve, signal, lost, wake};
  wireAddresses_.resize(static_cast<size_t>(group_.size()) * VCOLL_WIRE_ADDRESS_BYTES);
  char error[512] = {};
  const int rc = wire_->open(&wireHost_, group_.nonce().data(), group_.rank(), group_.size(),
                             wireAddress(group_.rank()), &wireComm_, error);
  if (rc != 0) return makeError(vcollSystemError, "wire {}: {}", wire_->name, error);
  return {};
}

HostFabric::~HostFabric() {
  group_.onRaised(nullptr);
  closeWire();
}

void HostFabric::closeWire() {
  if (wireComm_ == nullptr) return;
  wire_->close(wireComm_, group_.raised() ? 0 : 1);
  wireComm_ = nullptr;
}

Status HostFabric::connect(const Plan& plan) {
  if (wireComm_ == nullptr || plan.peers().empty()) return {};
  char error[512] = {};
  const int rc = wire_->connect(wireComm_, wireAddresses_.data(), plan.peers().data(),
                                static_cast<int>(plan.peers().size()), options_.timeoutMs, &cancelled_, error);
  if (rc == 0) return {};
  if (!group_.raised()) {
    group_.raise(makeError(vcollRemoteError, "rank {} cannot connect to its peers over {}: {}", group_.rank(),
                           wire_->name, error));
  }
  return group_.failure();
}

Status HostFabric::addWindow(unsigned char* own, uint64_t bytes, int fd, uint64_t fileOffset, HostWindow** window) {
  const std::vector<uint32_t>& members = topology_->members(topology_->nodeOf(static_cast<uint32_t>(group_.rank())));
  auto made = std::make_unique<HostWindow>();
  made->id = nextWindow_;
  made->bytes = bytes;
  made->bases.resize(members.size());
  made->bases[local_] = own;

  // Peers map whole pages; each rank's window may start anywhere in its file.
  std::vector<int> others;
  for (uint32_t member : members) {
    if (static_cast<int>(member) != group_.rank()) others.push_back(static_cast<int>(member));
  }
  std::vector<UniqueFd> fds;
  const Deadline deadline = Deadline::afterMs(options_.timeoutMs);
  Status status;
  if (!others.empty()) {
    status = exchange_.exchange(
        exchangeRound_++, fd, others, true, deadline, [this] { return group_.raised(); }, &fds);
  }
  std::vector<Blob> offsets;
  if (status.ok()) status = group_.allGather("WindowRegister offsets", blobOf(fileOffset), &offsets, deadline);
  size_t next = 0;
  for (size_t local = 0; local < members.size() && status.ok(); ++local) {
    Mapping mapping;
    if (local != local_) {
      uint64_t offset = 0;
      std::memcpy(&offset, offsets[members[local]].data(), sizeof offset);
      const uint64_t inPage = offset % 4096;
      status = Mapping::make(fds[next++].get(), offset - inPage, inPage + bytes + (inPage + bytes == 0 ? 1 : 0),
                             "a window of a local rank", &mapping);
      if (status.ok()) made->bases[local] = mapping.base() + inPage;
    }
    made->mappings.push_back(std::move(mapping));
  }
  char error[512] = {};
  if (status.ok() && wireComm_ != nullptr && wire_->windowAdd(wireComm_, made->id, own, bytes, error) != 0) {
    status = makeError(vcollSystemError, "wire {}: {}", wire_->name, error);
  }
  if (!status.ok()) {
    // The others may have succeeded: only an error everywhere keeps the ranks in step.
    group_.raise(status);
    return group_.failure();
  }
  ++nextWindow_;
  *window = made.get();
  std::lock_guard lock(windowsMutex_);
  windows_.push_back(std::move(made));
  return {};
}

void HostFabric::removeWindow(HostWindow* window) {
  std::unique_ptr<HostWindow> ended;
  {
    std::lock_guard lock(windowsMutex_);
    const auto found =
        std::find_if(windows_.begin(), windows_.end(), [window](const auto& entry) { return entry.get() == window; });
    if (found == windows_.end()) return;
    ended = std::move(*found);
    windows_.erase(found);
  }
  // resolve() refuses the window from here on. The wire waits for its progress thread, which may want the lock.
  if (wireComm_ != nullptr) wire_->windowRemove(wireComm_, ended->id);
}

void* HostFabric::resolve(void* context, uint32_t window, uint64_t offset, uint64_t bytes) {
  auto* self = static_cast<HostFabric*>(context);
  if (window == kRingWindow) {
    const uint64_t size = self->flow_.ringBytes();
    return offset <= size && bytes <= size - offset ? self->rings_.base() + offset : nullptr;
  }
  std::lock_guard lock(self->windowsMutex_);
  for (const auto& entry : self->windows_) {
    if (entry->id != window) continue;
    const bool inside = offset <= entry->bytes && bytes <= entry->bytes - offset;
    return inside ? entry->bases[self->local_] + offset : nullptr;
  }
  return nullptr;
}

void HostFabric::signal(void* context, uint32_t counter, uint64_t add) {
  auto* self = static_cast<HostFabric*>(context);
  if (counter >= kernels::kCounterKinds * self->layout_.ids) {
    self->group_.raise(makeError(vcollRemoteError, "a peer signalled counter {}, which does not exist", counter));
    return;
  }
  self->controls_[self->local_].counter(counter).fetch_add(add, std::memory_order_seq_cst);
  if (counter / self->layout_.ids == static_cast<uint32_t>(kernels::Counter::kArrived)) {
    self->wakeLocalRanks();  // they pull what arrives here
  }
  ringDoorbell(*self->ownHeader_.load());
}

void HostFabric::lost(void* context, int peer, const char* why) {
  auto* self = static_cast<HostFabric*>(context);
  self->group_.raise(makeError(vcollRemoteError, "rank {} was lost: {}", peer, why));
}

void HostFabric::wake(void* context) { ringDoorbell(*static_cast<HostFabric*>(context)->ownHeader_.load()); }

void HostFabric::wakeLocalRanks() {
  for (size_t local = 0; local < controls_.size(); ++local) {
    if (local != local_) ringDoorbell(controls_[local].header());
  }
}

}  // namespace vcoll
