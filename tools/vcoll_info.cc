// SPDX-License-Identifier: Apache-2.0
// vcoll-info: what this build is, what its variables are set to here, and what machine it runs on.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/params.h"
#include "base/types.h"
#include "info.h"
#include "transport/host/reduce.h"
#include "vcoll/vcoll.h"

namespace vcoll {
namespace {

constexpr const char* kUsage =
    "usage: vcoll-info [--markdown | --version | --help]\n"
    "  no option   version, features, every variable with its value, and the machine\n"
    "  --markdown  docs/environment.md\n"
    "  --version   the version only\n";

std::string versionText() {
  int code = 0;
  if (vcollGetVersion(&code) != vcollSuccess) return "unknown";
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

// Those of this build that this CPU has; the first is used.
std::string instructionSets() {
  std::string text;
  for (const char* name : {"avx512", "avx2", "baseline"}) {
    if (reduceVariant(name) != nullptr) text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  }
  return text;
}

void printBuild() {
  std::string types;
  std::string reducible;
  for (int type = 0; type < vcollNumTypes; ++type) {
    const TypeInfo* info = typeInfo(type);
    types += fmt::format(" {}", info->name);
    if (!info->reducible) reducible += fmt::format(" {}", info->name);
  }
  std::string ops;
  for (int op = 0; op < vcollNumOps; ++op) ops += fmt::format(" {}", opName(op));
#ifdef VCOLL_INFO_CUDA
  const char* fabrics = "host, cuda";
#else
  const char* fabrics = "host (built without CUDA)";
#endif
#ifdef __clang__
  const char* compiler = __VERSION__;  // names Clang itself
#else
  const char* compiler = "GCC " __VERSION__;
#endif
#ifdef NDEBUG
  const char* checks = "off";
#else
  const char* checks = "on";
#endif
  fmt::print("vcoll {}\n", versionText());
  fmt::print("  compiler     {}, asserts {}\n", compiler, checks);
  fmt::print("  fabrics      {}\n", fabrics);
  fmt::print("  wires        tcp\n");
  fmt::print("  reductions   {}\n", instructionSets());
  fmt::print("  types       {}\n", types);
  fmt::print("  not reduced {}\n", reducible);
  fmt::print("  operations  {}\n", ops);
}

// 0 if every variable is valid.
int printVariables() {
  Params values;
  const Status status = readParams(&values);
  fmt::print("\nvariables (* set in this environment)\n");
  const auto row = [](const char* name, const std::string& value, const char* allowed, const char* doc) {
    const char* set = std::getenv(name);
    const char mark = set != nullptr && *set != '\0' ? '*' : ' ';
    fmt::print("{} {:<26} {:<10} [{}]\n      {}\n", mark, name, value.empty() ? "-" : value, allowed, doc);
  };
#define X(field, name, kind, dflt, allowed, doc) row(name, fmt::format("{}", values.field), allowed, doc);
  VCOLL_PARAMS(X)
#undef X
  for (const std::string& warning : unknownVariables()) fmt::print("  warning: {}\n", warning);
  if (!status.ok()) fmt::print("  error: {}\n", status.text());
  return status.ok() ? 0 : 1;
}

int run(int argc, char** argv) {
  const std::string_view option = argc > 1 ? argv[1] : "";
  if (argc > 2 || (argc == 2 && option != "--markdown" && option != "--version" && option != "--help")) {
    fmt::print(stderr, "{}", kUsage);
    return 2;
  }
  if (option == "--help") {
    fmt::print("{}", kUsage);
    return 0;
  }
  if (option == "--version") {
    fmt::print("{}\n", versionText());
    return 0;
  }
  if (option == "--markdown") {
    printEnvironmentMarkdown();
    return 0;
  }
  printBuild();
  const int result = printVariables();
  printMachine();
  return result;
}

}  // namespace
}  // namespace vcoll

int main(int argc, char** argv) { return vcoll::run(argc, argv); }
