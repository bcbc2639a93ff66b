// SPDX-License-Identifier: Apache-2.0
#include "perf/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <numeric>

namespace vcoll::perf {
namespace {

using Wide = unsigned __int128;

bool parseNumber(std::string_view text, uint64_t* value) {
  const char* end = text.data() + text.size();
  const auto [at, code] = std::from_chars(text.data(), end, *value);
  return code == std::errc() && at == end;
}

bool startsWith(std::string_view text, std::string_view prefix, std::string_view* rest) {
  if (!text.starts_with(prefix)) return false;
  *rest = text.substr(prefix.size());
  return true;
}

bool parseColonList(std::string_view text, std::vector<uint64_t>* list) {
  list->clear();
  while (true) {
    const size_t colon = text.find(':');
    uint64_t value = 0;
    if (!parseNumber(text.substr(0, colon), &value) || value > UINT32_MAX) return false;
    list->push_back(value);
    if (colon == std::string_view::npos) return true;
    text.remove_prefix(colon + 1);
  }
}

constexpr std::string_view kFilePrefix = "file:";

bool readWeights(const std::string& path, std::vector<uint64_t>* weights, std::string* error) {
  std::ifstream file(path);
  if (!file) {
    *error = fmt::format("--dist: cannot read file '{}': {}", path, std::strerror(errno));
    return false;
  }
  weights->clear();
  std::string word;
  while (file >> word) {
    uint64_t value = 0;
    if (!parseNumber(word, &value)) {
      *error = fmt::format("--dist: '{}' in file '{}' is not a whole number", word, path);
      return false;
    }
    weights->push_back(value);
  }
  if (weights->empty()) *error = fmt::format("--dist: file '{}' holds no numbers", path);
  return !weights->empty();
}

bool parseModel(std::string_view name, Distribution* d, std::string* error) {
  d->kind = Distribution::Kind::kModel;
  d->allLayers = name.ends_with(":all");
  if (d->allLayers) name.remove_suffix(4);
  d->model = findModel(name);
  if (d->model != nullptr) return true;
  *error = fmt::format("--dist: no model '{}'; known:", name);
  for (const ModelShape& model : kModels) *error += fmt::format(" {}", model.name);
  return false;
}

std::vector<uint64_t> rankWeights(const Distribution& d, int ranks) {
  using Kind = Distribution::Kind;
  std::vector<uint64_t> weights(static_cast<size_t>(ranks), 0);
  for (size_t r = 0; r < weights.size(); ++r) {
    const size_t k = static_cast<size_t>(d.k);
    switch (d.kind) {
      case Kind::kEven:
        weights[r] = 1;
        break;
      case Kind::kRamp:
        weights[r] = r + 1;
        break;
      case Kind::kCycle:
        weights[r] = d.weights[r % d.weights.size()];
        break;
      case Kind::kOneHot:
        weights[r] = r == k ? 1 : 0;
        break;
      case Kind::kEvery:
        weights[r] = r % k == 0 ? d.weights[(r / k) % d.weights.size()] : 0;
        break;
      case Kind::kFile:
        weights[r] = d.weights[r];
        break;
      case Kind::kModel:
        break;
    }
  }
  return weights;
}

Layout modelLayout(const Distribution& d, int ranks) {
  std::vector<uint64_t> sizes;
  const uint64_t layers = d.allLayers ? d.model->layers : 1;
  for (uint64_t layer = 0; layer < layers; ++layer) {
    for (const Matrix& matrix : layerMatrices(*d.model)) sizes.push_back(matrix.elements());
  }
  const std::vector<int> owners = assignGreedy(sizes, ranks);
  Layout layout;
  layout.counts.assign(static_cast<size_t>(ranks), 0);
  for (size_t i = 0; i < sizes.size(); ++i) {
    layout.segments.push_back({owners[i], layout.elements, sizes[i]});
    layout.counts[static_cast<size_t>(owners[i])] += sizes[i];
    layout.elements += sizes[i];
  }
  return layout;
}

}  // namespace

double Layout::busFactor() const {
  if (elements == 0 || counts.empty()) return 0;
  const uint64_t least = *std::min_element(counts.begin(), counts.end());
  return static_cast<double>(elements - least) / static_cast<double>(elements);
}

bool parseDistribution(std::string_view text, Distribution* d, std::string* error) {
  using Kind = Distribution::Kind;
  *d = Distribution();
  d->text = std::string(text);
  std::string_view rest;
  uint64_t k = 0;
  if (text == "even") {
    d->kind = Kind::kEven;
    return true;
  }
  if (text == "ramp") {
    d->kind = Kind::kRamp;
    return true;
  }
  if (startsWith(text, "onehot:", &rest) || startsWith(text, "every:", &rest)) {
    d->kind = text[0] == 'o' ? Kind::kOneHot : Kind::kEvery;
    if (!parseNumber(rest, &k) || k > INT32_MAX || (d->kind == Kind::kEvery && k == 0)) {
      *error = fmt::format("--dist: '{}' is not a {} in '{}'", rest,
                           d->kind == Kind::kEvery ? "step from 1" : "rank number", text);
      return false;
    }
    d->k = static_cast<int>(k);
    return true;
  }
  if (startsWith(text, "model:", &rest)) return parseModel(rest, d, error);
  if (startsWith(text, kFilePrefix, &rest)) {
    d->kind = Kind::kFile;
    d->weights.clear();
    return true;
  }
  if (parseColonList(text, &d->weights)) {
    if (std::accumulate(d->weights.begin(), d->weights.end(), uint64_t{0}) > 0) return true;
    *error = fmt::format("--dist: all parts of '{}' are 0", text);
    return false;
  }
  *error = fmt::format("--dist: '{}' is not even, a:b:c, ramp, onehot:k, every:k, model:NAME[:all] or file:PATH", text);
  return false;
}

bool loadDistribution(Distribution* d, std::string* error) {
  if (d->kind != Distribution::Kind::kFile) return true;
  return readWeights(d->text.substr(kFilePrefix.size()), &d->weights, error);
}

Layout packedLayout(const std::vector<uint64_t>& counts) {
  Layout layout;
  layout.counts = counts;
  for (size_t r = 0; r < counts.size(); ++r) {
    layout.segments.push_back({static_cast<int>(r), layout.elements, counts[r]});
    layout.elements += counts[r];
  }
  return layout;
}

bool makeLayout(const Distribution& d, int ranks, uint64_t totalBytes, size_t elementSize, Layout* layout,
                std::string* error) {
  using Kind = Distribution::Kind;
  if (d.kind == Kind::kModel) {
    *layout = modelLayout(d, ranks);
    return true;
  }
  if (d.kind == Kind::kFile && d.weights.size() != static_cast<size_t>(ranks)) {
    *error = fmt::format("--dist: '{}' holds {} numbers but there are {} ranks", d.text, d.weights.size(), ranks);
    return false;
  }
  if (d.kind == Kind::kOneHot && d.k >= ranks) {
    *error = fmt::format("--dist: owner {} of '{}' is not a rank of {}", d.k, d.text, ranks);
    return false;
  }
  const std::vector<uint64_t> weights = rankWeights(d, ranks);
  std::vector<uint64_t> counts(weights.size(), 0);
  if (d.kind == Kind::kFile && totalBytes == 0) {
    for (size_t r = 0; r < counts.size(); ++r) counts[r] = weights[r] / elementSize;
    *layout = packedLayout(counts);
    return true;
  }
  Wide sum = 0;
  for (uint64_t weight : weights) sum += weight;
  if (sum == 0) {
    *error = fmt::format("--dist: nothing to share out by '{}' over {} ranks", d.text, ranks);
    return false;
  }
  // Parts of 16 bytes as nccl-tests has them, elements when the heaviest part would not get one for each rank.
  const bool coarse = totalBytes / 16 >= weights.size();
  const uint64_t unit = coarse ? 16 / elementSize : 1;
  const uint64_t total = totalBytes / elementSize;
  if (d.kind == Kind::kEven) {
    const uint64_t each = total / static_cast<uint64_t>(ranks) / unit * unit;
    counts.assign(counts.size(), each);
  } else {
    // Boundaries are rounded, not parts, so that the sum does not shrink.
    Wide before = 0;
    uint64_t begin = 0;
    for (size_t r = 0; r < counts.size(); ++r) {
      before += weights[r];
      const uint64_t end = static_cast<uint64_t>(Wide{total} * before / sum) / unit * unit;
      counts[r] = end - begin;
      begin = end;
    }
  }
  *layout = packedLayout(counts);
  return true;
}

std::vector<int> assignGreedy(const std::vector<uint64_t>& weights, int ranks) {
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return weights[a] > weights[b]; });
  std::vector<uint64_t> load(static_cast<size_t>(ranks), 0);
  std::vector<int> owners(weights.size(), 0);
  for (size_t item : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += weights[item];
    owners[item] = static_cast<int>(least - load.begin());
  }
  return owners;
}

}  // namespace vcoll::perf
