// SPDX-License-Identifier: Apache-2.0
#include "math/symmetric.h"

#include <cblas.h>

#include <algorithm>
#include <cstring>
#include <mutex>

// Weak: a BLAS other than OpenBLAS lacks it.
extern "C" __attribute__((weak)) void openblas_set_num_threads(int threads);

namespace vmuon {
namespace {

constexpr int64_t kTile = 16;    // a cache line of floats
constexpr int64_t kPanel = 512;  // columns (rows if transposed) of X at a time in multiplyInPlace

// Diagonal blocks up to this size are computed whole. Smaller ones waste fewer operations, but BLAS is slower on them.
int64_t diagonalBlock(int64_t m) { return m < 768 ? 64 : 128; }

// What lies on and below the diagonal of rows and columns [first, last) of out = alpha A B.
void lowerProduct(int64_t first, int64_t last, int64_t m, float alpha, const float* a, const float* b, float* out) {
  const int64_t stride = squareStride(m);
  const auto ld = static_cast<int>(stride);
  const auto block = [&](int64_t row, int64_t rows, int64_t col, int64_t cols) {
    // B is its own transpose; BLAS reads rows faster.
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(rows), static_cast<int>(cols),
                static_cast<int>(m), alpha, a + row * stride, ld, b + col * stride, ld, 0, out + row * stride + col,
                ld);
  };
  const int64_t size = last - first;
  if (size <= diagonalBlock(m)) {
    block(first, size, first, size);
    return;
  }
  const int64_t middle = first + (size / 2 + kTile - 1) / kTile * kTile;
  lowerProduct(first, middle, m, alpha, a, b, out);
  block(middle, last - middle, first, middle - first);
  lowerProduct(middle, last, m, alpha, a, b, out);
}

// Adds beta C to the lower triangle and copies it to the upper one, for rows [i0, i0 + rows) and columns [j0, j0 +
// cols).
void mirrorBlock(float* out, int64_t stride, float beta, const float* c, int64_t i0, int64_t rows, int64_t j0,
                 int64_t cols) {
  for (int64_t i = i0; i < i0 + rows; ++i) {
    for (int64_t j = j0; j < std::min(j0 + cols, i + 1); ++j) {
      float& value = out[i * stride + j];
      if (beta != 0) value += beta * c[i * stride + j];
      out[j * stride + i] = value;
    }
  }
}

// The same for kTile x kTile elements below the diagonal, transposed four by four in registers.
void mirrorTile(float* out, int64_t stride, float beta, const float* c, int64_t i0, int64_t j0) {
  using Vector __attribute__((vector_size(16))) = float;
  float tile[kTile][kTile];
  for (int64_t i = 0; i < kTile; i += 4) {
    for (int64_t j = 0; j < kTile; j += 4) {
      Vector row[4];
      for (int64_t k = 0; k < 4; ++k) {
        const int64_t at = (i0 + i + k) * stride + j0 + j;
        std::memcpy(&row[k], out + at, sizeof(Vector));
        if (beta != 0) {
          Vector add;
          std::memcpy(&add, c + at, sizeof(Vector));
          row[k] += beta * add;
          std::memcpy(out + at, &row[k], sizeof(Vector));
        }
      }
      const Vector low01 = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
      const Vector low23 = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
      const Vector high01 = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
      const Vector high23 = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
      const Vector column[4] = {
          __builtin_shufflevector(low01, low23, 0, 1, 4, 5), __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
          __builtin_shufflevector(high01, high23, 0, 1, 4, 5), __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
      for (int64_t k = 0; k < 4; ++k) std::memcpy(&tile[j + k][i], &column[k], sizeof(Vector));
    }
  }
  for (int64_t j = 0; j < kTile; ++j) std::memcpy(out + (j0 + j) * stride + i0, tile[j], sizeof tile[j]);
}

// For the whole matrix. What the diagonal blocks have above the diagonal is overwritten too: its rounding may differ.
void mirror(float* out, int64_t m, float beta, const float* c) {
  const int64_t stride = squareStride(m);
  for (int64_t i0 = 0; i0 < m; i0 += kTile) {
    const int64_t rows = std::min(kTile, m - i0);
    for (int64_t j0 = 0; j0 < i0; j0 += kTile) {
      if (rows == kTile) {
        mirrorTile(out, stride, beta, c, i0, j0);
      } else {
        mirrorBlock(out, stride, beta, c, i0, rows, j0, kTile);
      }
    }
    mirrorBlock(out, stride, beta, c, i0, rows, i0, rows);
  }
}

}  // namespace

void useOneBlasThread() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (openblas_set_num_threads != nullptr) openblas_set_num_threads(1);
  });
}

int64_t squareStride(int64_t m) { return ((m + kTile - 1) / kTile | 1) * kTile; }

void gram(const float* x, int64_t rows, int64_t cols, bool transposed, float* r) {
  const int64_t m = transposed ? cols : rows;
  const int64_t k = transposed ? rows : cols;
  cblas_ssyrk(CblasRowMajor, CblasLower, transposed ? CblasTrans : CblasNoTrans, static_cast<int>(m),
              static_cast<int>(k), 1, x, static_cast<int>(cols), 0, r, static_cast<int>(squareStride(m)));
  mirror(r, m, 0, nullptr);
}

void symmetricProduct(int64_t m, float alpha, const float* a, const float* b, float beta, const float* c, float* out) {
  if (a == b) {
    const auto ld = static_cast<int>(squareStride(m));
    cblas_ssyrk(CblasRowMajor, CblasLower, CblasNoTrans, static_cast<int>(m), static_cast<int>(m), alpha, a, ld, 0, out,
                ld);
  } else {
    lowerProduct(0, m, m, alpha, a, b, out);
  }
  mirror(out, m, beta, c);
}

int64_t multiplyScratch(int64_t m) { return m * kPanel; }

void multiplyInPlace(const float* b, float* x, int64_t rows, int64_t cols, bool transposed, float* scratch) {
  const int64_t m = transposed ? cols : rows;
  const int64_t n = transposed ? rows : cols;
  const auto size = static_cast<int>(m);
  const auto ld = static_cast<int>(squareStride(m));
  for (int64_t first = 0; first < n; first += kPanel) {
    const int64_t width = std::min(kPanel, n - first);
    if (transposed) {
      float* panel = x + first * m;
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<int>(width), size, size, 1, panel, size, b, ld,
                  0, scratch, size);
      std::memcpy(panel, scratch, static_cast<size_t>(width * m) * sizeof(float));
    } else {
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, size, static_cast<int>(width), size, 1, b, ld, x + first,
                  static_cast<int>(n), 0, scratch, static_cast<int>(width));
      for (int64_t row = 0; row < m; ++row) {
        std::memcpy(x + row * n + first, scratch + row * width, static_cast<size_t>(width) * sizeof(float));
      }
    }
  }
}

double gramFlops(int64_t m, int64_t n) {
  return static_cast<double>(m) * static_cast<double>(m + 1) * static_cast<double>(n);
}

double symmetricProductFlops(int64_t m) { return gramFlops(m, m); }

double multiplyFlops(int64_t m, int64_t n) {
  return 2 * static_cast<double>(m) * static_cast<double>(m) * static_cast<double>(n);
}

}  // namespace vmuon
