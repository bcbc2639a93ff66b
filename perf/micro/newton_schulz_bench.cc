// SPDX-License-Identifier: Apache-2.0
// Newton-Schulz beside BLAS's plain product, on one core.
//   newton_schulz_bench [ROWSxCOLS...]     default: a list from 256 x 1536 up
// rate: GFLOP/s at the operations the method needs (a symmetric result counts one triangle); sgemm: of plain m x m
// times m x n products in the same run; symmetric: time of the plain m x m product over that of the symmetric one, X
// X^T: likewise.
#include <cblas.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include "math/newton_schulz.h"
#include "math/symmetric.h"
#include "math/timing.h"

namespace {

struct Shape {
  long rows;
  long cols;
};

// Of this thread's processor time, the least of several runs: others may use the machine.
double seconds(const std::function<void()>& body) {
  double best = 1e30;
  double total = 0;
  for (int run = 0; run < 20 && (run < 3 || total < 0.3); ++run) {
    const double start = vmuon::threadSeconds();
    body();
    const double taken = vmuon::threadSeconds() - start;
    best = std::min(best, taken);
    total += taken;
  }
  return best;
}

std::vector<float> randomMatrix(long rows, long cols) {
  std::mt19937 generator(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(rows * cols));
  for (float& value : values) value = normal(generator);
  return values;
}

void bench(const Shape& shape, const vmuon::CoefficientSet& set) {
  const long m = std::min(shape.rows, shape.cols);
  const long n = std::max(shape.rows, shape.cols);
  const auto size = static_cast<int>(m);
  const auto large = static_cast<int>(n);
  vmuon::NewtonSchulz newtonSchulz(set);
  std::vector<float> x = randomMatrix(shape.rows, shape.cols);
  newtonSchulz.orthogonalize(x.data(), shape.rows, shape.cols);  // takes its workspace
  const double flops = newtonSchulz.flops();
  const double time = seconds([&] { newtonSchulz.orthogonalize(x.data(), shape.rows, shape.cols); });

  const long stride = vmuon::squareStride(m);
  std::vector<float> a = randomMatrix(m, stride);
  for (long i = 0; i < m; ++i) {
    for (long j = 0; j < i; ++j) a[static_cast<size_t>(j * stride + i)] = a[static_cast<size_t>(i * stride + j)];
  }
  const std::vector<float> b = a;
  std::vector<float> out(a.size());
  std::vector<float> wide = randomMatrix(m, n);
  std::vector<float> wideOut(wide.size());
  const auto gemm = [&](const float* left, const float* right, float* result, int columns, int ld) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, size, columns, size, 1, left, static_cast<int>(stride),
                right, ld, 0, result, ld);
  };
  const double plain = seconds([&] { gemm(a.data(), b.data(), out.data(), size, static_cast<int>(stride)); });
  const double product = seconds([&] { vmuon::symmetricProduct(m, 1, a.data(), b.data(), 0, nullptr, out.data()); });
  const double square = seconds([&] { vmuon::symmetricProduct(m, 1, a.data(), a.data(), 1, b.data(), out.data()); });
  const double plainWide = seconds([&] { gemm(a.data(), wide.data(), wideOut.data(), large, large); });
  const double plainGram = seconds([&] {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, size, size, large, 1, wide.data(), large, wide.data(), large,
                0, out.data(), static_cast<int>(stride));
  });
  const double gram = seconds([&] { vmuon::gram(wide.data(), m, n, false, out.data()); });
  const double rate = flops / time * 1e-9;
  const double sgemm = vmuon::multiplyFlops(m, n) / plainWide * 1e-9;
  std::printf("%6ld x %-6ld %10.2f %8.1f %8.1f %5.0f%% %7.2fx %7.2fx %7.2fx\n", shape.rows, shape.cols, time * 1e3,
              rate, sgemm, 100 * rate / sgemm, plain / product, plain / square, plainGram / gram);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Shape> shapes;
  for (int i = 1; i < argc; ++i) {
    char* end = nullptr;
    const long rows = std::strtol(argv[i], &end, 10);
    const long cols = *end == 'x' ? std::strtol(end + 1, &end, 10) : 0;
    if (rows < 1 || cols < 1 || *end != '\0') {
      std::fprintf(stderr, "newton_schulz_bench: \"%s\" is not ROWSxCOLS\n", argv[i]);
      return 2;
    }
    shapes.push_back({rows, cols});
  }
  if (shapes.empty()) {
    shapes = {{256, 1536},  {512, 512},   {512, 2048},  {768, 3072},
              {1024, 1024}, {1408, 2048}, {1536, 1536}, {4096, 1024}};
  }
  std::printf("%15s %10s %8s %8s %6s %8s %8s %8s\n", "shape", "ms", "rate", "sgemm", "", "A B", "A A", "X X^T");
  const vmuon::CoefficientSet set = vmuon::coefficientSet(vmuon::kDefaultCoefficients);
  for (const Shape& shape : shapes) bench(shape, set);
  return 0;
}
