// SPDX-License-Identifier: Apache-2.0
#include "perf/publish_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <sstream>

namespace vcoll::perf {
namespace {

const char* const kFooter =
    R"(Every rank is a node of its own and together they are one rail: the items of a model are dealt over the ranks,
the largest first to the rank that has least, and every rank gets all of them. Modes: ready, all items are there when
the clock starts; timeline, every owner updates its items one after another in layer order, and an item can be sent
once it is updated.
Time is the median over iterations of the slowest rank's time from a barrier until it has all items. busbw = algbw x
max over ranks of (total - own part) / total. pause is what a rank waits, after its own updates, for the first item
in layer order (peers: for the end of their calls, which its thread has to make), of the rank that waits longest.
Peers: per-owner, one MPI_Bcast for each item in a common order; coalesced, one MPI_Allgatherv for the items of some
layers. Columns named by them: their time / our time and their pause. stream: what one bare TCP stream needs for the
bytes of a rank / our time; ring: likewise with a stream from every rank to the next at the same time.
Exit codes: as all_gather_v_perf.)";

struct Texts {
  std::string model = "all";
  std::string mode = "both";
  std::string compute = "sleep";
  std::string peers;
};

ParseResult failure(int code, std::string text) { return {false, code, std::move(text)}; }

void addOptions(CLI::App* app, PublishRunOptions* o, Texts* t) {
  const auto range = [](int low, int high) { return CLI::Range(low, high); };
  app->add_option("--model", t->model,
                  "qwen2.5-1.5b, qwen2.5-7b, qwen2.5-32b, wall-oss-0.5, pi0.5: comma list, or all [all]");
  app->add_option("--scale", o->scale, "sizes are divided by this [each model to 64 MiB]")
      ->check(CLI::Range(0.001, 1e9));
  app->add_option("--mode", t->mode, "ready | timeline | both [both]");
  app->add_option("--compute", t->compute,
                  "how an update is simulated: sleep (the rank's thread waits for it), spin (it also uses the core), "
                  "device (it goes on by itself) [sleep]");
  app->add_option("--gap-us", o->gapUs,
                  "mean time of an update, which is in proportion to the item's bytes [such that the busiest owner's "
                  "updates take as long as our transfer]")
      ->check(CLI::Range(0.0, 1e9));
  app->add_option("--copies", o->copies, "of each item: 1 or 2 [1]")->check(range(1, 2));
  app->add_flag("--verify", o->verify, "a checksum goes with every item");
  app->add_option("-n,--iters", o->iterations, "timed iterations [15]")->check(range(1, 1 << 30));
  app->add_option("-w,--warmup_iters", o->warmup, "warm-up iterations [1]")->check(range(0, 1 << 30));
  app->add_option("-c,--check", o->check, "rounds of checking results; 0: none [1]")->check(range(0, 1 << 20));
  app->add_option("-J,--output_file", o->jsonPath, "JSON goes to this new file (.0, .1 ... added if it is there)");
  app->add_option("-T,--timeout", o->timeoutSeconds, "bound of each call in seconds [VCOLL_TIMEOUT_MS]")
      ->check(range(0, 86400));
  app->add_option("--peer", t->peers,
                  "measured beside us (MPI builds): comma list of per-owner, coalesced; or all, none "
                  "[all with MPI]");
}

template <typename Each>
void forEach(const std::string& list, const Each& each) {
  std::stringstream stream(list);
  std::string name;
  while (std::getline(stream, name, ',')) each(name);
}

std::string interpret(const Texts& t, bool haveMpi, PublishRunOptions* o) {
  std::string error;
  forEach(t.model, [&](const std::string& name) {
    const PublishModel* model = findPublishModel(name);
    if (model != nullptr) o->models.push_back(model);
    if (model == nullptr && name != "all") error = fmt::format("--model: no model '{}'\n", name);
    if (name != "all") return;
    for (const PublishModel& each : publishModels()) o->models.push_back(&each);
  });
  if (o->models.empty() && error.empty()) error = "--model: no model ''\n";
  if (t.mode != "ready" && t.mode != "timeline" && t.mode != "both") {
    error = fmt::format("--mode: '{}' is not ready, timeline or both\n", t.mode);
  }
  o->ready = t.mode != "timeline";
  o->timeline = t.mode != "ready";
  bool known = false;
  for (Compute compute : {Compute::kSleep, Compute::kSpin, Compute::kDevice}) {
    if (t.compute != computeName(compute)) continue;
    o->compute = compute;
    known = true;
  }
  if (!known) error = fmt::format("--compute: '{}' is not sleep, spin or device\n", t.compute);
  forEach(t.peers.empty() && haveMpi ? "all" : t.peers, [&](const std::string& name) {
    bool found = name == "none";
    for (PublishPeer peer : kPublishPeers) {
      if (name != "all" && name != publishPeerName(peer)) continue;
      o->peers.push_back(peer);
      found = true;
    }
    if (!found) error = fmt::format("--peer: '{}' is not one of per-owner, coalesced, all, none\n", name);
  });
  return error;
}

}  // namespace

const char* publishPeerName(PublishPeer peer) { return peer == PublishPeer::kPerOwner ? "per-owner" : "coalesced"; }

const char* computeName(Compute compute) {
  switch (compute) {
    case Compute::kSleep:
      return "sleep";
    case Compute::kSpin:
      return "spin";
    case Compute::kDevice:
      return "device";
  }
  return "";
}

ParseResult parsePublishOptions(int argc, const char* const* argv, bool haveMpi, PublishRunOptions* options) {
  CLI::App app("publish_stream_perf: items of training models published to all nodes, ready at once or one by one",
               "publish_stream_perf");
  app.footer(kFooter);
  *options = PublishRunOptions();
  Texts texts;
  addOptions(&app, options, &texts);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return failure(kExitSuccess, app.help());
  } catch (const CLI::ParseError& error) {
    return failure(kExitUsage, fmt::format("{}; -h lists the options\n", error.what()));
  }
  std::string error = interpret(texts, haveMpi, options);
  if (!error.empty()) return failure(kExitUsage, std::move(error));
  if (!options->peers.empty() && !haveMpi) {
    return failure(kExitInvalidUsage, "--peer: the peers are MPI's calls, and this program was built without MPI\n");
  }
  return {true, kExitSuccess, {}};
}

}  // namespace vcoll::perf
