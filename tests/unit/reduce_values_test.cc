// SPDX-License-Identifier: Apache-2.0
// Special values through the reduction loops of every instruction set of this CPU.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "base/types.h"
#include "transport/host/reduce.h"

using namespace vcoll;

namespace {

std::vector<const ReduceFunctions*> variants() {
  std::vector<const ReduceFunctions*> found;
  for (const char* name : {"baseline", "avx2", "avx512"}) {
    if (const ReduceFunctions* functions = reduceVariant(name)) found.push_back(functions);
  }
  return found;
}

// One element of each input, reduced by the named variant.
template <typename T, typename Out = T>
Out reduceOne(const ReduceFunctions* functions, vcollDataType_t type, vcollRedOp_t op, const std::vector<T>& values,
              uint32_t divisor = 0, bool outFp32 = false) {
  std::vector<const void*> sources;
  for (const T& value : values) sources.push_back(&value);
  Out out{};
  ReduceJob job;
  job.type = type;
  job.op = op;
  job.sources = sources.data();
  job.nsources = static_cast<uint32_t>(sources.size());
  job.out = &out;
  job.outFp32 = outFp32;
  job.elements = 1;
  job.avgDivisor = divisor;
  functions->reduce(job);
  return out;
}

}  // namespace

TEST_CASE("a NaN in any source reaches the result", "[reduce]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceFunctions* functions : variants()) {
    for (int op = 0; op < vcollNumOps; ++op) {
      for (size_t where = 0; where < 5; ++where) {
        INFO(functions->name << " " << opName(op) << " NaN in source " << where);
        const auto o = static_cast<vcollRedOp_t>(op);
        std::vector<float> f = {1, -2, 3, 0, 5};
        std::vector<double> d = {1, -2, 3, 0, 5};
        std::vector<uint16_t> h(5, 0x3c00);
        std::vector<uint16_t> b(5, 0x3f80);
        f[where] = nan;
        d[where] = static_cast<double>(nan);
        h[where] = 0xfc01;  // signalling, negative
        b[where] = 0x7f81;
        CHECK(std::isnan(reduceOne(functions, vcollFloat32, o, f)));
        CHECK(std::isnan(reduceOne(functions, vcollFloat64, o, d)));
        CHECK(reduceOne(functions, vcollFloat16, o, h) == 0x7e00);
        CHECK(reduceOne(functions, vcollBfloat16, o, b) == 0x7fc0);
      }
    }
  }
}

TEST_CASE("infinities, zeros, denormals and overflow", "[reduce]") {
  const float inf = std::numeric_limits<float>::infinity();
  const float tiny = std::numeric_limits<float>::denorm_min();
  for (const ReduceFunctions* f : variants()) {
    INFO(f->name);
    CHECK(std::isnan(reduceOne<float>(f, vcollFloat32, vcollSum, {inf, 1, -inf})));
    CHECK(reduceOne<float>(f, vcollFloat32, vcollSum, {inf, 1, inf}) == inf);
    CHECK(std::isnan(reduceOne<float>(f, vcollFloat32, vcollProd, {inf, 0})));
    CHECK(reduceOne<float>(f, vcollFloat32, vcollMax, {1, -inf}) == 1);
    CHECK(reduceOne<float>(f, vcollFloat32, vcollMin, {1, -inf}) == -inf);
    CHECK(reduceOne<float>(f, vcollFloat32, vcollSum, {tiny, tiny}) == 2 * tiny);
    CHECK(std::signbit(reduceOne<float>(f, vcollFloat32, vcollSum, {-0.0f, -0.0f})));
    CHECK(!std::signbit(reduceOne<float>(f, vcollFloat32, vcollSum, {-0.0f, 0.0f})));
    CHECK(reduceOne<uint16_t>(f, vcollFloat16, vcollSum, {0x8000, 0x8000}) == 0x8000);

    CHECK(reduceOne<uint16_t>(f, vcollFloat16, vcollSum, {0x7bff, 0x7bff}) == 0x7c00);          // 2 * 65504
    CHECK(reduceOne<uint16_t>(f, vcollFloat16, vcollSum, {0x7bff, 0x4bff}) == 0x7bff);          // 65504 + 15.99
    CHECK(reduceOne<uint16_t>(f, vcollFloat16, vcollSum, {0x7bff, 0x4c00}) == 0x7c00);          // 65504 + 16: a tie
    CHECK(reduceOne<uint16_t>(f, vcollFloat16, vcollSum, {0x7bff, 0x7bff, 0xfbff}) == 0x7bff);  // passes 2^16 in fp32
    CHECK(reduceOne<uint16_t>(f, vcollFloat16, vcollSum, {0x0001, 0x0001}) == 0x0002);          // denormals
    CHECK(reduceOne<uint16_t>(f, vcollFloat16, vcollSum, {0x03ff, 0x0001}) == 0x0400);          // into the normals
    CHECK(reduceOne<uint16_t>(f, vcollFloat16, vcollAvg, {0x0001, 0x0000}, 2) == 0x0000);       // half a unit: to even
    CHECK(reduceOne<uint16_t>(f, vcollFloat16, vcollAvg, {0x0003, 0x0000}, 2) == 0x0002);
    CHECK(reduceOne<uint16_t>(f, vcollBfloat16, vcollSum, {0x7f7f, 0x7f7f}) == 0x7f80);
    CHECK(reduceOne<uint16_t>(f, vcollBfloat16, vcollSum, {0x0001, 0x0001}) == 0x0002);
  }
}

TEST_CASE("16-bit floats accumulate in float32 and round once", "[reduce]") {
  for (const ReduceFunctions* f : variants()) {
    INFO(f->name);
    // 256 + 1 + 1: rounded at each step, bfloat16 stays at 256.
    CHECK(reduceOne<uint16_t>(f, vcollBfloat16, vcollSum, {0x4380, 0x3f80, 0x3f80}) == 0x4381);
    CHECK(reduceOne<uint16_t>(f, vcollBfloat16, vcollSum, {0x4380, 0x3f80}) == 0x4380);
    CHECK(reduceOne<uint16_t, float>(f, vcollBfloat16, vcollSum, {0x4380, 0x3f80}, 0, true) == 257.0f);
    // 2048 + 1 + 1 in float16.
    CHECK(reduceOne<uint16_t>(f, vcollFloat16, vcollSum, {0x6800, 0x3c00, 0x3c00}) == 0x6801);
    CHECK(reduceOne<uint16_t>(f, vcollFloat16, vcollSum, {0x6800, 0x3c00}) == 0x6800);
    CHECK(reduceOne<uint16_t, float>(f, vcollFloat16, vcollSum, {0x6800, 0x3c00}, 0, true) == 2049.0f);
    // The division comes before the rounding: (256 + 1 + 1 + 0) / 4 = 64.5.
    CHECK(reduceOne<uint16_t>(f, vcollBfloat16, vcollAvg, {0x4380, 0x3f80, 0x3f80, 0}, 4) == 0x4281);
  }
}

TEST_CASE("integers wrap, and their averages truncate toward zero", "[reduce]") {
  for (const ReduceFunctions* f : variants()) {
    INFO(f->name);
    CHECK(reduceOne<int8_t>(f, vcollInt8, vcollSum, {127, 1}) == -128);
    CHECK(reduceOne<uint8_t>(f, vcollUint8, vcollProd, {16, 17}) == 16);
    CHECK(reduceOne<int32_t>(f, vcollInt32, vcollSum, {INT32_MAX, 1}) == INT32_MIN);
    CHECK(reduceOne<int32_t>(f, vcollInt32, vcollProd, {INT32_MIN, -1}) == INT32_MIN);
    CHECK(reduceOne<int64_t>(f, vcollInt64, vcollSum, {INT64_MIN, -1}) == INT64_MAX);
    CHECK(reduceOne<uint64_t>(f, vcollUint64, vcollProd, {uint64_t{1} << 63, 3}) == uint64_t{1} << 63);
    CHECK(reduceOne<uint64_t>(f, vcollUint64, vcollMax, {1, uint64_t{1} << 63}) == uint64_t{1} << 63);
    CHECK(reduceOne<int64_t>(f, vcollInt64, vcollMax, {1, INT64_MIN}) == 1);
    CHECK(reduceOne<int8_t>(f, vcollInt8, vcollAvg, {-3, -4}, 2) == -3);
    CHECK(reduceOne<int32_t>(f, vcollInt32, vcollAvg, {-1, 0}, 2) == 0);
    CHECK(reduceOne<int64_t>(f, vcollInt64, vcollAvg, {-7, 0, 0}, 3) == -2);
    CHECK(reduceOne<uint32_t>(f, vcollUint32, vcollAvg, {UINT32_MAX, 0}, 3) == UINT32_MAX / 3);
    CHECK(reduceOne<int32_t>(f, vcollInt32, vcollAvg, {INT32_MIN, 0}, 1) == INT32_MIN);
    CHECK(reduceOne<int32_t>(f, vcollInt32, vcollAvg, {5, 4}, 0) == 9);  // not the last hop
    CHECK(reduceOne<int32_t>(f, vcollInt32, vcollSum, {5, 4}, 3) == 9);  // not an average
  }
}
