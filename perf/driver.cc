// SPDX-License-Identifier: Apache-2.0
#include "perf/driver.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <thread>

#include "perf/bridge.h"
#include "perf/ceiling.h"
#include "perf/peers.h"
#include "perf/session.h"

namespace vcoll::perf {
namespace {

constexpr int kPeerRounds = 3;

// One sweep on one rank.
class RankRun {
 public:
  // json: rank 0 writes it, if it is open.
  RankRun(const Member& member, const Options& options, const Collective& collective, JsonReport& json, int argc,
          char** argv)
      : member_(member),
        options_(options),
        collective_(collective),
        json_(json),
        session_(member, {options.timeoutSeconds, options.nodes}) {
    if (options_.nullStream == 0) session_.require(vcollHostStreamCreate(&stream_), "vcollHostStreamCreate");
    allocate();
    printHeader(argc, argv);
  }
  ~RankRun() { vcollHostStreamDestroy(stream_); }
  RankRun(const RankRun&) = delete;
  RankRun& operator=(const RankRun&) = delete;

  int run() {
    for (int cycle = 0; options_.cycles == 0 || cycle < options_.cycles; ++cycle) sweep();
    return finish();
  }

 private:
  Layout layoutOf(uint64_t size, const PerfType& type) const {
    Layout layout;
    std::string error;
    if (!makeLayout(options_.distribution, member_.ranks(), size, type.size, &layout, &error)) {
      member_.world().fail(kExitInvalidUsage, error);
    }
    // Any-memory calls know one part per rank.
    return options_.window ? layout : packedLayout(layout.counts);
  }

  void allocate() {
    size_t most = 0;
    for (const PerfType* type : options_.types) {
      for (uint64_t size : sweepSizes(options_)) {
        most = std::max(most, startOf(*type) + static_cast<size_t>(layoutOf(size, *type).elements) * type->size);
      }
    }
    most += kGuardBytes;
    // AllGatherV on windows uses one buffer; the other one is only a source of the limit's copies.
    send_ = options_.window && collective_.reduces ? session_.allocWindow(most) : session_.allocPrivate(most);
    recv_ = options_.window ? session_.allocWindow(most) : session_.allocPrivate(most);
    peerSend_ = options_.peers.empty() ? send_ : session_.allocPrivate(most);
    peerRecv_ = options_.peers.empty() ? recv_ : session_.allocPrivate(most);
  }

  size_t startOf(const PerfType& type) const { return kGuardBytes + static_cast<size_t>(options_.unalign) * type.size; }

  void printHeader(int argc, char** argv) {
    const std::vector<RankInfo> infos = session_.rankInfos();
    if (!member_.first()) return;
    RunInfo run{};
    run.program = collective_.program;
    vcollGetVersion(&run.libraryVersion);
    run.processes = member_.world().processes();
    run.ranks = member_.ranks();
    run.nodes = session_.nodes();
    run.rails = session_.rails();
    run.mpi = kHaveMpi;
    if (!options_.jsonPath.empty()) json_.begin(argc, argv, options_, run, infos);
    for (const std::string& warning : options_.warnings) fmt::print(stderr, "warning: {}\n", warning);
    fmt::print("{}{}", headerText(options_, run, infos), columnText(options_));
    std::fflush(stdout);
  }

  void sweep() {
    for (const PerfType* type : options_.types) {
      const std::vector<vcollRedOp_t> ops = collective_.reduces ? options_.ops : std::vector<vcollRedOp_t>{vcollSum};
      for (vcollRedOp_t op : ops) {
        for (uint64_t size : sweepSizes(options_)) measureSize(*type, op, size);
      }
    }
  }

  void measureSize(const PerfType& type, vcollRedOp_t op, uint64_t size) {
    const Layout layout = layoutOf(size, type);
    vcollPlan_t plan = options_.window ? session_.makePlan(layout, type) : nullptr;
    const Handles handles{session_.comm(), plan, stream_};
    Case c{&type,           op,    &layout,       ++seed_, member_.rank(), member_.ranks(),
           options_.window, false, startOf(type), send_,   recv_};
    Row row{};
    row.bytes = c.totalBytes();
    row.count = *std::max_element(layout.counts.begin(), layout.counts.end());
    row.type = type.name;
    row.op = "none";
    for (const PerfOp& known : kOps) {
      if (collective_.reduces && known.op == op) row.op = known.name;
    }
    row.comparesInPlace = collective_.comparesInPlace;
    const bool onlyInPlace = options_.window && !collective_.reduces;
    for (bool inPlace : {false, true}) {
      if (onlyInPlace && !inPlace) continue;
      c.inPlace = inPlace;
      (inPlace ? row.inPlace : row.outOfPlace) =
          measureBlock(c, handles, inPlace == row.comparesInPlace ? &row : nullptr);
    }
    if (onlyInPlace) row.outOfPlace = row.inPlace;
    measureLimit(c, &row);
    report(row);
    session_.require(vcollPlanDestroy(plan), "vcollPlanDestroy");
  }

  // Fills, calls once, checks; returns wrong elements over all ranks.
  uint64_t checkOnce(const Case& c, const std::function<void()>& once, const std::function<void()>& done) {
    collective_.fill(c);
    member_.barrier();
    once();
    if (done) done();
    return member_.sum(collective_.check(c));
  }

  Measurement measureBlock(Case c, const Handles& handles, Row* peersInto) {
    std::vector<Contender> contenders(1);
    contenders[0].once = [&] { session_.require(collective_.call(c, handles), collective_.name); };
    if (stream_ != nullptr) {
      contenders[0].finish = [&] { session_.require(vcollHostStreamSynchronize(stream_), collective_.name); };
    }
    uint64_t wrong = 0;
    for (int round = 0; round < options_.check && wrong == 0; ++round) {
      c.seed = ++seed_;
      wrong = checkOnce(c, contenders[0].once, contenders[0].finish);
    }
    if (options_.check == 0) collective_.fill(c);
    std::vector<PeerCall> calls;
    if (peersInto != nullptr) preparePeers(c, &calls, peersInto);
    for (const PeerCall& call : calls) contenders.push_back({[&call] { runPeer(call); }, {}, {}, {}});

    TimingConfig timing{options_.iterations, options_.aggregate,    options_.blocking,
                        options_.average,    options_.cpuTime != 0, options_.threads == 1};
    runBlocks(member_, timing, options_.warmup, calls.empty() ? 1 : kPeerRounds, &contenders);

    if (options_.check > 0 && wrong == 0 && collective_.repeatable(c.inPlace))
      wrong = member_.sum(collective_.check(c));
    if (member_.first()) totals_.wrong += wrong;
    Measurement m;
    m.us = contenders[0].us();
    m.iterations = contenders[0].iterations;
    if (m.us > 0) m.algBw = static_cast<double>(c.totalBytes()) / m.us / 1e3;
    m.busBw = m.algBw * c.layout->busFactor();
    if (options_.check > 0) m.wrong = wrong;
    size_t next = 1;
    if (peersInto != nullptr) {
      for (PeerResult& result : peersInto->peers) {
        if (next >= contenders.size() || calls[next - 1].peer != result.peer) continue;
        result.us = contenders[next++].us();
        result.ratio = m.us > 0 ? *result.us / m.us : 0;
      }
    }
    return m;
  }

  // The peers that can do this case, checked once each.
  void preparePeers(const Case& ours, std::vector<PeerCall>* calls, Row* row) {
    for (Peer peer : options_.peers) {
      row->peers.push_back({peer, {}, 0});
      PeerCall call{peer,
                    collective_.reduces,
                    ours.type,
                    ours.op,
                    peerCounts(peer, ours.layout->counts, ours.type->size),
                    peerSend_.data + ours.start,
                    peerRecv_.data + ours.start};
      if (!peerApplies(call)) continue;
      if (options_.check > 0) {
        const Layout layout = packedLayout(call.counts);
        Case c = ours;
        c.layout = &layout;
        c.window = false;
        c.inPlace = !collective_.reduces;
        c.send = peerSend_;
        c.recv = peerRecv_;
        const uint64_t wrong = checkOnce(c, [&] { runPeer(call); }, {});
        if (wrong > 0 && member_.first()) {
          fmt::print(stderr, "{}: {} wrong elements from MPI at {} bytes\n", peerName(peer), wrong, ours.totalBytes());
          totals_.wrong += wrong;
        }
      }
      calls->push_back(std::move(call));
    }
  }

  void measureLimit(const Case& c, Row* row) {
    const size_t room = std::max(c.totalBytes(), size_t{1});
    row->limitUs = ceilingMicroseconds(member_, peerSend_.data, collective_.reduces ? nullptr : peerRecv_.data, room,
                                       collective_.limitBytes(c));
    const double ours = (row->comparesInPlace ? row->inPlace : row->outOfPlace).us;
    row->limitFraction = ours > 0 ? row->limitUs / ours : 0;
  }

  void report(Row& row) {
    if (!member_.first()) return;
    if (options_.timestamps != 0) row.timestamp = timestampNow();
    totals_.busBwSum += row.outOfPlace.busBw + row.inPlace.busBw;
    totals_.busBwCount += 2;
    fmt::print("{}", rowText(options_, row));
    std::fflush(stdout);
    if (!options_.jsonPath.empty()) json_.add(options_, row);
  }

  int finish() {
    const double minBandwidth = minBandwidthFromEnv();
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const std::vector<long> peaks = member_.gather(usage.ru_maxrss);
    int code = exitCode(totals_, minBandwidth);
    if (member_.first()) {
      if (options_.memoryReport != 0) {
        fmt::print("# Peak resident memory : {} MiB (largest process)\n",
                   *std::max_element(peaks.begin(), peaks.end()) / 1024);
      }
      fmt::print("{}", footerText(options_, totals_, minBandwidth));
      std::fflush(stdout);
      std::string error;
      if (!options_.jsonPath.empty() && !json_.finish(totals_, minBandwidth, &error)) {
        fmt::print(stderr, "{}\n", error);
        code = kExitInternal;
      }
    }
    // Rank 0 keeps the totals; all ranks exit alike.
    return member_.gather(code).front();
  }

  Member member_;
  const Options& options_;
  const Collective& collective_;
  JsonReport& json_;
  Session session_;
  vcollStream_t stream_ = nullptr;
  Buffer send_, recv_, peerSend_, peerRecv_;
  uint64_t seed_ = 0;
  Totals totals_;
};

}  // namespace

int perfMain(int argc, char** argv, const Collective& collective) {
  Options options;
  const ParseResult parsed = parseOptions(argc, argv, collective.program, collective.reduces, kHaveMpi, &options);
  if (!parsed.run) {
    if (launcherProcess() == 0) fmt::print(parsed.code == 0 ? stdout : stderr, "{}", parsed.text);
    return parsed.code;
  }
  if (!kHaveMpi && launcherProcesses() > 1 && options.threads > 1) {
    if (launcherProcess() == 0) {
      fmt::print(stderr, "-t: one rank per process when a launcher started several and there is no MPI\n");
    }
    return kExitInvalidUsage;
  }
  // What is wrong only now is said once, and every process ends in the ordinary way: an abort would bury the line.
  std::unique_ptr<ProcessBridge> bridge = makeBridge(&argc, &argv);
  std::string error;
  checkAgainstRanks(&options, bridge->processes() * options.threads, &error);
  if (!allAgree(*bridge, error)) return kExitUsage;
  JsonReport json;
  if (bridge->process() == 0 && !options.jsonPath.empty()) json.open(options.jsonPath, &error);
  if (!allAgree(*bridge, error)) return kExitUsage;

  World world(std::move(bridge), options.threads);
  std::atomic<int> code{0};
  const auto rankMain = [&](int thread) {
    RankRun run(Member(world, thread), options, collective, json, argc, argv);
    const int mine = run.run();
    if (thread == 0) code = mine;
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < options.threads; ++thread) others.emplace_back(rankMain, thread);
  rankMain(0);
  for (std::thread& other : others) other.join();
  return code;
}

}  // namespace vcoll::perf
