// SPDX-License-Identifier: Apache-2.0
// mpi_tests --suite NAME [--layout L] [--seed N] [--light]: one suite on the ranks that mpirun started.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "harness.h"
#include "suites.h"

namespace suite {
int failureCount();
}

namespace {

struct Suite {
  const char* name;
  void (*run)();
};
constexpr Suite kSuites[] = {
    {"data", suite::dataSuite},
    {"plans", suite::plansSuite},
    {"numbers", suite::numbersSuite},
    {"arguments", suite::argumentsSuite},
    {"mismatch", suite::mismatchSuite},
    {"settings", suite::settingsSuite},
    {"streams", suite::streamsSuite},
    {"life", suite::lifeSuite},
    {"threads", suite::threadsSuite},
    {"churn", suite::churnSuite},
    {"many", suite::manySuite},
    {"publish", suite::publishSuite},
    {"publish-use", suite::publishUseSuite},
};

int usage() {
  std::fprintf(stderr,
               "usage: mpi_tests --suite NAME[,NAME..] [--layout one|rrK|A,B,..] [--seed N] [--light]\nsuites:");
  for (const Suite& entry : kSuites) std::fprintf(stderr, " %s", entry.name);
  std::fprintf(stderr, "\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &suite::worldRank);
  MPI_Comm_size(MPI_COMM_WORLD, &suite::worldSize);
  suite::Options& options = suite::options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const bool hasValue = i + 1 < argc;
    if (flag == "--light") {
      options.light = true;
    } else if (flag == "--suite" && hasValue) {
      options.suite = argv[++i];
    } else if (flag == "--layout" && hasValue) {
      options.layout = argv[++i];
    } else if (flag == "--seed" && hasValue) {
      options.seed = std::strtoull(argv[++i], nullptr, 0);
    } else {
      MPI_Finalize();
      return usage();
    }
  }
  if (options.layout != "one") {
    // Before the library reads its variables.
    setenv("VCOLL_HOSTID", ("node" + std::to_string(suite::nodeOfRank(suite::worldRank))).c_str(), 1);
  }
  setenv("VCOLL_TIMEOUT_MS", "30000", 0);
  setenv("VCOLL_DEBUG", "NONE", 0);  // errors are expected; their texts are checked
  if (suite::worldRank == 0) {
    std::printf("%d ranks, layout %s, seed %llu; rerun: mpirun -np %d mpi_tests --suite %s --layout %s --seed %llu%s\n",
                suite::worldSize, options.layout.c_str(), static_cast<unsigned long long>(options.seed),
                suite::worldSize, options.suite.c_str(), options.layout.c_str(),
                static_cast<unsigned long long>(options.seed), options.light ? " --light" : "");
    std::fflush(stdout);
  }
  bool found = false;
  for (const Suite& entry : kSuites) {
    if ("," + options.suite + "," == "," + std::string(entry.name) + "," ||
        ("," + options.suite + ",").find("," + std::string(entry.name) + ",") != std::string::npos) {
      found = true;
      entry.run();
    }
  }
  int mine = suite::failureCount();
  int all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (suite::worldRank == 0) std::printf("%d failures\n", all);
  MPI_Finalize();
  if (!found) return usage();
  return all == 0 ? 0 : 1;
}
