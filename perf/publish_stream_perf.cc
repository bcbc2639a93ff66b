// SPDX-License-Identifier: Apache-2.0
// What trainers publish after a step, replayed over the ranks: vcoll's PublishStream beside broadcasts and coalesced
// gathers of MPI.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "perf/bridge.h"
#include "perf/link.h"
#include "perf/publish_peers.h"
#include "perf/publish_report.h"
#include "perf/session.h"
#include "perf/values.h"

namespace vcoll::perf {
namespace {

constexpr int kRounds = 3;
constexpr uint64_t kAlign = 4096;

using Clock = std::chrono::steady_clock;

double microsecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// One model on one rank: the items in a window for vcoll and in private memory for MPI.
class ModelRun {
 public:
  ModelRun(Session& session, const PublishRunOptions& options, const PublishModel& model, const Buffer& window,
           const Buffer& peerData)
      : session_(session),
        member_(session.member()),
        options_(options),
        load_(makePublishLoad(model, options.scale, member_.ranks())),
        data_(window),
        peerData_(peerData.data + kGuardBytes) {
    std::vector<vcollPublishItem_t> items;
    for (size_t i = 0; i < load_.items.size(); ++i) {
      const PublishItem& item = load_.items[i];
      items.push_back({i, item.owner, 0, kGuardBytes + item.offset, item.bytes});
    }
    vcollPublishConfig_t config = VCOLL_PUBLISH_CONFIG_INITIALIZER;
    config.copies = options.copies;
    if (options.copies == 2) config.copyStride = strideOf(load_);
    if (options.verify) config.verify = 1;
    session_.require(
        vcollPublishStreamCreate(session_.comm(), window.window, items.data(), items.size(), &config, &stream_),
        "vcollPublishStreamCreate");
  }
  ~ModelRun() { vcollPublishStreamDestroy(stream_); }
  ModelRun(const ModelRun&) = delete;
  ModelRun& operator=(const ModelRun&) = delete;

  // Bytes of a window that holds the model's items.
  static size_t windowBytes(const PublishLoad& load, int copies) {
    return strideOf(load) * static_cast<size_t>(copies - 1) + load.bytes + 2 * kGuardBytes;
  }

  const PublishLoad& load() const { return load_; }
  void setTimeline(double us) { load_.setTimeline(us); }

  // The time that our publish takes with all items ready, shortly measured.
  double measureTransfer() {
    std::vector<Contender> contenders{{[this] { ours(); }, {}, {}, {}}};
    TimingConfig timing;
    timing.iterations = 3;
    runBlocks(member_, timing, 1, 1, &contenders);
    return contenders[0].us();
  }

  PublishRow measure() {
    PublishRow row{};
    row.load = &load_;
    if (options_.check > 0) row.wrong = checkAll();
    std::vector<Contender> contenders;
    std::vector<std::vector<double>> pauses(1 + options_.peers.size());
    contenders.push_back({[&] { pauses[0].push_back(ours()); }, {}, {}, {}});
    for (size_t p = 0; p < options_.peers.size(); ++p) {
      if (!publishPeerApplies(options_.peers[p], load_)) continue;
      contenders.push_back({[&, p] { pauses[p + 1].push_back(theirs(options_.peers[p])); }, {}, {}, {}});
    }
    TimingConfig timing;
    timing.iterations = options_.iterations;
    runBlocks(member_, timing, options_.warmup, kRounds, &contenders);
    if (options_.check > 0) *row.wrong += wrongOfOurs(filledStep_);

    row.us = contenders[0].us();
    row.pauseUs = pauseOf(pauses[0], contenders[0]);
    row.iterations = contenders[0].iterations;
    size_t next = 1;
    for (size_t p = 0; p < options_.peers.size(); ++p) {
      PublishRow::PeerResult result{options_.peers[p], {}, 0};
      if (publishPeerApplies(options_.peers[p], load_)) {
        result.us = contenders[next].us();
        result.pauseUs = pauseOf(pauses[p + 1], contenders[next++]);
      }
      row.peers.push_back(result);
    }
    return row;
  }

 private:
  static uint64_t strideOf(const PublishLoad& load) {
    return (load.bytes + kGuardBytes + kAlign - 1) / kAlign * kAlign;
  }

  char* address(size_t item, uint64_t step) const {
    void* pointer = nullptr;
    session_.require(vcollPublishStreamAddress(stream_, item, step, &pointer), "vcollPublishStreamAddress");
    return static_cast<char*>(pointer);
  }

  // One step. fill: the owner's new bytes are written too. Returns the pause.
  double ours(bool fill = false) {
    ++step_;
    session_.require(vcollPublishStreamBegin(stream_, step_), "vcollPublishStreamBegin");
    Updates updates(load_, options_.compute, member_.rank());
    for (size_t k = 0; k < updates.owned().size(); ++k) {
      const size_t i = updates.owned()[k];
      updates.finish(k);
      if (fill) fillBytes(step_, load_.items[i].owner, load_.items[i].offset, load_.items[i].bytes, address(i, step_));
      session_.require(vcollPublishStreamPush(stream_, i, nullptr), "vcollPublishStreamPush");
    }
    session_.require(vcollPublishStreamEnd(stream_, step_), "vcollPublishStreamEnd");
    session_.require(vcollPublishStreamWait(stream_, 0, step_, nullptr), "vcollPublishStreamWait");
    const double pause = microsecondsSince(updates.end());
    session_.require(vcollPublishStreamWaitAll(stream_, step_, nullptr), "vcollPublishStreamWaitAll");
    return pause;
  }

  double theirs(PublishPeer peer) {
    return microsecondsSince(runPublishPeer(peer, load_, options_.compute, member_.rank(), peerData_));
  }

  // Wrong bytes over all ranks, after steps and calls with new data.
  uint64_t checkAll() {
    uint64_t wrong = 0;
    for (int round = 0; round < options_.check; ++round) {
      for (int copy = 0; copy < options_.copies; ++copy) {
        ours(true);
        wrong += wrongOfOurs(step_);
      }
      filledStep_ = step_;
      for (PublishPeer peer : options_.peers) {
        if (!publishPeerApplies(peer, load_)) continue;
        const uint64_t seed = ++peerSeed_;
        std::memset(peerData_, kGuardByte, load_.bytes);
        for (const PublishItem& item : load_.items) {
          if (item.owner == member_.rank()) {
            fillBytes(seed, item.owner, item.offset, item.bytes, peerData_ + item.offset);
          }
        }
        member_.barrier();
        theirs(peer);
        uint64_t wrongHere = 0;
        for (const PublishItem& item : load_.items) {
          wrongHere += wrongBytes(seed, item.owner, item.offset, item.bytes, 1, peerData_ + item.offset);
        }
        wrong += member_.sum(wrongHere);
      }
    }
    return wrong;
  }

  // seedOf: the step whose bytes the newest step carries.
  uint64_t wrongOfOurs(uint64_t seed) const {
    uint64_t wrong = 0;
    for (size_t i = 0; i < load_.items.size(); ++i) {
      const PublishItem& item = load_.items[i];
      // With two copies the bytes of a step that was not filled are those of the step before the one before it.
      const uint64_t own = options_.copies == 2 && (step_ - seed) % 2 != 0 ? seed - 1 : seed;
      wrong += wrongBytes(own, item.owner, item.offset, item.bytes, 1, address(i, step_));
    }
    const size_t copyEnd = kGuardBytes + load_.bytes;
    wrong += touchedGuards(data_.data, kGuardBytes);
    wrong += touchedGuards(data_.data + (options_.copies == 2 ? strideOf(load_) : 0) + copyEnd, kGuardBytes);
    return member_.sum(wrong);
  }

  // The longest pause over ranks, median over the timed iterations.
  double pauseOf(const std::vector<double>& all, const Contender& contender) const {
    const size_t timed = contender.iterations.size() / kRounds;
    const size_t round = timed + static_cast<size_t>(options_.warmup);
    std::vector<double> kept;
    for (size_t i = 0; i < all.size(); ++i) {
      if (i % round >= static_cast<size_t>(options_.warmup)) kept.push_back(all[i]);
    }
    return median(overRanks(member_.gather(kept), static_cast<size_t>(member_.ranks()), 3));
  }

  Session& session_;
  const Member& member_;
  const PublishRunOptions& options_;
  PublishLoad load_;
  const Buffer data_;
  char* const peerData_;
  vcollPublishStream_t stream_ = nullptr;
  uint64_t step_ = 0;
  uint64_t filledStep_ = 0;
  uint64_t peerSeed_ = 0;
};

int runAll(World& world, const PublishRunOptions& options, JsonReport& json, int argc, char** argv) {
  const Member member(world, 0);
  Session session(member, {options.timeoutSeconds, member.ranks()});
  size_t windowBytes = 0;
  size_t peerBytes = 0;
  for (const PublishModel* model : options.models) {
    const PublishLoad load = makePublishLoad(*model, options.scale, member.ranks());
    windowBytes = std::max(windowBytes, ModelRun::windowBytes(load, options.copies));
    peerBytes = std::max(peerBytes, static_cast<size_t>(load.bytes) + 2 * kGuardBytes);
  }
  const Buffer window = session.allocWindow(windowBytes);
  const Buffer peerData = session.allocPrivate(peerBytes);
  const LinkSpeed link = measureLink(member, peerData.data, window.data, peerBytes);

  const std::vector<RankInfo> infos = session.rankInfos();
  PublishReport report(options, link, json);
  if (member.first()) {
    RunInfo run{};
    run.program = "publish_stream_perf";
    vcollGetVersion(&run.libraryVersion);
    run.processes = world.processes();
    run.ranks = member.ranks();
    run.nodes = session.nodes();
    run.rails = session.rails();
    run.mpi = kHaveMpi;
    report.begin(argc, argv, run, infos);
  }
  for (const PublishModel* model : options.models) {
    std::memset(window.data, kGuardByte, window.bytes);
    member.barrier();
    ModelRun run(session, options, *model, window, peerData);
    double transferUs = 0;
    if (options.ready) {
      const PublishRow row = run.measure();
      transferUs = row.us;
      if (member.first()) report.add(row);
    }
    if (!options.timeline) continue;
    if (!options.ready) transferUs = run.measureTransfer();
    double computeUs = transferUs;
    if (options.gapUs >= 0) {
      // Of the busiest owner, when the mean item takes so long.
      const PublishLoad& load = run.load();
      const double busiest = static_cast<double>(load.mostOwned);
      computeUs = options.gapUs * static_cast<double>(load.items.size()) * busiest / static_cast<double>(load.bytes);
    }
    run.setTimeline(computeUs);
    const PublishRow row = run.measure();
    if (member.first()) report.add(row);
  }
  const int code = member.first() ? report.finish() : 0;
  return member.gather(code).front();
}

int publishStreamPerf(int argc, char** argv) {
  PublishRunOptions options;
  const ParseResult parsed = parsePublishOptions(argc, argv, kHaveMpi, &options);
  if (!parsed.run) {
    if (launcherProcess() == 0) fmt::print(parsed.code == 0 ? stdout : stderr, "{}", parsed.text);
    return parsed.code;
  }
  std::unique_ptr<ProcessBridge> bridge = makeBridge(&argc, &argv);
  std::string error;
  JsonReport json;
  if (bridge->process() == 0 && !options.jsonPath.empty()) json.open(options.jsonPath, &error);
  if (!allAgree(*bridge, error)) return kExitUsage;
  World world(std::move(bridge), 1);
  return runAll(world, options, json, argc, argv);
}

}  // namespace
}  // namespace vcoll::perf

int main(int argc, char** argv) { return vcoll::perf::publishStreamPerf(argc, argv); }
