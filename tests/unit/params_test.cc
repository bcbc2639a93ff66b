// SPDX-License-Identifier: Apache-2.0
#include "base/params.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

using namespace vcoll;

namespace {

// The environment without VCOLL_* variables; the old ones come back at the end.
class CleanEnvironment {
 public:
  CleanEnvironment() { saved_ = takeAll(); }
  ~CleanEnvironment() {
    takeAll();
    for (const std::string& entry : saved_) {
      const size_t equals = entry.find('=');
      setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
    }
  }
  CleanEnvironment(const CleanEnvironment&) = delete;
  CleanEnvironment& operator=(const CleanEnvironment&) = delete;

  void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

 private:
  static std::vector<std::string> takeAll() {
    std::vector<std::string> taken;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      if (strncmp(*entry, "VCOLL_", 6) == 0) taken.emplace_back(*entry);
    }
    for (const std::string& entry : taken) unsetenv(entry.substr(0, entry.find('=')).c_str());
    return taken;
  }
  std::vector<std::string> saved_;
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("sizes are decimals with binary suffixes", "[params]") {
  const auto parse = [](const char* text) {
    int64_t value = -1;
    return parseSize(text, &value) ? value : -1;
  };
  CHECK(parse("0") == 0);
  CHECK(parse("123") == 123);
  CHECK(parse("64K") == 65536);
  CHECK(parse("64k") == 65536);
  CHECK(parse("1M") == 1 << 20);
  CHECK(parse("1.5M") == 3 << 19);
  CHECK(parse("0.5K") == 512);
  CHECK(parse("3G") == int64_t{3} << 30);
  CHECK(parse("9223372036854775807") == INT64_MAX);
  CHECK(parse("8589934591G") == int64_t{8589934591} << 30);
  CHECK(parse("8589934591.999999999G") == (int64_t{8589934591} << 30) + 1073741822);
  for (const char* bad : {"",
                          "K",
                          "-1",
                          "+1",
                          " 1",
                          "1 ",
                          "1.5",
                          "1.",
                          ".5K",
                          "1.K",
                          "1.5.5K",
                          "1KK",
                          "1T",
                          "0x10",
                          "1e3",
                          "9223372036854775808",
                          "8589934592G",
                          "99999999999999999999999",
                          "1.0000000000K",
                          "1,5M"}) {
    INFO(bad);
    CHECK(parse(bad) == -1);
  }
}

TEST_CASE("every default is a value that the table allows", "[params]") {
  CleanEnvironment environment;
  size_t count = 0;
  const ParamInfo* table = paramTable(&count);
  REQUIRE(count > 10);
  std::set<std::string> names;
  for (const ParamInfo* param = table; param != table + count; ++param) {
    INFO(param->name);
    CHECK(names.insert(param->name).second);
    CHECK(strncmp(param->name, "VCOLL_", 6) == 0);
    CHECK(strlen(param->allowed) > 0);
    CHECK(strlen(param->doc) > 0);
    environment.set(param->name, param->defaultValue);
    Params params;
    const Status status = readParams(&params);
    CHECK(status.text() == "");
  }
}

TEST_CASE("unset and empty variables take their defaults", "[params]") {
  CleanEnvironment environment;
  Params params;
  params.chunkBytes = 1;
  REQUIRE(readParams(&params).ok());
  CHECK(params.chunkBytes == 65536);
  CHECK(params.debug == "WARN");

  environment.set("VCOLL_CHUNK_BYTES", "");
  environment.set("VCOLL_DEBUG", "");
  REQUIRE(readParams(&params).ok());
  CHECK(params.chunkBytes == 65536);
  CHECK(params.debug == "WARN");
}

TEST_CASE("good values are taken", "[params]") {
  CleanEnvironment environment;
  environment.set("VCOLL_CHUNK_BYTES", "1.5M");
  environment.set("VCOLL_SPIN", "-1");
  environment.set("VCOLL_YIELD", "1000000");
  environment.set("VCOLL_CHECK", "1");
  environment.set("VCOLL_LANES", "16");
  environment.set("VCOLL_DEBUG", "trace");
  environment.set("VCOLL_SOCKET_FAMILY", "AF_INET6");
  environment.set("VCOLL_HOSTID", "any|thing=goes");
  Params params;
  const Status status = readParams(&params);
  CHECK(status.text() == "");
  CHECK(params.chunkBytes == 3 << 19);
  CHECK(params.spin == -1);
  CHECK(params.yield == 1000000);
  CHECK(params.check == 1);
  CHECK(params.lanes == 16);
  CHECK(params.debug == "TRACE");
  CHECK(params.socketFamily == "AF_INET6");
  CHECK(params.hostId == "any|thing=goes");
}

TEST_CASE("a bad value is refused by name, and only its own default stands in", "[params]") {
  struct Bad {
    const char* name;
    const char* value;
    const char* allowed;
  };
  for (const Bad& bad :
       {Bad{"VCOLL_CHUNK_BYTES", "1023", "1K..16M, multiple of 16"},
        Bad{"VCOLL_CHUNK_BYTES", "1025", "1K..16M, multiple of 16"},
        Bad{"VCOLL_CHUNK_BYTES", "17M", "1K..16M, multiple of 16"},
        Bad{"VCOLL_CHUNK_BYTES", "64KB", "1K..16M, multiple of 16"}, Bad{"VCOLL_TIMEOUT_MS", "0", "1..86400000"},
        Bad{"VCOLL_TIMEOUT_MS", "ten", "1..86400000"}, Bad{"VCOLL_SPIN", "-2", "-1..1000000"},
        Bad{"VCOLL_SPIN", "--1", "-1..1000000"}, Bad{"VCOLL_CHECK", "2", "0|1"}, Bad{"VCOLL_CHECK", "0|1", "0|1"},
        Bad{"VCOLL_PATH", "ring", "auto|star|chain"}, Bad{"VCOLL_PATH", "auto|star", "auto|star|chain"},
        Bad{"VCOLL_DEBUG", "VERBOSE", "NONE|WARN|INFO|TRACE"}}) {
    INFO(bad.name << "=" << bad.value);
    CleanEnvironment environment;
    environment.set(bad.name, bad.value);
    environment.set("VCOLL_SLOTS", "7");
    environment.set("VCOLL_FAULT_CALL_DELAY_MS", "9");
    Params params;
    const Status status = readParams(&params);
    CHECK(status.code() == vcollInvalidArgument);
    CHECK(contains(status.text(), bad.name));
    CHECK(contains(status.text(), bad.value));
    CHECK(contains(status.text(), bad.allowed));
    CHECK(params.chunkBytes == 65536);
    CHECK(params.timeoutMs == 60000);
    CHECK(params.spin == -1);
    CHECK(params.check == 0);
    CHECK(params.path == "auto");
    CHECK(params.debug == "WARN");
    CHECK(params.slots == 7);
    CHECK(params.faultDelayMs == 9);
  }
}

TEST_CASE("unknown VCOLL_ variables are named with their nearest neighbour", "[params]") {
  CleanEnvironment environment;
  CHECK(unknownVariables().empty());

  environment.set("VCOLL_CHUNK_BYTES", "4K");
  environment.set("NOT_VCOLL_CHUNK", "1");
  CHECK(unknownVariables().empty());

  environment.set("VCOLL_CHUNKBYTES", "4K");
  std::vector<std::string> warnings = unknownVariables();
  REQUIRE(warnings.size() == 1);
  CHECK(contains(warnings[0], "VCOLL_CHUNKBYTES "));
  CHECK(contains(warnings[0], "did you mean VCOLL_CHUNK_BYTES?"));

  environment.set("VCOLL_SOMETHING_ELSE_ENTIRELY", "1");
  warnings = unknownVariables();
  REQUIRE(warnings.size() == 2);
  const std::string& other = contains(warnings[0], "ENTIRELY") ? warnings[0] : warnings[1];
  CHECK(contains(other, "VCOLL_SOMETHING_ELSE_ENTIRELY"));
  CHECK(!contains(other, "did you mean"));
}
