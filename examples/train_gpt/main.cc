// SPDX-License-Identifier: Apache-2.0
// Trains a GPT on the bytes of a text with vmuon: as many ranks as a launcher starts, in the ways that --line, --zero
// and --hsdp name. --help lists the flags. From the build directory:
//
//   bin/train_gpt                                            one rank, the licence texts
//   mpirun -np 8 --bind-to none bin/train_gpt --line b       eight ranks; b: every rank orthogonalises everything
//   mpirun -np 8 --bind-to none sh -c 'VCOLL_HOSTID=$((OMPI_COMM_WORLD_RANK / 4)) exec bin/train_gpt --hsdp'
//                                                            the same as 2 nodes x 4 ranks
//   bin/train_gpt --line single --log single.csv             what all of them are compared with
//   ../examples/train_gpt/plot.py single.csv d.csv           losses side by side; -o curves.png draws them
//
// A step's batch is the same for any number of ranks: rank r of N takes its sequences r, r + N, ... The loss is the
// mean over the whole batch before the step's update, summed in the order of sequences: step 0 has the same loss bit
// for bit on any number of ranks. Times are those of rank 0 and of the step, with the evaluation if there was one.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vcoll/vcoll.hpp>
#include <vector>

#include "train_gpt/data.h"
#include "train_gpt/mix.h"
#include "train_gpt/model.h"
#include "train_gpt/options.h"
#include "train_gpt/weights.h"

namespace gpt {
namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

template <typename T>
std::vector<T> gather(vcoll::Comm& comm, const std::vector<T>& mine) {
  const size_t bytes = mine.size() * sizeof(T);
  const auto ranks = static_cast<size_t>(comm.size());
  std::vector<T> all(mine.size() * ranks);
  comm.allGatherV(mine.data(), bytes, all.data(), std::vector<size_t>(ranks, bytes), nullptr, vcollUint8);
  return all;
}

struct CloseFile {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

struct Row {
  uint64_t step;
  double loss;
  double heldOut;  // NaN: not evaluated
  double seconds;
  double tokensPerSecond;
  vmuonStats_t stats;
};

class Log {
 public:
  // Throws std::runtime_error. An empty path: no log.
  explicit Log(const std::string& path) : path_(path) {
    if (path.empty()) return;
    file_.reset(std::fopen(path.c_str(), "w"));
    if (!file_) throw std::runtime_error("--log: cannot write " + path + ": " + std::strerror(errno));
    std::fputs(
        "step,loss,held_out_loss,tokens_per_s,step_s,gather_s,reduce_s,publish_wait_s,newton_schulz_s,update_s,"
        "grad_norm,skipped\n",
        file_.get());
  }
  void write(const Row& row) {
    if (!file_) return;
    const vmuonStats_t& s = row.stats;
    std::fprintf(file_.get(), "%llu,%.17g,", static_cast<unsigned long long>(row.step), row.loss);
    if (!std::isnan(row.heldOut)) std::fprintf(file_.get(), "%.17g", row.heldOut);
    std::fprintf(file_.get(), ",%.17g,%.17g,%.17g,%.17g,%.17g,%.17g,%.17g,%.17g,%d\n", row.tokensPerSecond, row.seconds,
                 s.gatherTime, s.reduceTime, s.publishWait, s.newtonSchulzTime, s.stepTime, s.gradNorm, s.skipped);
    if (std::fflush(file_.get()) != 0) throw std::runtime_error("--log: " + path_ + ": " + std::strerror(errno));
  }

 private:
  std::string path_;
  File file_;
};

void print(const Row& row) {
  const vmuonStats_t& s = row.stats;
  std::printf(
      "step %5llu  loss %.4f  %7.0f tokens/s  %6.1f ms (gather %.1f, reduce %.1f, publish wait %.1f)  norm %.3g",
      static_cast<unsigned long long>(row.step), row.loss, row.tokensPerSecond, 1e3 * row.seconds, 1e3 * s.gatherTime,
      1e3 * s.reduceTime, 1e3 * s.publishWait, s.gradNorm);
  if (!std::isnan(row.heldOut)) std::printf("  held out %.4f", row.heldOut);
  std::puts(s.skipped ? "  skipped" : "");
}

class Trainer {
 public:
  Trainer(vcoll::Comm& comm, const Options& options, const Text& text)
      : comm_(comm),
        options_(options),
        text_(text),
        rank_(static_cast<size_t>(comm.rank())),
        ranks_(static_cast<size_t>(comm.size())),
        mine_(options.batch / ranks_),
        micro_(mine_ / options.microBatches),
        model_(options.shape, micro_),
        weights_(comm.native(), options) {}

  void run(Log* log) {
    const uint64_t first = options_.load.empty() ? 0 : weights_.load(options_.load);
    const bool speaks = rank_ == 0;
    if (speaks) introduce(first);
    std::vector<Row> rows;
    const uint64_t end = first + options_.steps;
    for (uint64_t step = first; step < end; ++step) {
      const Row row = trainStep(step);
      rows.push_back(row);
      if (speaks) {
        log->write(row);
        if (step % options_.printEvery == 0 || step + 1 == end || row.stats.skipped || !std::isnan(row.heldOut))
          print(row);
      }
      const bool due = options_.saveEvery != 0 && (step + 1) % options_.saveEvery == 0;
      if (!options_.save.empty() && (due || step + 1 == end)) weights_.save(options_.save, step + 1);
    }
    if (speaks) summarize(rows);
  }

 private:
  void introduce(uint64_t first) {
    const vmuonConfig_t& c = options_.config;
    std::printf("train_gpt: %zu ranks on %d nodes, line %s, zero %d%s; %zu parameters, %zu bytes of text", ranks_,
                comm_.nodes(), options_.lineName.c_str(), c.sharding == vmuonZero3 ? 3 : 2,
                !c.hsdp          ? ""
                : c.asyncPublish ? ", hsdp"
                                 : ", hsdp with synchronous publishes",
                weights_.elements(), text_.size());
    if (first != 0) std::printf("; goes on from step %llu", static_cast<unsigned long long>(first));
    std::puts("");
    if (options_.table) std::fputs(weights_.table().c_str(), stdout);
  }

  // The loss of a batch. sequence(i, bytes) gives its sequence i; each(losses) is called after every micro-batch.
  template <typename Sequence, typename Each>
  double computeBatch(const Sequence& sequence, const Each& each) {
    const size_t length = options_.shape.context + 1;
    std::vector<uint8_t> tokens(micro_ * length);
    std::vector<double> losses(mine_);
    for (size_t begin = 0; begin < mine_; begin += micro_) {
      for (size_t i = 0; i < micro_; ++i) sequence(rank_ + ranks_ * (begin + i), &tokens[i * length]);
      model_.forward(weights_, tokens.data(), &losses[begin]);
      each();
    }
    const std::vector<double> all = gather(comm_, losses);
    double sum = 0;
    for (size_t i = 0; i < all.size(); ++i) sum += all[i % ranks_ * mine_ + i / ranks_];
    return sum / static_cast<double>(all.size());
  }

  Row trainStep(uint64_t step) {
    Row row{};
    const Clock::time_point start = Clock::now();
    row.step = step;
    row.heldOut = std::nan("");
    row.loss = computeBatch([&](size_t i, uint8_t* bytes) { text_.sequence(options_.seed, step, i, bytes); },
                            [&] { model_.backward(weights_, 1.0 / static_cast<double>(mine_)); });
    if (options_.evalEvery != 0 && step % options_.evalEvery == 0) {
      row.heldOut = computeBatch([&](size_t i, uint8_t* bytes) { text_.heldOut(i, bytes); }, [] {});
    }
    row.stats = weights_.step();
    row.seconds = secondsSince(start);
    row.tokensPerSecond = static_cast<double>(options_.batch * options_.shape.context) / row.seconds;
    return row;
  }

  // The first step is left out: windows and plans are made in it.
  static void summarize(const std::vector<Row>& rows) {
    if (rows.size() < 2) return;
    const auto mean = [&rows](const auto& value) {
      const double sum =
          std::accumulate(rows.begin() + 1, rows.end(), 0.0, [&](double s, const Row& row) { return s + value(row); });
      return 1e3 * sum / static_cast<double>(rows.size() - 1);
    };
    std::printf(
        "mean of a step without the first: %.1f ms; gather %.2f, reduce %.2f, publish wait %.2f, update %.1f, of that "
        "Newton-Schulz %.1f\n",
        mean([](const Row& r) { return r.seconds; }), mean([](const Row& r) { return r.stats.gatherTime; }),
        mean([](const Row& r) { return r.stats.reduceTime; }), mean([](const Row& r) { return r.stats.publishWait; }),
        mean([](const Row& r) { return r.stats.stepTime; }),
        mean([](const Row& r) { return r.stats.newtonSchulzTime; }));
  }

  vcoll::Comm& comm_;
  const Options& options_;
  const Text& text_;
  const size_t rank_;
  const size_t ranks_;
  const size_t mine_;   // sequences of a step on this rank
  const size_t micro_;  // and of a micro-batch
  Model<float> model_;
  VmuonWeights weights_;
};

// [collective] True if no rank has a problem and all were started alike; else the first that has one says so.
bool agree(vcoll::Comm& comm, const std::string& problem, uint64_t digest) {
  struct Report {
    uint64_t failed;
    uint64_t digest;
  };
  const std::vector<Report> all = gather(comm, std::vector<Report>{{problem.empty() ? 0u : 1u, digest}});
  const auto rank = static_cast<size_t>(comm.rank());
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].failed == 0) continue;
    if (r == rank) std::fprintf(stderr, "train_gpt: %s\n", problem.c_str());
    return false;
  }
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r].digest == all[0].digest) continue;
    if (rank == 0) std::fprintf(stderr, "train_gpt: ranks 0 and %zu have different flags or another text\n", r);
    return false;
  }
  return true;
}

int run(int argc, char** argv) {
  vcoll::Comm comm = vcoll::Comm::fromEnv();
  Options options;
  std::string problem;
  const Parsed parsed = parseOptions(argc, argv, comm.size(), &options, &problem);
  if (parsed == Parsed::kHelp) {
    if (comm.rank() == 0) std::fputs(problem.c_str(), stdout);
    return 0;
  }
  std::optional<Text> text;
  std::optional<Log> log;
  uint64_t digest = 0;
  if (parsed == Parsed::kRun) {
    try {
      text.emplace(options.data, options.shape.context);
      log.emplace(comm.rank() == 0 ? options.log : std::string());
      digest = text->digest();
      for (int i = 1; i < argc; ++i) digest = mix(digest, argv[i]);
    } catch (const std::runtime_error& error) {
      problem = error.what();
    }
  }
  if (!agree(comm, problem, digest)) return 2;
  Trainer(comm, options, *text).run(&*log);
  return 0;
}

}  // namespace
}  // namespace gpt

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // progress is seen as it is made, also through a pipe
  try {
    return gpt::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_gpt: %s\n", error.what());
    return 1;
  }
}
