// SPDX-License-Identifier: Apache-2.0
// A toy that trains on several nodes and publishes what it learns: y = sum of X_b W_b, least squares by gradient
// descent with momentum. Each matrix W_b has one owner, which alone updates it and pushes it as soon as it is updated;
// the next step's gradients need all matrices, so every rank waits for those of the others, and says when each version
// arrived. There are two copies of each matrix: step t is read while step t + 1 is written and on its way. Every rank
// stands for one node. At the end each rank compares its copies with the same training done alone. usage: publish
// [steps]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vcoll/vcoll.hpp>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBlocks = 6;     // matrices
constexpr int kFeatures = 16;  // rows of each
constexpr int kOutputs = 8;    // columns of each
constexpr int kSamples = 384;
constexpr size_t kBlockNumbers = size_t{kFeatures} * kOutputs;
constexpr size_t kCopyBytes = kBlocks * kBlockNumbers * sizeof(float);
constexpr float kRate = 1.0f, kMomentum = 0.5f;

// The data, equal on all ranks.
struct Data {
  std::vector<float> x = std::vector<float>(size_t{kSamples} * kBlocks * kFeatures);
  std::vector<float> y = std::vector<float>(size_t{kSamples} * kOutputs);

  Data() {
    uint32_t state = 1;
    const auto random = [&state] {
      state = state * 1664525u + 1013904223u;
      return static_cast<float>(state >> 8) / 8388608.0f - 1.0f;
    };
    for (float& value : x) value = random();
    std::vector<float> truth(kBlocks * kBlockNumbers);
    for (float& value : truth) value = random();
    for (size_t s = 0; s < kSamples; ++s) {
      for (size_t o = 0; o < kOutputs; ++o) {
        for (size_t f = 0; f < size_t{kBlocks} * kFeatures; ++f)
          y[s * kOutputs + o] += features(s)[f] * truth[f * kOutputs + o];
      }
    }
  }
  const float* features(size_t sample) const { return &x[sample * kBlocks * kFeatures]; }

  // Adds one matrix's part to what the model says, which begins as -y.
  void predict(int block, const float* w, std::vector<float>* error) const {
    for (size_t s = 0; s < kSamples; ++s) {
      const float* row = features(s) + static_cast<size_t>(block) * kFeatures;
      for (size_t o = 0; o < kOutputs; ++o) {
        float sum = 0;
        for (size_t f = 0; f < kFeatures; ++f) sum += row[f] * w[f * kOutputs + o];
        (*error)[s * kOutputs + o] += sum;
      }
    }
  }

  // One step of one matrix, from old to updated.
  void update(int block, const std::vector<float>& error, const float* old, float* momentum, float* updated) const {
    for (size_t f = 0; f < kFeatures; ++f) {
      for (size_t o = 0; o < kOutputs; ++o) {
        float gradient = 0;
        for (size_t s = 0; s < kSamples; ++s) {
          gradient += features(s)[static_cast<size_t>(block) * kFeatures + f] * error[s * kOutputs + o];
        }
        const size_t i = f * kOutputs + o;
        momentum[i] = kMomentum * momentum[i] + gradient / kSamples;
        updated[i] = old[i] - kRate * momentum[i];
      }
    }
  }
};

std::vector<float> minus(std::vector<float> values) {
  for (float& value : values) value = -value;
  return values;
}

double meanSquare(const std::vector<float>& error) {
  double sum = 0;
  for (float e : error) sum += static_cast<double>(e) * e;
  return sum / static_cast<double>(error.size());
}

// The same training in one process.
std::vector<float> trainAlone(const Data& data, uint64_t steps) {
  std::vector<float> w(kBlocks * kBlockNumbers), momentum(w.size());
  for (uint64_t step = 1; step <= steps; ++step) {
    std::vector<float> error = minus(data.y);
    for (int b = 0; b < kBlocks; ++b) data.predict(b, &w[static_cast<size_t>(b) * kBlockNumbers], &error);
    for (int b = 0; b < kBlocks; ++b) {
      const size_t at = static_cast<size_t>(b) * kBlockNumbers;
      data.update(b, error, &w[at], &momentum[at], &w[at]);
    }
  }
  return w;
}

// Rank r's matrices are those with block % size == r.
class Trainer {
 public:
  explicit Trainer(vcoll::Comm& comm)
      : comm_(comm), rank_(comm.rank()), size_(comm.size()), memory_(2 * kCopyBytes), window_(comm, memory_) {
    std::vector<vcollPublishItem_t> items;
    for (int b = 0; b < kBlocks; ++b) {
      const uint64_t bytes = kBlockNumbers * sizeof(float);
      items.push_back({static_cast<uint64_t>(b), b % size_, 0, static_cast<uint64_t>(b) * bytes, bytes});
    }
    vcollPublishConfig_t config = VCOLL_PUBLISH_CONFIG_INITIALIZER;
    config.copies = 2;
    config.copyStride = kCopyBytes;
    check(vcollPublishStreamCreate(comm_.native(), window_.native(), items.data(), items.size(), &config, &stream_));
  }
  ~Trainer() { vcollPublishStreamDestroy(stream_); }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  void train(uint64_t steps) {
    // Step 0 is where it begins: all zero.
    check(vcollPublishStreamBegin(stream_, 0));
    for (int b = rank_; b < kBlocks; b += size_) push(b);
    check(vcollPublishStreamEnd(stream_, 0));
    for (uint64_t step = 1; step <= steps; ++step) {
      check(vcollPublishStreamBegin(stream_, step));
      const std::vector<float> error = forward(step - 1);
      for (int b = rank_; b < kBlocks; b += size_) {
        data_.update(b, error, at(b, step - 1), momentum_[b], at(b, step));
        push(b);
      }
      check(vcollPublishStreamEnd(stream_, step));
    }
    forward(steps);
    const std::vector<float> alone = trainAlone(data_, steps);
    for (int b = 0; b < kBlocks; ++b) {
      const float* other = &alone[static_cast<size_t>(b) * kBlockNumbers];
      if (std::memcmp(at(b, steps), other, kBlockNumbers * sizeof(float)) == 0) continue;
      throw vcoll::Error(vcollInternalError, "matrix " + std::to_string(b) + " is not what training alone gives");
    }
    std::printf("rank %d: all %d matrices are bit for bit those of training alone\n", rank_, kBlocks);
  }

 private:
  void check(vcollResult_t result) const { vcoll::check(result, comm_.native()); }
  void push(int block) { check(vcollPublishStreamPush(stream_, static_cast<uint64_t>(block), nullptr)); }
  float* at(int block, uint64_t step) const {
    void* pointer = nullptr;
    check(vcollPublishStreamAddress(stream_, static_cast<uint64_t>(block), step, &pointer));
    return static_cast<float*>(pointer);
  }

  // The error of version `step` of the model; waits for each matrix when it is needed.
  std::vector<float> forward(uint64_t step) const {
    std::string line = "rank " + std::to_string(rank_) + " step " + std::to_string(step) + ":";
    std::vector<float> error = minus(data_.y);
    const Clock::time_point begin = Clock::now();
    for (int b = 0; b < kBlocks; ++b) {
      int ready = 0;
      check(vcollPublishStreamTest(stream_, static_cast<uint64_t>(b), step, &ready));
      check(vcollPublishStreamWait(stream_, static_cast<uint64_t>(b), step, nullptr));
      const auto us = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin).count();
      if (b % size_ != rank_) {
        line += " W" + std::to_string(b) + " of rank " + std::to_string(b % size_) +
                (ready ? " was there," : " came after " + std::to_string(us) + " us,");
      }
      data_.predict(b, at(b, step), &error);
    }
    std::printf("%s error %.3g\n", line.c_str(), meanSquare(error));
    return error;
  }

  vcoll::Comm& comm_;
  const int rank_;
  const int size_;
  const Data data_;
  float momentum_[kBlocks][kBlockNumbers] = {};
  vcoll::Memory memory_;
  vcoll::Window window_;
  vcollPublishStream_t stream_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // versions are seen as they arrive, also through a pipe
  const int steps = argc > 1 ? std::atoi(argv[1]) : 10;
  if (steps < 1) {
    std::fprintf(stderr, "usage: publish [steps]\n");
    return 2;
  }
  try {
    vcoll::Comm world = vcoll::Comm::fromEnv();
    // Ranks on one machine are one node, and then nothing has to be published: let each be a node.
    const std::string node = "node " + std::to_string(world.rank());
    vcollConfig_t config = VCOLL_CONFIG_INITIALIZER;
    config.hostId = node.c_str();
    vcoll::Comm comm = world.split(0, world.rank(), &config);
    Trainer(comm).train(static_cast<uint64_t>(steps));
  } catch (const vcoll::Error& error) {
    std::fprintf(stderr, "publish: %s\n", error.what());
    return 1;
  }
  return 0;
}
