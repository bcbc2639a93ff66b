// SPDX-License-Identifier: Apache-2.0
// How the perf programs share bytes out over ranks (--dist).
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <numeric>

#include "perf/layout.h"

namespace vcoll::perf {
namespace {

Distribution parsed(const std::string& text) {
  Distribution d;
  std::string error;
  INFO(text);
  REQUIRE(parseDistribution(text, &d, &error));
  REQUIRE(loadDistribution(&d, &error));
  return d;
}

std::vector<uint64_t> countsOf(const std::string& text, int ranks, uint64_t bytes, size_t elementSize = 4) {
  Layout layout;
  std::string error;
  INFO(error);
  REQUIRE(makeLayout(parsed(text), ranks, bytes, elementSize, &layout, &error));
  // Segments are packed and agree with the counts.
  uint64_t at = 0;
  std::vector<uint64_t> perRank(static_cast<size_t>(ranks), 0);
  for (const LayoutSegment& s : layout.segments) {
    REQUIRE(s.offset == at);
    at += s.count;
    perRank[static_cast<size_t>(s.owner)] += s.count;
  }
  REQUIRE(at == layout.elements);
  REQUIRE(perRank == layout.counts);
  return layout.counts;
}

std::string refusal(const std::string& text, int ranks = 4) {
  Distribution d;
  Layout layout;
  std::string error;
  if (!parseDistribution(text, &d, &error) || !loadDistribution(&d, &error)) return error;
  REQUIRE_FALSE(makeLayout(d, ranks, 1024, 4, &layout, &error));
  return error;
}

using Counts = std::vector<uint64_t>;

TEST_CASE("perf: even parts are equal multiples of 16 bytes") {
  CHECK(countsOf("even", 4, 1024) == Counts{64, 64, 64, 64});
  CHECK(countsOf("even", 3, 1000) == Counts{80, 80, 80});  // 83 elements, rounded down to 4
  CHECK(countsOf("even", 4, 20) == Counts{1, 1, 1, 1});    // too few bytes for 16 each
  CHECK(countsOf("even", 4, 0) == Counts{0, 0, 0, 0});
}

TEST_CASE("perf: a colon list is cycled over the ranks and keeps the total") {
  CHECK(countsOf("1:2:3", 3, 6 * 64) == Counts{16, 32, 48});
  const Counts counts = countsOf("1:2:3", 8, 16384, 2);
  CHECK(std::accumulate(counts.begin(), counts.end(), uint64_t{0}) == 8192);
  for (uint64_t count : counts) CHECK(count * 2 % 16 == 0);
  CHECK(counts[2] > counts[1]);
  CHECK(counts[3] < counts[2]);
  CHECK(countsOf("0:1", 4, 1024) == Counts{0, 128, 0, 128});
  CHECK(countsOf("1:2:3", 1, 100, 1) == Counts{96});
}

TEST_CASE("perf: totals beyond 2^53 do not lose bytes") {
  const Counts counts = countsOf("1:2:3", 6, uint64_t{1} << 60, 8);
  CHECK(std::accumulate(counts.begin(), counts.end(), uint64_t{0}) == uint64_t{1} << 57);
}

TEST_CASE("perf: ramp, onehot and every") {
  CHECK(countsOf("ramp", 4, 640) == Counts{16, 32, 48, 64});
  CHECK(countsOf("onehot:2", 4, 1024) == Counts{0, 0, 256, 0});
  CHECK(countsOf("every:4", 8, 768) == Counts{64, 0, 0, 0, 128, 0, 0, 0});
  CHECK(countsOf("every:1", 3, 6 * 64) == Counts{16, 32, 48});
}

TEST_CASE("perf: a model layer is its seven matrices, balanced greedily") {
  Layout layout;
  std::string error;
  REQUIRE(makeLayout(parsed("model:qwen2.5-1.5b"), 8, 1, 2, &layout, &error));
  REQUIRE(layout.segments.size() == 7);
  CHECK(layout.elements == 46792704);
  // q, k, v, o, gate, up, down: the three large ones first.
  const std::vector<uint64_t> sizes = {2359296, 393216, 393216, 2359296, 13762560, 13762560, 13762560};
  const std::vector<int> owners = {3, 5, 6, 4, 0, 1, 2};
  for (size_t i = 0; i < sizes.size(); ++i) {
    CHECK(layout.segments[i].count == sizes[i]);
    CHECK(layout.segments[i].owner == owners[i]);
  }
  CHECK(layout.counts[7] == 0);
  REQUIRE(makeLayout(parsed("model:qwen2.5-1.5b:all"), 2, 0, 2, &layout, &error));
  CHECK(layout.segments.size() == 7 * 28);
  REQUIRE(makeLayout(parsed("model:qwen1.5-moe-a2.7b"), 4, 0, 2, &layout, &error));
  CHECK(layout.segments.size() == 4 + 2 + 3 + 180);
}

TEST_CASE("perf: the models have their published numbers of parameters") {
  // Layers and embeddings, without biases and norms, in millions.
  const auto millions = [](const char* name, uint64_t embeddings) {
    const ModelShape* model = findModel(name);
    REQUIRE(model != nullptr);
    uint64_t sum = embeddings * model->hidden;
    for (const Matrix& m : layerMatrices(*model)) sum += m.elements() * model->layers;
    return static_cast<double>(sum) / 1e6;
  };
  CHECK(millions("qwen2.5-1.5b", 151936) == Approx(1543.7).epsilon(0.001));
  CHECK(millions("qwen2.5-7b", 2 * 152064) == Approx(7615.6).epsilon(0.001));
  CHECK(millions("qwen2.5-32b", 2 * 152064) == Approx(32763.9).epsilon(0.001));
  CHECK(millions("qwen1.5-moe-a2.7b", 2 * 151936) == Approx(14315.8).epsilon(0.001));
}

TEST_CASE("perf: a file gives bytes, or weights when a size is given") {
  char path[] = "/tmp/vcoll_perf_layout_XXXXXX";
  const int fd = mkstemp(path);
  REQUIRE(fd >= 0);
  close(fd);
  std::ofstream(path) << "400\n0\n80 160\n";
  const std::string text = std::string("file:") + path;
  CHECK(countsOf(text, 4, 0) == Counts{100, 0, 20, 40});
  CHECK(countsOf(text, 4, 6400) == Counts{1000, 0, 200, 400});
  CHECK(refusal(text, 3).find("holds 4 numbers but there are 3 ranks") != std::string::npos);
  std::ofstream(path) << "12 x\n";
  CHECK(refusal(text).find("'x'") != std::string::npos);
  std::remove(path);
  CHECK(refusal(text).find("cannot read file") != std::string::npos);
}

TEST_CASE("perf: bad distributions are refused with their text") {
  CHECK(refusal("lumpy").find("'lumpy'") != std::string::npos);
  CHECK(refusal("1:-2").find("'1:-2'") != std::string::npos);
  CHECK(refusal("1::2").find("'1::2'") != std::string::npos);
  CHECK(refusal("0:0").find("all parts") != std::string::npos);
  CHECK(refusal("onehot:4").find("not a rank of 4") != std::string::npos);
  CHECK(refusal("every:0").find("'0'") != std::string::npos);
  CHECK(refusal("model:gpt").find("qwen2.5-7b") != std::string::npos);
}

TEST_CASE("perf: the bus factor is that of the link that carries most") {
  CHECK(packedLayout({10, 10, 10, 10}).busFactor() == Approx(0.75));
  CHECK(packedLayout({0, 0, 30, 0}).busFactor() == Approx(1.0));
  CHECK(packedLayout({10, 20, 30}).busFactor() == Approx(50.0 / 60));
  CHECK(packedLayout({0, 0}).busFactor() == 0);
}

}  // namespace
}  // namespace vcoll::perf
