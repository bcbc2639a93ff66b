// SPDX-License-Identifier: Apache-2.0
#include "train_gpt/options.h"

#include <CLI/CLI.hpp>
#include <map>
#include <stdexcept>

namespace gpt {
namespace {

using Names = std::map<std::string, int>;

const Names kTypes = {{"bf16", vcollBfloat16}, {"fp32", vcollFloat32}};
const Names kLines = {{"a", vmuonLineAdamW},
                      {"b", vmuonLineGather},
                      {"c", vmuonLinePerOwner},
                      {"d", vmuonLineOwner},
                      {"single", vmuonLineOwner}};
const Names kOptimizers = {{"muon", vmuonOptMuon}, {"normuon", vmuonOptNorMuon}};

// CLI11 leaves texts of the options with names.
struct Texts {
  std::string dtype = "bf16";
  std::string gradType = "fp32";
  std::string line = "d";
  std::string optimizer = "muon";
  int zero = 2;
  bool hsdp = false;
  bool syncPublish = false;
};

int find(const Names& names, const std::string& option, const std::string& name) {
  const auto at = names.find(name);
  if (at != names.end()) return at->second;
  std::string text = "--" + option + " " + name + ": it is one of";
  for (const auto& [known, value] : names) text += " " + known;
  throw std::runtime_error(text);
}

void addOptions(CLI::App* app, Options* o, Texts* t) {
  constexpr int kLarge = 1 << 20;
  const auto positive = CLI::Range(1, kLarge);
  app->add_option("--steps", o->steps, "steps in this run")->check(CLI::Range(uint64_t{1}, uint64_t{1} << 24));
  app->add_option("--batch", o->batch, "sequences of one step, of all ranks together")->check(positive);
  app->add_option("--micro-batches", o->microBatches, "parts of a step that are computed one after the other")
      ->check(positive);
  app->add_option("--context", o->shape.context, "bytes of a sequence")->check(positive);
  app->add_option("--layers", o->shape.layers, "transformer blocks")->check(CLI::Range(1, 1000));
  app->add_option("--width", o->shape.width, "of the residual stream")->check(CLI::Range(1, 1 << 16));
  app->add_option("--heads", o->shape.heads, "attention heads; must divide the width")->check(positive);
  app->add_option("--data", o->data, "text file [Debian's licence texts]");
  app->add_option("--seed", o->seed, "of initial weights and batches");

  app->add_option("--line", t->line,
                  "a: AdamW; b: every rank orthogonalises everything; c: owners, one collective for each; d: owners, "
                  "one collective per layer; single: Muon in this process alone");
  app->add_option("--optimizer", t->optimizer, "of matrices: muon or normuon");
  app->add_option("--zero", t->zero, "2: gather parameters once a micro-batch; 3: again for backward")
      ->check(CLI::Range(2, 3));
  app->add_flag("--hsdp", t->hsdp, "a copy in every node, published from node to node");
  app->add_flag("--sync-publish", t->syncPublish, "with --hsdp: a step waits for its publishes");
  app->add_option("--dtype", t->dtype, "of the weights that are computed with: bf16 or fp32");
  app->add_option("--grad-type", t->gradType, "of the gradients that are sent: bf16 or fp32");

  app->add_option("--lr", o->group.lr, "of matrices")->check(CLI::NonNegativeNumber);
  app->add_option("--adam-lr", o->group.adamLr, "of everything else")->check(CLI::NonNegativeNumber);
  app->add_option("--momentum", o->group.momentum, "of matrices")->check(CLI::Range(0.0, 0.9999));
  app->add_option("--weight-decay", o->group.weightDecay, "of matrices")->check(CLI::NonNegativeNumber);
  app->add_option("--clip", o->config.maxGradNorm, "largest norm of all gradients together; 0: no limit")
      ->check(CLI::NonNegativeNumber);

  app->add_option("--save", o->save, "directory for checkpoints; the last one is kept");
  app->add_option("--save-every", o->saveEvery, "steps between checkpoints; 0: at the end only");
  app->add_option("--load", o->load, "directory to go on from");
  app->add_option("--log", o->log, "CSV file of every step; overwritten");
  app->add_option("--eval-every", o->evalEvery, "steps between losses of held-out text; 0: never");
  app->add_option("--print-every", o->printEvery, "steps between lines")->check(positive);
  app->add_flag("--table", o->table, "print the parameters and their owners");
}

void check(const Options& o, int ranks) {
  const auto text = [](size_t n) { return std::to_string(n); };
  if (o.shape.width % o.shape.heads != 0) {
    throw std::runtime_error("--heads " + text(o.shape.heads) + " does not divide --width " + text(o.shape.width));
  }
  if (o.single && ranks != 1) {
    throw std::runtime_error("--line single is for one process, and there are " + std::to_string(ranks) + " ranks");
  }
  const size_t parts = static_cast<size_t>(ranks) * o.microBatches;
  if (o.batch % parts != 0) {
    throw std::runtime_error("--batch " + text(o.batch) + " cannot be divided among " + std::to_string(ranks) +
                             " ranks x " + text(o.microBatches) + " micro-batches: it must be a multiple of " +
                             text(parts));
  }
  if (o.saveEvery != 0 && o.save.empty()) throw std::runtime_error("--save-every needs --save DIR");
}

}  // namespace

Parsed parseOptions(int argc, const char* const* argv, int ranks, Options* o, std::string* text) {
  // Tuned for the default model.
  o->group.lr = 0.01;
  o->group.adamLr = 0.01;
  o->config.maxGradNorm = 1.0;
  Texts t;
  CLI::App app("Trains a small GPT on text with an owner-aware Muon. The head of main.cc has examples.", "train_gpt");
  app.option_defaults()->always_capture_default();
  addOptions(&app, o, &t);
  try {
    app.parse(argc, argv);
    o->config.line = find(kLines, "line", t.line);
    o->config.gradType = find(kTypes, "grad-type", t.gradType);
    o->dtype = find(kTypes, "dtype", t.dtype);
    o->group.matrixOptimizer = find(kOptimizers, "optimizer", t.optimizer);
    o->config.sharding = t.zero == 3 ? vmuonZero3 : vmuonZero2;
    o->config.hsdp = t.hsdp;
    o->config.asyncPublish = !t.syncPublish;
    o->lineName = t.line;
    o->single = t.line == "single";
    check(*o, ranks);
  } catch (const CLI::CallForHelp&) {
    *text = app.help();
    return Parsed::kHelp;
  } catch (const std::exception& error) {  // CLI11's own too
    *text = error.what();
    return Parsed::kError;
  }
  return Parsed::kRun;
}

}  // namespace gpt
