// SPDX-License-Identifier: Apache-2.0
// Products of row-major fp32 matrices over BLAS. Those whose result is symmetric cost little more than half: only one
// triangle is computed, and mirrored. Products of a matrix with itself are BLAS's ssyrk; others, for which BLAS has
// nothing, go by recursion down to small diagonal blocks.
//
// OpenBLAS is told to use one thread, once per process, by useOneBlasThread(): ranks are processes and share the cores,
// and results then don't depend on how many cores there are. Same input, same bits, for CPUs of one type.
#pragma once

#include <cstdint>

namespace vmuon {

// Does nothing after the first time, or if BLAS is not OpenBLAS.
void useOneBlasThread();

// m x m matrices here have rows this many elements apart: whole cache lines, and an odd number of them, so that a
// column is spread over the sets of a cache.
int64_t squareStride(int64_t m);

// r (m x m) = X X^T, or X^T X if transposed; m is X's number of rows, or of columns if transposed.
void gram(const float* x, int64_t rows, int64_t cols, bool transposed, float* r);

// out = alpha A B + beta C for m x m matrices of which A, B, C and A B are symmetric, as polynomials of one matrix are.
// out is none of the others, which may be equal. C is not read if beta is 0.
void symmetricProduct(int64_t m, float alpha, const float* a, const float* b, float beta, const float* c, float* out);

// X = B X, or X B if transposed, in place; B is m x m and symmetric. scratch: multiplyScratch(m) floats.
void multiplyInPlace(const float* b, float* x, int64_t rows, int64_t cols, bool transposed, float* scratch);
int64_t multiplyScratch(int64_t m);

// Floating-point operations that the results above need: symmetric ones count one triangle with its diagonal.
double gramFlops(int64_t m, int64_t n);
double symmetricProductFlops(int64_t m);
double multiplyFlops(int64_t m, int64_t n);

}  // namespace vmuon
