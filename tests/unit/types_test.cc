// SPDX-License-Identifier: Apache-2.0
#include "base/types.h"

#include <catch2/catch.hpp>
#include <climits>
#include <set>
#include <string>

using namespace vcoll;

TEST_CASE("every data type has a size and a name of its own", "[types]") {
  const auto sizeOf = [](vcollDataType_t type) { return typeInfo(type)->size; };
  CHECK(sizeOf(vcollInt8) == 1);
  CHECK(sizeOf(vcollUint8) == 1);
  CHECK(sizeOf(vcollInt32) == 4);
  CHECK(sizeOf(vcollUint32) == 4);
  CHECK(sizeOf(vcollInt64) == 8);
  CHECK(sizeOf(vcollUint64) == 8);
  CHECK(sizeOf(vcollFloat16) == 2);
  CHECK(sizeOf(vcollFloat32) == 4);
  CHECK(sizeOf(vcollFloat64) == 8);
  CHECK(sizeOf(vcollBfloat16) == 2);
  CHECK(sizeOf(vcollFloat8e4m3) == 1);
  CHECK(sizeOf(vcollFloat8e5m2) == 1);

  std::set<std::string> names;
  for (int type = 0; type < vcollNumTypes; ++type) names.insert(typeInfo(type)->name);
  CHECK(names.size() == vcollNumTypes);
  CHECK(std::string(typeInfo(vcollBfloat16)->name) == "bfloat16");
  CHECK(std::string(typeInfo(vcollFloat16)->name) == "half");
}

TEST_CASE("8-bit floats are the types that cannot be reduced", "[types]") {
  for (int type = 0; type < vcollNumTypes; ++type) {
    CHECK(typeInfo(type)->reducible == (type != vcollFloat8e4m3 && type != vcollFloat8e5m2));
    CHECK(typeInfo(type)->isFloat == (type >= vcollFloat16));
  }
}

TEST_CASE("operations have names", "[types]") {
  CHECK(std::string(opName(vcollSum)) == "sum");
  CHECK(std::string(opName(vcollProd)) == "prod");
  CHECK(std::string(opName(vcollMax)) == "max");
  CHECK(std::string(opName(vcollMin)) == "min");
  CHECK(std::string(opName(vcollAvg)) == "avg");
}

TEST_CASE("numbers that are no type or operation are told apart", "[types]") {
  for (const int bad : {-1, static_cast<int>(vcollNumTypes), INT_MAX, INT_MIN}) CHECK(typeInfo(bad) == nullptr);
  for (const int bad : {-1, static_cast<int>(vcollNumOps), INT_MAX, INT_MIN}) CHECK(opName(bad) == nullptr);
}
