// SPDX-License-Identifier: Apache-2.0
// Update rules against plain loops in double precision. Numbers in the names: rows of the list of other libraries' bug
// reports.
#include "math/matrix_optimizer.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <stdexcept>

#include "math/adamw.h"
#include "math_reference.h"

namespace {

using namespace vmuon_test;

vmuonGroup_t makeGroup() {
  vmuonGroup_t group = VMUON_GROUP_INITIALIZER;
  return group;
}

// One matrix and its optimizer's state.
struct Trained {
  int64_t rows;
  int64_t cols;
  const vmuon::MatrixOptimizer& optimizer;
  std::vector<float> master;
  std::vector<float> state;
  std::vector<float> direction;
  vmuon::NewtonSchulz newtonSchulz{vmuon::coefficientSet("polar-express")};

  Trained(const Matrix& weights, int32_t which)
      : rows(weights.rows),
        cols(weights.cols),
        optimizer(vmuon::matrixOptimizer(which)),
        master(toFloat(weights)),
        state(static_cast<size_t>(optimizer.stateFloats(rows, cols))),
        direction(master.size()) {}

  void step(const vmuonGroup_t& group, const Matrix& grad, float gradScale = 1) {
    const std::vector<float> g = toFloat(grad);
    vmuon::MatrixUpdate update;
    update.rows = rows;
    update.cols = cols;
    update.group = &group;
    update.grad = g.data();
    update.gradScale = gradScale;
    update.state = state.data();
    update.master = master.data();
    update.direction = direction.data();
    optimizer.update(newtonSchulz, update);
  }
  Matrix weights() const { return toMatrix(master, rows, cols); }
};

double referenceScale(int32_t scale, int64_t rows, int64_t cols) {
  const auto m = static_cast<double>(rows);
  const auto n = static_cast<double>(cols);
  if (scale == vmuonScaleMatchAdamW) return 0.2 * std::sqrt(m > n ? m : n);
  if (scale == vmuonScaleOriginal) return m > n ? std::sqrt(m / n) : 1;
  if (scale == vmuonScaleSpectral) return std::sqrt(m) / std::sqrt(n);
  return 1;
}

// The rules as written in the papers.
struct Reference {
  Matrix weights;
  Matrix momentum;
  std::vector<double> second;
  Reference(const Matrix& w, bool norMuon) : weights(w), momentum(w.rows, w.cols) {
    if (norMuon) second.resize(static_cast<size_t>(w.rows));
  }

  void step(const vmuonGroup_t& group, const Matrix& grad) {
    const double mu = group.momentum;
    Matrix u = grad;
    for (size_t i = 0; i < u.values.size(); ++i) {
      const double g = grad.values[i];
      double& m = momentum.values[i];
      if (group.emaMomentum != 0) {
        m = m + (1 - mu) * (g - m);                                // lerp(M, G, 1 - mu)
        u.values[i] = group.nesterov != 0 ? g + mu * (m - g) : m;  // lerp(G, M, mu)
      } else {
        m = mu * m + g;
        u.values[i] = group.nesterov != 0 ? g + mu * m : m;
      }
    }
    Matrix o = newtonSchulz(u, vmuon::coefficientSet("polar-express"));
    if (!second.empty()) {
      const double before = norm(o);
      for (int64_t i = 0; i < o.rows; ++i) {
        double mean = 0;
        for (int64_t j = 0; j < o.cols; ++j) mean += o.at(i, j) * o.at(i, j) / static_cast<double>(o.cols);
        double& v = second[static_cast<size_t>(i)];
        v = group.beta2 * v + (1 - group.beta2) * mean;
        for (int64_t j = 0; j < o.cols; ++j) o.at(i, j) /= std::sqrt(v);
      }
      o = scaled(o, before / norm(o));
    }
    const double adjusted = group.lr * referenceScale(group.scale, o.rows, o.cols);
    for (size_t i = 0; i < o.values.size(); ++i) {
      weights.values[i] *= 1 - group.lr * group.weightDecay;
      weights.values[i] -= adjusted * o.values[i];
    }
  }
};

Matrix gradient(const Matrix& like, uint64_t step) {
  // Parts that persist and parts that don't, so that momentum matters.
  Matrix g = gaussian(like.rows, like.cols, 100 + step);
  const Matrix steady = gaussian(like.rows, like.cols, 99);
  for (size_t i = 0; i < g.values.size(); ++i) g.values[i] += steady.values[i];
  return g;
}

// Distance of the updates, not of the weights, which hardly move.
double updateError(const Matrix& after, const Matrix& wanted, const Matrix& before) {
  Matrix a = after;
  Matrix b = wanted;
  for (size_t i = 0; i < a.values.size(); ++i) {
    a.values[i] -= before.values[i];
    b.values[i] -= before.values[i];
  }
  return relativeError(a, b);
}

}  // namespace

TEST_CASE("math Muon: every combination of momentum, Nesterov and scale follows the rule") {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{12, 40}, {40, 12}, {24, 24}}) {
    const Matrix start = scaled(gaussian(rows, cols, 1), 0.3);
    for (int32_t variant = 0; variant < 2 * 2 * vmuonNumScales; ++variant) {
      auto group = makeGroup();
      group.nesterov = variant & 1;
      group.emaMomentum = variant >> 1 & 1;
      group.scale = variant >> 2;
      group.momentum = 0.8;
      group.weightDecay = 0.5;  // with lr 0.02 a tenth of the weights in ten steps: nothing a tolerance hides
      Trained trained(start, vmuonOptMuon);
      Reference reference(start, false);
      for (uint64_t step = 0; step < 10; ++step) {
        const Matrix g = gradient(start, step);
        trained.step(group, g);
        reference.step(group, g);
      }
      INFO(rows << " x " << cols << ", nesterov " << group.nesterov << ", ema " << group.emaMomentum << ", scale "
                << group.scale);
      CHECK(updateError(trained.weights(), reference.weights, start) < 1e-3);
      CHECK(relativeError(toMatrix(trained.state, rows, cols), reference.momentum) < 1e-6);
      CHECK(trained.newtonSchulz.calls() == 10);
    }
  }
}

TEST_CASE("math Muon: Nesterov, momentum and scale each change the result") {
  const Matrix start(10, 30);
  const auto after = [&](auto change) {
    auto group = makeGroup();
    group.momentum = 0.8;
    change(group);
    Trained trained(start, vmuonOptMuon);
    for (uint64_t step = 0; step < 3; ++step) trained.step(group, gradient(start, step));
    return trained.weights();
  };
  const Matrix base = after([](vmuonGroup_t&) {});
  CHECK(relativeError(after([](vmuonGroup_t& g) { g.nesterov = 0; }), base) > 0.02);
  CHECK(relativeError(after([](vmuonGroup_t& g) { g.momentum = 0.1; }), base) > 0.02);
  CHECK(relativeError(after([](vmuonGroup_t& g) { g.scale = vmuonScaleNone; }), base) > 0.02);
  CHECK(relativeError(after([](vmuonGroup_t& g) { g.lr = 0.01; }), base) > 0.02);
  // The direction has no scale, so both conventions of momentum agree from zero state.
  CHECK(relativeError(after([](vmuonGroup_t& g) { g.emaMomentum = 1; }), base) < 1e-4);
}

TEST_CASE("math Muon: weight decay is decoupled and uses the plain learning rate") {
  const Matrix start = gaussian(32, 128, 5);
  auto group = makeGroup();
  group.lr = 0.1;
  group.weightDecay = 1;
  Trained trained(start, vmuonOptMuon);
  trained.step(group, Matrix(32, 128));  // no gradient: nothing but decay
  CHECK(relativeError(trained.weights(), scaled(start, 0.9)) < 1e-6);
  // The scaled rate would have been 0.2 sqrt(128) times as large.
  CHECK(relativeError(trained.weights(), scaled(start, 1 - 0.1 * 0.2 * std::sqrt(128.0))) > 0.1);
}

TEST_CASE("math Muon: sum and average momentum, and the factor between them (#20)") {
  constexpr double kMu = 0.95;
  CHECK(vmuon::momentumConversion(true, false, kMu) == Approx(20));
  CHECK(vmuon::momentumConversion(false, true, kMu) == Approx(0.05));
  CHECK(vmuon::momentumConversion(true, true, kMu) == 1);
  CHECK(vmuon::momentumConversion(false, false, kMu) == 1);
  // A run that changes convention in the middle goes on as if it had not; without the factor it does not.
  const Matrix start(16, 48);
  auto sum = makeGroup();
  auto ema = makeGroup();
  ema.emaMomentum = 1;
  Trained unchanged(start, vmuonOptMuon);
  Trained converted(start, vmuonOptMuon);
  Trained forgotten(start, vmuonOptMuon);
  for (uint64_t step = 0; step < 8; ++step) {
    if (step == 4) {
      for (float& m : converted.state) m *= static_cast<float>(vmuon::momentumConversion(false, true, kMu));
    }
    unchanged.step(sum, gradient(start, step));
    converted.step(step < 4 ? sum : ema, gradient(start, step));
    forgotten.step(step < 4 ? sum : ema, gradient(start, step));
  }
  CHECK(relativeError(converted.weights(), unchanged.weights()) < 1e-4);
  CHECK(relativeError(forgotten.weights(), unchanged.weights()) > 1e-2);
}

TEST_CASE("math Muon: a step has the size the scale rule promises, whatever clipping did to the gradient (#29)") {
  auto group = makeGroup();
  for (const int64_t hidden : {16, 64, 128, 256}) {
    const Matrix start(hidden, 4 * hidden);
    const Matrix g = gradient(start, 0);
    Trained plain(start, vmuonOptMuon);
    plain.step(group, g);
    // Rows of an orthogonalised m x n matrix have norm 1, so RMS is 0.2 lr for every width.
    const double rms = norm(plain.weights()) / std::sqrt(static_cast<double>(start.values.size()));
    INFO("hidden " << hidden);
    CHECK(rms == Approx(0.2 * group.lr).epsilon(0.13));
    // Norms of 1e7 to 1e11 make clipping's factor this small; dividing the update by it, or an epsilon, would show.
    for (const float clip : {0.25f, 1e-8f, 1e-12f, 1e-20f}) {
      Trained clipped(start, vmuonOptMuon);
      clipped.step(group, g, clip);
      CHECK(relativeError(clipped.weights(), plain.weights()) < 1e-4);
      CHECK(relativeError(toMatrix(clipped.state, start.rows, start.cols), scaled(g, clip)) < 1e-6);
    }
  }
}

TEST_CASE("math Muon: the scale follows the block's shape, not the fused one (#44, #50)") {
  // Query, key and value rows of one parameter.
  constexpr int64_t kCols = 24;
  const std::vector<int64_t> blocks = {48, 12, 12};
  const Matrix start = gaussian(72, kCols, 3);
  const Matrix g = gradient(start, 1);
  for (const int32_t scale : {vmuonScaleMatchAdamW, vmuonScaleOriginal, vmuonScaleSpectral}) {
    auto group = makeGroup();
    group.scale = scale;
    Trained whole(start, vmuonOptMuon);
    whole.step(group, g);
    int64_t first = 0;
    for (const int64_t rows : blocks) {
      const auto part = [&](const Matrix& from) {
        Matrix block(rows, kCols);
        std::copy_n(from.values.begin() + first * kCols, rows * kCols, block.values.begin());
        return block;
      };
      Trained trained(part(start), vmuonOptMuon);
      Reference reference(part(start), false);
      trained.step(group, part(g));
      reference.step(group, part(g));
      INFO("scale " << scale << ", block of " << rows << " rows");
      CHECK(updateError(trained.weights(), reference.weights, part(start)) < 1e-4);
      CHECK(updateError(part(whole.weights()), reference.weights, part(start)) > 0.1);
      first += rows;
    }
  }
}

TEST_CASE("math Muon: the parts on ranges do what the whole does, bit for bit") {
  constexpr int64_t kRows = 20;
  constexpr int64_t kCols = 33;
  constexpr int64_t kCount = kRows * kCols;
  const Matrix start = gaussian(kRows, kCols, 2);
  for (const int32_t which : {vmuonOptMuon, vmuonOptNorMuon}) {
    auto group = makeGroup();
    group.weightDecay = 0.3;
    Trained whole(start, which);
    Trained parts(start, which);
    for (uint64_t step = 0; step < 3; ++step) {
      const std::vector<float> g = toFloat(gradient(start, step));
      whole.step(group, gradient(start, step), 0.5f);
      parts.direction = g;  // in place, as the runtime does with gradients it owns
      const int64_t bounds[] = {0, 7, 100, 101, kCount};
      for (int i = 0; i < 4; ++i) {
        float* at = parts.direction.data() + bounds[i];
        parts.optimizer.prepare(group, at, 0.5f, parts.state.data() + bounds[i], at, bounds[i + 1] - bounds[i]);
      }
      parts.newtonSchulz.orthogonalize(parts.direction.data(), kRows, kCols);
      parts.optimizer.adapt(group, parts.direction.data(), kRows, kCols, parts.state.data() + kCount);
      for (int i = 0; i < 4; ++i) {
        parts.optimizer.apply(group, kRows, kCols, parts.direction.data() + bounds[i], parts.master.data() + bounds[i],
                              bounds[i + 1] - bounds[i]);
      }
    }
    CHECK(parts.master == whole.master);
    CHECK(parts.state == whole.state);
  }
}

TEST_CASE("math NorMuon: rows are evened out and the update keeps Muon's norm (#6)") {
  auto group = makeGroup();
  group.scale = vmuonScaleNone;
  const Matrix start(40, 25);  // more rows than columns: orthogonalised rows differ in norm
  const Matrix g = gradient(start, 0);
  Trained muon(start, vmuonOptMuon);
  Trained norMuon(start, vmuonOptNorMuon);
  muon.step(group, g);
  norMuon.step(group, g);
  CHECK(norm(norMuon.weights()) == Approx(norm(muon.weights())).epsilon(1e-5));
  CHECK(relativeError(norMuon.weights(), muon.weights()) > 0.05);
  // In the first step the second moments are the rows' own.
  const double rowNorm = norm(norMuon.weights()) / std::sqrt(40.0);
  for (int64_t i = 0; i < 40; ++i) {
    double square = 0;
    for (int64_t j = 0; j < 25; ++j) square += std::pow(norMuon.weights().at(i, j), 2);
    CHECK(std::sqrt(square) == Approx(rowNorm).epsilon(1e-5));
  }
}

TEST_CASE("math NorMuon: several steps follow the rule") {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{40, 25}, {16, 60}}) {
    auto group = makeGroup();
    group.momentum = 0.7;
    group.beta2 = 0.8;
    group.weightDecay = 0.5;
    const Matrix start = scaled(gaussian(rows, cols, 8), 0.3);
    Trained trained(start, vmuonOptNorMuon);
    Reference reference(start, true);
    for (uint64_t step = 0; step < 8; ++step) {
      trained.step(group, gradient(start, step));
      reference.step(group, gradient(start, step));
    }
    INFO(rows << " x " << cols);
    CHECK(updateError(trained.weights(), reference.weights, start) < 1e-3);
    for (int64_t i = 0; i < rows; ++i) {
      CHECK(trained.state[static_cast<size_t>(rows * cols + i)] ==
            Approx(reference.second[static_cast<size_t>(i)]).epsilon(1e-3));
    }
  }
  // A row that never moves does not disturb the others.
  Matrix g = gaussian(6, 9, 1);
  for (int64_t j = 0; j < 9; ++j) g.at(2, j) = 0;
  Trained trained(Matrix(6, 9), vmuonOptNorMuon);
  for (int step = 0; step < 3; ++step) trained.step(makeGroup(), g);
  for (int64_t i = 0; i < 6; ++i) {
    for (int64_t j = 0; j < 9; ++j) {
      CHECK(std::isfinite(trained.weights().at(i, j)));
      CHECK((std::abs(trained.weights().at(i, j)) < 1e-6) == (i == 2));
    }
  }
}

TEST_CASE("math optimizers: state is described for checkpoints") {
  const auto& muon = vmuon::matrixOptimizer(vmuonOptMuon);
  const auto& norMuon = vmuon::matrixOptimizer(vmuonOptNorMuon);
  CHECK(muon.stateFloats(3, 5) == 15);
  CHECK(norMuon.stateFloats(3, 5) == 18);
  const auto tensors = norMuon.stateTensors(3, 5);
  REQUIRE(tensors.size() == 2);
  CHECK(tensors[0].name == std::string("momentum"));
  CHECK(tensors[0].rows == 3);
  CHECK(tensors[0].cols == 5);
  CHECK(tensors[1].name == std::string("second_moment"));
  CHECK(tensors[1].rows == 3);
  CHECK(tensors[1].cols == 1);
  CHECK_THROWS_AS(vmuon::matrixOptimizer(vmuonNumMatrixOptimizers), std::invalid_argument);
  CHECK_THROWS_AS(vmuon::learningRateScale(vmuonNumScales, 2, 2), std::invalid_argument);
}

TEST_CASE("math AdamW: ranges follow the rule with the group's own, unscaled rate (#15)") {
  constexpr int64_t kCount = 57;
  auto group = makeGroup();
  group.lr = 123;  // the matrices' rate plays no part
  group.adamLr = 0.01;
  group.adamBeta1 = 0.8;
  group.adamBeta2 = 0.9;
  group.adamWeightDecay = 2;
  const Matrix start = gaussian(1, kCount, 4);
  std::vector<float> w = toFloat(start);
  std::vector<float> m(kCount);
  std::vector<float> v(kCount);
  Matrix rw = start;
  Matrix rm(1, kCount);
  Matrix rv(1, kCount);
  for (int64_t step = 1; step <= 12; ++step) {
    const std::vector<float> g = toFloat(gradient(start, static_cast<uint64_t>(step)));
    vmuon::adamWUpdate(group, step, g.data(), 0.25f, m.data(), v.data(), w.data(), 0, 20);
    vmuon::adamWUpdate(group, step, g.data(), 0.25f, m.data(), v.data(), w.data(), 20, 20);
    vmuon::adamWUpdate(group, step, g.data(), 0.25f, m.data(), v.data(), w.data(), 20, kCount - 1);
    for (size_t i = 0; i + 1 < kCount; ++i) {
      const double grad = 0.25 * g[i];
      rw.values[i] *= 1 - 0.01 * 2;
      rm.values[i] = 0.8 * rm.values[i] + 0.2 * grad;
      rv.values[i] = 0.9 * rv.values[i] + 0.1 * grad * grad;
      const double mHat = rm.values[i] / (1 - std::pow(0.8, step));
      const double vHat = rv.values[i] / (1 - std::pow(0.9, step));
      rw.values[i] -= 0.01 * mHat / (std::sqrt(vHat) + 1e-8);
    }
  }
  CHECK(updateError(toMatrix(w, 1, kCount), rw, start) < 1e-5);
  CHECK(relativeError(toMatrix(m, 1, kCount), rm) < 1e-5);
  CHECK(relativeError(toMatrix(v, 1, kCount), rv) < 1e-5);
  CHECK(w.back() == static_cast<float>(start.values.back()));  // outside the range
}

TEST_CASE("math AdamW: the first step has the learning rate's size; a zero gradient only decays") {
  auto group = makeGroup();
  group.adamLr = 0.5;
  group.adamWeightDecay = 0.2;
  const std::vector<float> g = {1e-3f, -1e3f, 0};
  std::vector<float> w = {0, 0, 10};
  std::vector<float> m(3);
  std::vector<float> v(3);
  vmuon::adamWUpdate(group, 1, g.data(), 1, m.data(), v.data(), w.data(), 0, 3);
  CHECK(w[0] == Approx(-0.5).epsilon(1e-4));
  CHECK(w[1] == Approx(0.5).epsilon(1e-4));
  CHECK(w[2] == Approx(9.0));
}
