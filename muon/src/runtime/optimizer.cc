// SPDX-License-Identifier: Apache-2.0
#include "runtime/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "math/coefficients.h"
#include "math/rounding.h"
#include "math/timing.h"
#include "plan/costs_file.h"
#include "plan/digest.h"

namespace vmuon {
namespace {

void checkGroup(const vmuonGroup_t& group) {
  const auto number = [](const char* field, double value, double low, double high) {
    if (!(value >= low && value <= high)) {
      fail(vcollInvalidArgument, fmt::format("group->{} = {}: want a number from {} to {}", field, value, low, high));
    }
  };
  const auto choice = [](const char* field, int32_t value, int32_t count) {
    if (value < 0 || value >= count) {
      fail(vcollInvalidArgument, fmt::format("group->{} = {}: want 0 to {}", field, value, count - 1));
    }
  };
  constexpr double kBelowOne = 1 - 1e-9;
  constexpr double kMost = 1e30;
  number("lr", group.lr, 0, kMost);
  number("momentum", group.momentum, 0, kBelowOne);
  number("weightDecay", group.weightDecay, 0, kMost);
  choice("nesterov", group.nesterov, 2);
  choice("emaMomentum", group.emaMomentum, 2);
  choice("scale", group.scale, vmuonNumScales);
  choice("matrixOptimizer", group.matrixOptimizer, vmuonNumMatrixOptimizers);
  number("beta2", group.beta2, 0, kBelowOne);
  number("adamLr", group.adamLr, 0, kMost);
  number("adamBeta1", group.adamBeta1, 0, kBelowOne);
  number("adamBeta2", group.adamBeta2, 0, kBelowOne);
  number("adamEps", group.adamEps, 0, kMost);
  number("adamWeightDecay", group.adamWeightDecay, 0, kMost);
}

void addGroup(Digest* digest, const vmuonGroup_t& g) {
  for (const double value :
       {g.lr, g.momentum, g.weightDecay, g.beta2, g.adamLr, g.adamBeta1, g.adamBeta2, g.adamEps, g.adamWeightDecay}) {
    digest->add(std::bit_cast<uint64_t>(value));
  }
  for (const int32_t value : {g.nesterov, g.emaMomentum, g.scale, g.matrixOptimizer}) {
    digest->add(static_cast<uint64_t>(value));
  }
}

uint64_t digestOf(const vmuonConfig_t& c, const std::string& coefficients, const std::vector<vmuonGroup_t>& groups) {
  Digest digest;
  for (const int32_t value : {c.line, c.sharding, c.hsdp, c.asyncPublish, c.gradType, c.balance}) {
    digest.add(static_cast<uint64_t>(value));
  }
  digest.add(std::bit_cast<uint64_t>(c.maxGradNorm));
  digest.add(std::bit_cast<uint64_t>(c.byteCap));
  digest.add(c.mergeElements);
  digest.add(coefficients);
  for (const vmuonGroup_t& group : groups) addGroup(&digest, group);
  return digest.value();
}

// What the compiler of numbers is: times are only worth anything on the machine and library that they were taken with.
CostKey costKey(const std::string& coefficients) { return {cpuModel(), "openblas", coefficients}; }

}  // namespace

Optimizer::Optimizer(vcollComm_t comm, Settings settings, const std::string& wrong)
    : settings_(std::move(settings)), cluster_(comm) {
  cluster_.agreeNoError(vcollInvalidArgument, wrong);
  cluster_.arrange(settings_.config.hsdp != 0);
  newtonSchulz_ = std::make_unique<NewtonSchulz>(coefficientSet(settings_.coefficients));
}

void Optimizer::kill(vcollResult_t code, const std::string& text) {
  if (dead_ == vcollSuccess) {
    dead_ = code;
    deadText_ = text;
  }
}

void Optimizer::requireOpen(bool open) const {
  if (dead_ != vcollSuccess) fail(dead_, deadText_);
  if (open_ != open) fail(vcollInvalidUsage, open ? "the optimizer is not open yet" : "the optimizer is open already");
}

int32_t Optimizer::addGroup(const vmuonGroup_t& group) {
  requireOpen(false);
  checkGroup(group);
  model_.groups.push_back(group);
  return model_.params.addGroup();
}

void Optimizer::setGroup(int32_t number, const vmuonGroup_t& group) {
  if (dead_ != vcollSuccess) fail(dead_, deadText_);
  if (number < 0 || number >= model_.params.groups()) {
    fail(vcollInvalidArgument, fmt::format("number = {}: there are {} groups", number, model_.params.groups()));
  }
  checkGroup(group);
  vmuonGroup_t& mine = model_.groups[static_cast<size_t>(number)];
  if (open_ && group.matrixOptimizer != mine.matrixOptimizer) {
    fail(vcollInvalidArgument, fmt::format("group->matrixOptimizer = {}: it is {} since the optimizer was opened",
                                           group.matrixOptimizer, mine.matrixOptimizer));
  }
  mine = group;
}

int32_t Optimizer::addParam(const ParamSpec& spec) {
  requireOpen(false);
  const std::string error = model_.params.add(spec);
  if (!error.empty()) fail(vcollInvalidArgument, error);
  return model_.params.size() - 1;
}

bool Optimizer::usesAdam(const Piece& piece) const {
  return settings_.config.line == vmuonLineAdamW || model_.paramOf(piece).spec.kind == vmuonElementwise;
}

const Param& Optimizer::checkParam(int32_t param) const {
  if (param < 0 || param >= model_.params.size()) {
    fail(vcollInvalidArgument, fmt::format("param = {}: there are {} parameters", param, model_.params.size()));
  }
  return model_.params[param];
}

int Optimizer::layerIndex(int32_t layer) const {
  requireOpen(true);
  const int index = model_.layouts.find(layer);
  if (index < 0) fail(vcollInvalidArgument, fmt::format("layer = {}: no parameter has this layer", layer));
  return index;
}

// Every shape is timed once per node, by whichever of its ranks the shape falls to; the median over nodes counts.
void Optimizer::measureCosts(MeasuredCosts* costs) {
  const CostKey key = costKey(settings_.coefficients);
  const bool cached = !settings_.costCache.empty();
  if (cached) loadCosts(settings_.costCache, key, costs);
  const auto shapes = distinctShapes(model_.table);
  const auto ranksHere = std::count(cluster_.nodeOf().begin(), cluster_.nodeOf().end(), cluster_.node());
  std::vector<double> mine(shapes.size(), std::numeric_limits<double>::quiet_NaN());
  bool measured = false;
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (static_cast<long>(i) % ranksHere != cluster_.localRank()) continue;
    const auto [rows, cols] = shapes[i];
    if (!costs->has(rows, cols)) {
      costs->times[shapes[i]] =
          measureNewtonSchulz(static_cast<int64_t>(rows), static_cast<int64_t>(cols), newtonSchulz_->coefficients());
      measured = true;
    }
    mine[i] = costs->times[shapes[i]];
  }
  const std::vector<double> all = cluster_.exchangeArray(mine);
  costs->times.clear();
  for (size_t i = 0; i < shapes.size(); ++i) {
    std::vector<double> times;
    for (size_t r = 0; r < static_cast<size_t>(cluster_.size()); ++r) {
      const double time = all[r * shapes.size() + i];
      if (!std::isnan(time)) times.push_back(time);
    }
    std::sort(times.begin(), times.end());
    costs->times[shapes[i]] = times[times.size() / 2];
  }
  // Ranks of a node may share the file; the last one to write has what all of them measured.
  const std::vector<char> anyMeasured = cluster_.exchange(static_cast<char>(measured));
  const bool write = std::any_of(anyMeasured.begin(), anyMeasured.end(), [](char m) { return m != 0; });
  if (cached && write && cluster_.localRank() == 0) saveCosts(settings_.costCache, key, *costs);
}

void Optimizer::open() {
  requireOpen(false);
  const vmuonConfig_t& config = settings_.config;
  std::string error = model_.params.validate(config.line == vmuonLineAdamW);
  if (error.empty() && config.line == vmuonLineGather) {
    for (const vmuonGroup_t& group : model_.groups) {
      if (group.matrixOptimizer != vmuonOptMuon)
        error = "group->matrixOptimizer: config->line = vmuonLineGather has Muon only";
    }
  }
  cluster_.agreeNoError(vcollInvalidArgument, error);
  cluster_.agree(digestOf(config, settings_.coefficients, model_.groups), "the optimizer's configuration or a group");
  cluster_.agree(model_.params.digest(), "the list of parameters");

  UnitOptions options;
  options.ranks = cluster_.size();
  options.mergeElements = config.mergeElements;
  const bool owners = config.line == vmuonLinePerOwner || config.line == vmuonLineOwner;
  options.split = owners ? Split::kOwners : Split::kEven;
  model_.table = makeUnits(model_.params, options);
  MeasuredCosts costs;
  if (owners && config.balance) measureCosts(&costs);
  AssignOptions assign;
  assign.strategy = config.balance ? AssignOptions::Strategy::kBalanced : AssignOptions::Strategy::kRoundRobin;
  assign.byteCap = config.byteCap;
  assign.balanceColumns = cluster_.replicated();
  model_.assignment =
      assignOwners(model_.table, unitTimes(model_.table, costs), {cluster_.nodeOf(), cluster_.localOf()}, assign);
  model_.layouts = makeLayouts(model_.params, model_.table, model_.assignment, config.gradType);
  cluster_.agree(model_.assignment.digest(model_.params, model_.table), "the choice of owners");
  cluster_.agree(model_.layouts.digest(model_.params, model_.table), "the layout of layers");

  makeOwned();
  const bool perOwner = config.line == vmuonLinePerOwner;
  params_ = std::make_unique<ParamSpace>(cluster_, model_, config.sharding == vmuonZero2, perOwner);
  const bool wide = config.gradType == vcollFloat32;
  grads_ = std::make_unique<GradSpace>(cluster_, model_, static_cast<vcollDataType_t>(config.gradType), perOwner,
                                       [this, wide](int piece, const std::byte* data) {
                                         std::vector<float>& sum = ownedOf(piece)->grad;
                                         const auto count = static_cast<int64_t>(sum.size());
                                         if (wide)
                                           addFloat32(reinterpret_cast<const float*>(data), sum.data(), count);
                                         else
                                           addBfloat16(reinterpret_cast<const uint16_t*>(data), sum.data(), count);
                                       });
  if (config.line == vmuonLineGather) {
    size_t bytes = 64;
    for (const LayerLayout& layer : model_.layouts.layers) bytes = std::max<size_t>(bytes, layer.gradBytes);
    gatherMemory_ = std::make_unique<vcoll::Memory>(bytes);
    gatherWindow_ = std::make_unique<vcoll::Window>(cluster_.world(), *gatherMemory_);
    for (const LayerLayout& layer : model_.layouts.layers) {
      gatherPlans_.push_back(layer.gradSegments.empty()
                                 ? nullptr
                                 : std::make_unique<vcoll::Plan>(cluster_.world(), layer.gradSegments, vcollUint8));
    }
  }
  touched_.assign(static_cast<size_t>(model_.params.size()), 0);
  open_ = true;
}

Owned* Optimizer::ownedOf(int piece) {
  const int at = index_[static_cast<size_t>(piece)];
  return at < 0 ? nullptr : &owned_[static_cast<size_t>(at)];
}

void Optimizer::makeOwned() {
  index_.assign(static_cast<size_t>(model_.pieces()), -1);
  for (int p = 0; p < model_.pieces(); ++p) {
    if (model_.assignment.ownerOf(model_.table, p) != cluster_.rank()) continue;
    const Piece& piece = model_.piece(p);
    Owned owned;
    owned.piece = p;
    owned.master.assign(piece.elements, 0);
    if (!model_.frozen(piece)) {
      owned.grad.assign(piece.elements, 0);
      owned.momentum.assign(piece.elements, 0);
      if (usesAdam(piece)) {
        owned.second.assign(piece.elements, 0);
      } else if (model_.groupOf(piece).matrixOptimizer == vmuonOptNorMuon) {
        owned.second.assign(piece.elements / piece.blocks.front().cols, 0);
      }
    }
    index_[static_cast<size_t>(p)] = static_cast<int>(owned_.size());
    owned_.push_back(std::move(owned));
  }
}

const std::string& Optimizer::describe() {
  description_ =
      describeParams(model_.params, open_ ? &model_.table : nullptr, open_ ? &model_.assignment.owner : nullptr);
  return description_;
}

int Optimizer::owner(int32_t param, uint64_t expert) {
  requireOpen(true);
  const Param& p = checkParam(param);
  const uint64_t experts = p.spec.kind == vmuonExperts ? p.spec.shape[0] : 1;
  if (expert >= experts)
    fail(vcollInvalidArgument, fmt::format("expert = {}: '{}' has {}", expert, p.spec.name, experts));
  const int32_t piece = model_.table.pieceAt(p.holder, expert * (p.elements / experts));
  if (piece < 0) fail(vcollInvalidArgument, fmt::format("param = {}: '{}' has no elements", param, p.spec.name));
  return model_.assignment.ownerOf(model_.table, piece);
}

void Optimizer::storeCopy(int number, const float* values) {
  std::byte* to = params_->copies().at(number);
  if (!to) return;
  const Piece& piece = model_.piece(number);
  if (model_.paramOf(piece).spec.dtype == vcollFloat32) {
    std::memcpy(to, values, piece.elements * sizeof(float));
  } else {
    roundToBfloat16(values, reinterpret_cast<uint16_t*>(to), static_cast<int64_t>(piece.elements));
  }
}

// Before copies are written outside a step.
void Optimizer::newValues() {
  if (params_->inUse()) fail(vcollInvalidUsage, "a layer is in use: vmuonEndForward or vmuonEndBackward is missing");
  params_->newVersion();
  params_->copies().drain();
}

void Optimizer::setParam(int32_t param, const float* values) {
  requireOpen(true);
  const int32_t holder = checkParam(param).holder;
  if (!values) fail(vcollInvalidArgument, "values = NULL");
  newValues();
  const auto [first, last] = model_.table.piecesOf[static_cast<size_t>(holder)];
  for (int p = first; p < last; ++p) {
    const Piece& piece = model_.piece(p);
    const float* from = values + piece.offset;
    if (Owned* owned = ownedOf(p)) std::copy_n(from, piece.elements, owned->master.begin());
    storeCopy(p, from);
  }
}

void Optimizer::getParam(int32_t param, float* values) {
  requireOpen(true);
  const int32_t holder = checkParam(param).holder;
  if (!values) fail(vcollInvalidArgument, "values = NULL");
  const auto [first, last] = model_.table.piecesOf[static_cast<size_t>(holder)];
  std::vector<size_t> counts(static_cast<size_t>(cluster_.size()), 0);
  std::vector<float> mine;
  for (int p = first; p < last; ++p) {
    counts[static_cast<size_t>(model_.assignment.ownerOf(model_.table, p))] += model_.piece(p).elements;
    if (const Owned* owned = ownedOf(p)) mine.insert(mine.end(), owned->master.begin(), owned->master.end());
  }
  std::vector<size_t> at(counts.size(), 0);
  for (size_t r = 1; r < at.size(); ++r) at[r] = at[r - 1] + counts[r - 1];
  std::vector<float> all(at.back() + counts.back());
  vcoll::check(vcollAllGatherV(mine.data(), mine.size(), all.data(), counts.data(), nullptr, vcollFloat32,
                               cluster_.world().native(), nullptr),
               cluster_.world().native());
  for (int p = first; p < last; ++p) {
    const Piece& piece = model_.piece(p);
    size_t& from = at[static_cast<size_t>(model_.assignment.ownerOf(model_.table, p))];
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(from), piece.elements, values + piece.offset);
    from += piece.elements;
  }
}

void Optimizer::beginForward(int32_t layer) {
  const int index = layerIndex(layer);
  params_->begin(index);
  if (std::find(forward_.begin(), forward_.end(), index) == forward_.end()) forward_.push_back(index);
}

void Optimizer::endForward(int32_t layer) {
  const int index = layerIndex(layer);
  if (!params_->data(index)) fail(vcollInvalidUsage, fmt::format("layer = {} was not begun", layer));
  params_->end(index);
}

void Optimizer::beginBackward(int32_t layer) {
  const int index = layerIndex(layer);
  if (grads_->data(index)) fail(vcollInvalidUsage, fmt::format("layer = {}: its backward has begun already", layer));
  params_->begin(index);
  grads_->begin(index);
}

void Optimizer::endBackward(int32_t layer) {
  const int index = layerIndex(layer);
  if (!grads_->data(index)) fail(vcollInvalidUsage, fmt::format("layer = {}: its backward was not begun", layer));
  grads_->end(index);
  params_->end(index);
}

const void* Optimizer::paramData(int32_t param) {
  requireOpen(true);
  const int32_t holder = checkParam(param).holder;
  const int index = model_.layouts.indexOf[static_cast<size_t>(holder)];
  const std::byte* data = params_->data(index);
  if (!data) {
    fail(vcollInvalidUsage, fmt::format("param = {}: layer {} of '{}' is not in use", param, model_.layer(index).layer,
                                        model_.params[holder].spec.name));
  }
  return data + model_.layouts.param(holder).paramOffset;
}

void* Optimizer::gradData(int32_t param) {
  requireOpen(true);
  const int32_t holder = checkParam(param).holder;
  const Param& p = model_.params[holder];
  if (p.spec.frozen) fail(vcollInvalidArgument, fmt::format("param = {}: '{}' is frozen", param, p.spec.name));
  const int index = model_.layouts.indexOf[static_cast<size_t>(holder)];
  std::byte* data = grads_->data(index);
  if (!data) {
    fail(vcollInvalidUsage, fmt::format("param = {}: the backward of layer {} of '{}' is not running", param,
                                        model_.layer(index).layer, p.spec.name));
  }
  touched_[static_cast<size_t>(holder)] = 1;
  return data + model_.layouts.param(holder).gradOffset;
}

}  // namespace vmuon
