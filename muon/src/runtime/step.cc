// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>

#include "math/adamw.h"
#include "math/gradient_norm.h"
#include "math/rounding.h"
#include "runtime/optimizer.h"

namespace vmuon {
namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

}  // namespace

void Optimizer::step(vmuonStats_t* stats) {
  requireOpen(true);
  if (params_->inUse())
    fail(vcollInvalidUsage, "a layer is still in use: vmuonEndForward or vmuonEndBackward is missing");
  const Clock::time_point begun = Clock::now();
  stats_.newtonSchulzTime = 0;
  stats_.newtonSchulz = 0;
  stats_.gatherTime = 0;
  stats_.gatherBytes = 0;
  grads_->finish();
  grads_->settle();
  params_->newVersion();
  shareTouched();
  stats_.skipped = gradientNorm() ? 0 : 1;
  if (!stats_.skipped) {
    update(static_cast<float>(clipCoefficient(stats_.gradNorm, settings_.config.maxGradNorm)));
    ++stats_.step;
  }
  for (Owned& owned : owned_) std::fill(owned.grad.begin(), owned.grad.end(), 0.0f);
  std::fill(touched_.begin(), touched_.end(), uint8_t{0});
  forward_.clear();
  fillStats(secondsSince(begun));
  if (stats) *stats = stats_;
}

// A parameter that got a gradient on one rank has one everywhere: zeros where nothing was added.
void Optimizer::shareTouched() {
  const std::vector<uint8_t> all = cluster_.exchangeArray(touched_);
  for (size_t i = 0; i < all.size(); ++i) touched_[i % touched_.size()] |= all[i];
}

bool Optimizer::gradientNorm() {
  double mine = 0;
  for (const Owned& owned : owned_) mine += sumOfSquares(owned.grad.data(), static_cast<int64_t>(owned.grad.size()));
  const std::vector<double> all = cluster_.exchange(mine);
  stats_.gradNorm = std::sqrt(std::accumulate(all.begin(), all.end(), 0.0));
  return std::isfinite(stats_.gradNorm);
}

void Optimizer::update(float gradScale) {
  params_->copies().begin();
  if (settings_.config.line == vmuonLineGather) gatherAndOrthogonalize(gradScale);
  // What the next forward needs first is updated, and sent, first.
  std::vector<int> order = forward_;
  for (int l = 0; l < model_.layers(); ++l) {
    if (std::find(order.begin(), order.end(), l) == order.end()) order.push_back(l);
  }
  for (const int layer : order) {
    for (const PieceSlot& slot : model_.layer(layer).pieces) {
      Owned* owned = ownedOf(slot.piece);
      if (!owned || model_.frozen(model_.piece(slot.piece))) continue;
      if (touched_[static_cast<size_t>(model_.piece(slot.piece).param)]) {
        updateOwned(*owned, gradScale);
        storeCopy(slot.piece, owned->master.data());
      }
      params_->copies().push(slot.piece);
    }
  }
  params_->copies().end();
  if (!settings_.config.asyncPublish) params_->copies().drain();
}

void Optimizer::updateOwned(Owned& owned, float gradScale) {
  const Piece& piece = model_.piece(owned.piece);
  const vmuonGroup_t& group = model_.groupOf(piece);
  ++owned.steps;
  if (usesAdam(piece)) {
    adamWUpdate(group, static_cast<int64_t>(owned.steps), owned.grad.data(), gradScale, owned.momentum.data(),
                owned.second.data(), owned.master.data(), 0, static_cast<int64_t>(piece.elements));
    return;
  }
  if (settings_.config.line == vmuonLineGather) return;  // done
  const MatrixOptimizer& method = matrixOptimizer(group.matrixOptimizer);
  for (const MatrixBlock& block : piece.blocks) {
    const uint64_t at = block.offset - piece.offset;
    const auto rows = static_cast<int64_t>(block.rows);
    const auto cols = static_cast<int64_t>(block.cols);
    direction_.resize(std::max<size_t>(direction_.size(), block.elements()));
    method.prepare(group, owned.grad.data() + at, gradScale, owned.momentum.data() + at, direction_.data(),
                   rows * cols);
    const Clock::time_point begun = Clock::now();
    newtonSchulz_->orthogonalize(direction_.data(), rows, cols);
    stats_.newtonSchulzTime += secondsSince(begun);
    ++stats_.newtonSchulz;
    method.adapt(group, direction_.data(), rows, cols,
                 owned.second.empty() ? nullptr : owned.second.data() + at / block.cols);
    method.apply(group, rows, cols, direction_.data(), owned.master.data() + at, rows * cols);
  }
}

// Line B: momentum stays sharded; every rank gathers what is to be orthogonalised, does all of it, and keeps its shard.
void Optimizer::gatherAndOrthogonalize(float gradScale) {
  const bool wide = settings_.config.gradType == vcollFloat32;
  auto* const base = gatherMemory_->as<std::byte>();
  std::vector<float> whole;
  for (int l = 0; l < model_.layers(); ++l) {
    const LayerLayout& layer = model_.layer(l);
    const auto learns = [&](int32_t param) {
      return model_.params[param].isTrainedMatrix() && touched_[static_cast<size_t>(param)];
    };
    if (std::none_of(layer.params.begin(), layer.params.end(), [&](const ParamSlot& s) { return learns(s.param); }))
      continue;
    for (const PieceSlot& slot : layer.pieces) {
      Owned* owned = ownedOf(slot.piece);
      const Piece& piece = model_.piece(slot.piece);
      if (!owned || !learns(piece.param)) continue;
      const auto count = static_cast<int64_t>(piece.elements);
      direction_.resize(std::max<size_t>(direction_.size(), piece.elements));
      matrixOptimizer(vmuonOptMuon)
          .prepare(model_.groupOf(piece), owned->grad.data(), gradScale, owned->momentum.data(), direction_.data(),
                   count);
      if (wide)
        std::memcpy(base + slot.gradOffset, direction_.data(), slot.gradBytes);
      else
        roundToBfloat16(direction_.data(), reinterpret_cast<uint16_t*>(base + slot.gradOffset), count);
    }
    const Clock::time_point gathering = Clock::now();
    gatherPlans_[static_cast<size_t>(l)]->allGatherV(*gatherWindow_);
    stats_.gatherTime += secondsSince(gathering);
    for (const vcollSegment_t& segment : layer.gradSegments) {
      if (segment.owner != cluster_.rank()) stats_.gatherBytes += segment.bytes;
    }
    for (const ParamSlot& slot : layer.params) {
      if (!learns(slot.param)) continue;
      const Param& param = model_.params[slot.param];
      whole.resize(std::max<size_t>(whole.size(), param.elements));
      const std::byte* from = base + slot.gradOffset;
      if (wide)
        std::memcpy(whole.data(), from, param.elements * sizeof(float));
      else
        widenBfloat16(reinterpret_cast<const uint16_t*>(from), whole.data(), static_cast<int64_t>(param.elements));
      const auto [first, last] = model_.table.piecesOf[static_cast<size_t>(slot.param)];
      for (const MatrixBlock& block : blocksOf(param.spec)) {
        const auto rows = static_cast<int64_t>(block.rows);
        const auto cols = static_cast<int64_t>(block.cols);
        const Clock::time_point begun = Clock::now();
        newtonSchulz_->orthogonalize(whole.data() + block.offset, rows, cols);
        stats_.newtonSchulzTime += secondsSince(begun);
        ++stats_.newtonSchulz;
        for (int p = first; p < last; ++p) {
          Owned* owned = ownedOf(p);
          const Piece& piece = model_.piece(p);
          const uint64_t begin = std::max(piece.offset, block.offset);
          const uint64_t end = std::min(piece.offset + piece.elements, block.offset + block.elements());
          if (!owned || begin >= end) continue;
          matrixOptimizer(vmuonOptMuon)
              .apply(model_.groupOf(piece), rows, cols, whole.data() + begin,
                     owned->master.data() + (begin - piece.offset), static_cast<int64_t>(end - begin));
        }
      }
    }
    cluster_.barrier();  // the window is written again for the next layer only when everybody has read it
  }
}

void Optimizer::fillStats(double stepTime) {
  const ParamSpace::Waits waits = params_->takeWaits();
  stats_.stepTime = stepTime;
  stats_.publishWait = waits.publish;
  stats_.gatherTime += waits.gather;
  stats_.gatherBytes += waits.bytes;
  stats_.reduceTime = grads_->takeWait();
  stats_.reduceBytes = grads_->takeBytes();
  stats_.publishBytes = params_->copies().pushedBytes();
  stats_.fallbacks = params_->slots().fallbacks() + grads_->slots().fallbacks();
  stats_.stateBytes = 0;
  for (const Owned& owned : owned_) {
    stats_.stateBytes += (owned.master.size() + owned.momentum.size() + owned.second.size()) * sizeof(float);
  }
  stats_.copyBytes = params_->slots().bytes() + grads_->slots().bytes() + params_->copies().bytes();
}

}  // namespace vmuon
