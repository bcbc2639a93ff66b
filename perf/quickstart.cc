// SPDX-License-Identifier: Apache-2.0
// The main job on one screen: the weights of one Qwen2.5-1.5B layer, each owned by one rank, gathered to all ranks and
// their gradients reduced to the owners, beside the same work done with MPI. Run by mpirun; ./dev quickstart does it.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "perf/bridge.h"
#include "perf/peers.h"
#include "perf/session.h"

namespace vcoll::perf {
namespace {

constexpr int kIterations = 6;
constexpr int kRounds = 3;

const PerfType& type() { return *findType("bfloat16"); }

Distribution layerDistribution() {
  Distribution d;
  std::string error;
  parseDistribution("model:qwen2.5-1.5b", &d, &error);
  return d;
}

Layout layerLayout(int ranks) {
  Layout layout;
  std::string error;
  makeLayout(layerDistribution(), ranks, 0, type().size, &layout, &error);
  return layout;
}

double megabytes(uint64_t elements) { return static_cast<double>(elements * type().size) / 1e6; }

void printTopology(const Session& session) {
  const std::vector<RankInfo> ranks = session.rankInfos();
  if (!session.member().first()) return;
  fmt::print("Topology   {} ranks on {} node{}, {} rail{}, {} cores\n", ranks.size(), session.nodes(),
             session.nodes() == 1 ? "" : "s", session.rails(), session.rails() == 1 ? "" : "s",
             sysconf(_SC_NPROCESSORS_ONLN));
  for (int node = 0; node < session.nodes(); ++node) {
    std::string list;
    const char* host = "";
    for (const RankInfo& r : ranks) {
      if (r.node != node) continue;
      list += fmt::format(" {}", r.rank);
      host = r.host;
    }
    fmt::print("  node {}   ranks{} on {}\n", node, list, host);
  }
}

void printPlan(const Session& session, const Layout& layout, vcollPlan_t plan) {
  vcollPlanInfo_t info = VCOLL_PLAN_INFO_INITIALIZER;
  session.require(vcollPlanGetInfo(plan, &info), "vcollPlanGetInfo");
  if (!session.member().first()) return;
  const std::vector<Matrix> matrices = layerMatrices(*layerDistribution().model);
  fmt::print("\nPlan       one layer of Qwen2.5-1.5B in bfloat16, {:.1f} MB: the seven matrices, each with one owner\n",
             megabytes(layout.elements));
  for (size_t i = 0; i < matrices.size(); ++i) {
    fmt::print("  {:<5} {:>5} x {:<5} {:>6.1f} MB   owner rank {}\n", matrices[i].name, matrices[i].rows,
               matrices[i].columns, megabytes(matrices[i].elements()), layout.segments[i].owner);
  }
  fmt::print("  path {}, {} segments, {} slices, {} chunks, predicted {:.1f} ms\n\n",
             info.path == vcollPathStar ? "star" : "chain", info.segments, info.slices, info.chunks,
             info.predictedUs / 1e3);
}

struct Memory {
  Buffer send, recv, peerSend, peerRecv;
};

// Fills, runs, checks and times one collective with its two peers; prints one line. Returns wrong elements.
uint64_t measure(const Session& session, const Collective& collective, const Layout& layout, const Memory& memory,
                 const Handles& handles) {
  const Member& member = session.member();
  Case c{&type(), vcollSum, &layout,     1,           member.rank(), member.ranks(),
         true,    false,    kGuardBytes, memory.send, memory.recv};
  const auto ours = [&] { session.require(collective.call(c, handles), collective.name); };
  std::vector<Contender> contenders;
  contenders.push_back({ours, {}, {}, {}});
  const Layout packed = packedLayout(layout.counts);
  Case peerCase = c;
  peerCase.layout = &packed;
  peerCase.window = false;
  peerCase.inPlace = !collective.reduces;
  peerCase.send = memory.peerSend;
  peerCase.recv = memory.peerRecv;

  uint64_t wrong = 0;
  collective.fill(c);
  member.barrier();
  ours();
  wrong += member.sum(collective.check(c));
  for (Peer peer : {Peer::kPerOwner, Peer::kMpiV}) {
    const PeerCall call{peer,
                        collective.reduces,
                        &type(),
                        vcollSum,
                        layout.counts,
                        memory.peerSend.data + kGuardBytes,
                        memory.peerRecv.data + kGuardBytes};
    collective.fill(peerCase);
    member.barrier();
    runPeer(call);
    wrong += member.sum(collective.check(peerCase));
    contenders.push_back({[call] { runPeer(call); }, {}, {}, {}});
  }
  TimingConfig timing;
  timing.iterations = kIterations;
  runBlocks(member, timing, 1, kRounds, &contenders);
  wrong += member.sum(collective.check(c));

  if (member.first()) {
    const double us = contenders[0].us();
    fmt::print("  {:<15} {:>8.1f} ms {:>10.1f} ms {:>5.1f}x {:>10.1f} ms {:>5.1f}x {:>8} wrong\n", collective.name,
               us / 1e3, contenders[1].us() / 1e3, contenders[1].us() / us, contenders[2].us() / 1e3,
               contenders[2].us() / us, wrong);
    std::fflush(stdout);
  }
  return wrong;
}

// One communicator, both collectives. describe: with the topology and the plan.
uint64_t runOn(const Member& member, int nodes, bool describe) {
  Session session(member, {0, nodes});
  const Layout layout = layerLayout(member.ranks());
  const size_t bytes = 2 * kGuardBytes + static_cast<size_t>(layout.elements) * type().size;
  Memory memory{session.allocWindow(bytes), session.allocWindow(bytes), session.allocPrivate(bytes),
                session.allocPrivate(bytes)};
  vcollPlan_t plan = session.makePlan(layout, type());
  if (describe) {
    printTopology(session);
    printPlan(session, layout, plan);
  }
  if (member.first()) {
    fmt::print("{:<17} {:>11} {:>19} {:>20}\n",
               fmt::format("{} node{}", session.nodes(), session.nodes() == 1 ? "" : "s"), "vcoll",
               "MPI, one per owner", "MPI_..v / _scatter");
  }
  const Handles handles{session.comm(), plan, nullptr};
  uint64_t wrong = measure(session, kAllGatherV, layout, memory, handles);
  wrong += measure(session, kReduceScatterV, layout, memory, handles);
  session.require(vcollPlanDestroy(plan), "vcollPlanDestroy");
  return wrong;
}

int quickstart(int argc, char** argv) {
  World world(makeBridge(&argc, &argv), 1);
  const Member member(world, 0);
  // The ranks stand for two nodes, unless the caller says which nodes they are on.
  const bool hostIdSet = std::getenv("VCOLL_HOSTID") != nullptr;
  const bool pretend = !hostIdSet && member.ranks() > 1;
  if (member.first()) {
    int version = 0;
    vcollGetVersion(&version);
    fmt::print("vcoll {}.{}.{} quickstart\n\n", version / 10000, version / 100 % 100, version % 100);
  }
  uint64_t wrong = runOn(member, pretend ? 2 : 0, true);
  if (pretend) wrong += runOn(member, 1, false);
  if (member.first()) {
    fmt::print("\nMedian of {} calls on windows, the slowest rank counts; x: MPI's time / vcoll's.\n", kIterations);
    if (pretend) fmt::print("Two nodes: vcoll uses TCP between them, as between machines; MPI sees one machine.\n");
    fmt::print("{}: {} wrong elements.\n", wrong == 0 ? "Every result was checked" : "RESULTS ARE WRONG", wrong);
    fmt::print("Next: mpirun -np {} build/bin/all_gather_v_perf -b 16K -e 64M -f 4 --buffers window --peer all\n",
               member.ranks());
  }
  return wrong == 0 ? kExitSuccess : kExitData;
}

}  // namespace
}  // namespace vcoll::perf

int main(int argc, char** argv) { return vcoll::perf::quickstart(argc, argv); }
