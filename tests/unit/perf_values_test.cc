// SPDX-License-Identifier: Apache-2.0
// The data checks of the perf programs: right results pass, any single wrong element is counted.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "perf/stats.h"
#include "perf/values.h"

namespace vcoll::perf {
namespace {

TEST_CASE("perf: hashed bytes do not depend on how they are cut") {
  std::vector<unsigned char> whole(100), parts(100);
  fillBytes(7, 3, 5, whole.size(), whole.data());
  for (size_t at = 0, step = 1; at < parts.size(); at += step, step = step % 13 + 1) {
    step = std::min(step, parts.size() - at);
    fillBytes(7, 3, 5 + at, step, parts.data() + at);
  }
  CHECK(whole == parts);
  std::vector<unsigned char> other(100);
  fillBytes(7, 4, 5, other.size(), other.data());
  CHECK(whole != other);
  fillBytes(8, 3, 5, other.size(), other.data());
  CHECK(whole != other);
}

TEST_CASE("perf: wrong bytes are counted by element") {
  std::vector<unsigned char> data(40000);
  fillBytes(1, 0, 16, data.size(), data.data());
  CHECK(wrongBytes(1, 0, 16, data.size() / 4, 4, data.data()) == 0);
  CHECK(wrongBytes(1, 1, 16, data.size() / 4, 4, data.data()) > 9000);
  CHECK(wrongBytes(1, 0, 20, data.size() / 4, 4, data.data()) > 9000);  // shifted by an element
  data[5] ^= 1;
  data[6] ^= 1;  // the same element
  data[39999] ^= 128;
  CHECK(wrongBytes(1, 0, 16, data.size() / 4, 4, data.data()) == 2);
  CHECK(wrongBytes(1, 0, 16, data.size() / 2, 2, data.data()) == 3);
}

template <typename T>
T load(const std::vector<char>& bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

// The reduction computed in double from the inputs as encoded, in two orders.
template <typename Decode>
void checkExact(const Reduction& r, Decode decode) {
  constexpr uint64_t kCount = 2500;
  std::vector<std::vector<char>> inputs;
  for (int source = 0; source < r.ranks; ++source) {
    inputs.emplace_back(kCount * r.type->size);
    fillInputs(r, source, 11, kCount, inputs.back().data());
    REQUIRE(wrongInputs(r, source, 11, kCount, inputs.back().data()) == 0);
    for (uint64_t i = 0; i < 50; ++i) {
      REQUIRE(decode(inputs.back(), i) == static_cast<double>(inputValue(r, source, 11 + i)));
    }
  }
  double largest = 0;
  bool varied = false;
  for (uint64_t i = 0; i < kCount; ++i) {
    double sum = 0;
    for (const auto& input : inputs) {
      sum += decode(input, i);
      largest = std::max(largest, std::abs(sum));
      varied = varied || decode(input, i) != decode(inputs[0], 0);
    }
  }
  CHECK(varied);
  if (r.type->isFloat) CHECK(largest <= static_cast<double>(r.type->exactMax));
}

TEST_CASE("perf: float inputs sum exactly in their own type") {
  for (int ranks : {1, 2, 3, 8, 64, 300}) {
    INFO(ranks);
    checkExact({findType("float"), vcollSum, ranks, 5},
               [](const auto& b, size_t i) { return double{load<float>(b, i)}; });
    checkExact({findType("bfloat16"), vcollSum, ranks, 5},
               [](const auto& b, size_t i) { return double{bfloat16ToFloat(load<uint16_t>(b, i))}; });
    checkExact({findType("half"), vcollSum, ranks, 5},
               [](const auto& b, size_t i) { return double{halfToFloat(load<uint16_t>(b, i))}; });
  }
}

// Reduces in the type itself, rank after rank.
template <typename T>
std::vector<T> reduceIn(const Reduction& r, uint64_t index, uint64_t count) {
  std::vector<T> result(count), input(count);
  for (int source = 0; source < r.ranks; ++source) {
    fillInputs(r, source, index, count, input.data());
    for (uint64_t i = 0; i < count; ++i) {
      if (source == 0) {
        result[i] = input[i];
      } else if (r.op == vcollProd) {
        result[i] = static_cast<T>(result[i] * input[i]);
      } else if (r.op == vcollMin) {
        result[i] = std::min(result[i], input[i]);
      } else if (r.op == vcollMax) {
        result[i] = std::max(result[i], input[i]);
      } else {
        result[i] = static_cast<T>(result[i] + input[i]);
      }
    }
  }
  for (T& value : result) value = r.op == vcollAvg ? static_cast<T>(value / static_cast<T>(r.ranks)) : value;
  return result;
}

template <typename T>
void checkResults(const char* type) {
  constexpr uint64_t kCount = 3000;
  for (int ranks : {1, 2, 3, 8}) {
    for (const PerfOp& op : kOps) {
      INFO(type << " " << op.name << " " << ranks);
      const Reduction r{findType(type), op.op, ranks, 9};
      std::vector<T> result = reduceIn<T>(r, 77, kCount);
      REQUIRE(wrongResults(r, 77, kCount, result.data()) == 0);
      result[1500] = static_cast<T>(result[1500] + 1);
      CHECK(wrongResults(r, 77, kCount, result.data()) == 1);
      result[0] = static_cast<T>(result[0] + 1);
      CHECK(wrongResults(r, 77, kCount, result.data()) == 2);
      if (std::numeric_limits<T>::has_quiet_NaN) {
        result[0] = std::numeric_limits<T>::quiet_NaN();
        CHECK(wrongResults(r, 77, kCount, result.data()) == 2);
      }
    }
  }
}

TEST_CASE("perf: reductions in every type agree with the closed form") {
  checkResults<int8_t>("int8");
  checkResults<uint8_t>("uint8");
  checkResults<int32_t>("int32");
  checkResults<uint32_t>("uint32");
  checkResults<int64_t>("int64");
  checkResults<uint64_t>("uint64");
  checkResults<float>("float");
  checkResults<double>("double");
}

TEST_CASE("perf: a sum that missed one rank is found") {
  const Reduction all{findType("bfloat16"), vcollSum, 8, 3};
  std::vector<uint16_t> result(1000);
  std::vector<float> sums(1000, 0);
  for (int source = 0; source < 7; ++source) {
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<float>(inputValue(all, source, i));
  }
  for (size_t i = 0; i < sums.size(); ++i) result[i] = floatToBfloat16(sums[i]);
  CHECK(wrongResults(all, 0, 1000, result.data()) > 800);
}

TEST_CASE("perf: guard bytes") {
  std::vector<unsigned char> guard(300, kGuardByte);
  CHECK(touchedGuards(guard.data(), guard.size()) == 0);
  guard[0] = 0;
  guard[299] = 1;
  CHECK(touchedGuards(guard.data(), guard.size()) == 2);
}

TEST_CASE("perf: 16-bit floats convert both ways") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    if (!std::isnan(halfToFloat(half))) REQUIRE(floatToHalf(halfToFloat(half)) == half);
    if (!std::isnan(bfloat16ToFloat(half))) REQUIRE(floatToBfloat16(bfloat16ToFloat(half)) == half);
  }
  CHECK(floatToHalf(2049.0F) == floatToHalf(2048.0F));  // ties to even
  CHECK(floatToHalf(2051.0F) == floatToHalf(2052.0F));
  CHECK(floatToHalf(65520.0F) == 0x7c00);
  CHECK(floatToHalf(65519.0F) == 0x7bff);
  CHECK(floatToBfloat16(257.0F) == floatToBfloat16(256.0F));
  CHECK(floatToBfloat16(259.0F) == floatToBfloat16(260.0F));
  CHECK(std::isnan(halfToFloat(floatToHalf(std::nanf("")))));
  CHECK(std::isnan(bfloat16ToFloat(floatToBfloat16(std::nanf("")))));
}

TEST_CASE("perf: statistics") {
  CHECK(median({3, 1, 2}) == 2);
  CHECK(median({4, 1, 2, 3}) == 2.5);
  CHECK(median({}) == 0);
  const std::vector<double> times = {1, 5, 3, 4};  // two ranks, two iterations
  CHECK(overRanks(times, 2, 0) == std::vector<double>{1, 5});
  CHECK(overRanks(times, 2, 1) == std::vector<double>{2, 4.5});
  CHECK(overRanks(times, 2, 2) == std::vector<double>{1, 4});
  CHECK(overRanks(times, 2, 3) == std::vector<double>{3, 5});
  const Spread s = spreadOf({1, 2, 3});
  CHECK(s.min == 1);
  CHECK(s.max == 3);
  CHECK(s.mean == Approx(2));
  CHECK(s.deviation == Approx(std::sqrt(2.0 / 3)));
}

}  // namespace
}  // namespace vcoll::perf
