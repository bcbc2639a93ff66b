// SPDX-License-Identifier: Apache-2.0
// The log is set up once per process from the environment, so these tests run the hidden test below in processes of
// their own.
#include "base/log.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace vcoll;

namespace {

constexpr int kThreads = 4;
constexpr int kLines = 200;

std::string lineText(int thread, int line) {
  return fmt::format("thread {} line {} {}", thread, line, std::string(static_cast<size_t>(line), 'x'));
}

class ScratchDirectory {
 public:
  ScratchDirectory() { REQUIRE(mkdtemp(path_.data()) != nullptr); }
  ~ScratchDirectory() {
    for (const std::string& name : names_) unlink(file(name).c_str());
    rmdir(path_.data());
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  // Path of a file that goes with the directory.
  std::string file(const std::string& name) {
    names_.insert(name);
    return std::string(path_.data()) + "/" + name;
  }

 private:
  std::array<char, 32> path_{"/tmp/vcoll-log-test-XXXXXX"};
  std::set<std::string> names_;
};

std::vector<std::string> readLines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// Runs the hidden test with these VCOLL_* variables and its stderr in a file. Returns its process id.
pid_t runChild(const std::vector<std::string>& variables, const std::string& stderrPath) {
  std::vector<std::string> environment = variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (strncmp(*entry, "VCOLL_", 6) != 0) environment.emplace_back(*entry);
  }
  std::vector<char*> pointers;
  for (std::string& entry : environment) pointers.push_back(entry.data());
  pointers.push_back(nullptr);

  std::string program = "/proc/self/exe";
  std::string test = "[.log-child]";
  char* arguments[] = {program.data(), test.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, stderrPath.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  REQUIRE(posix_spawn(&child, "/proc/self/exe", &actions, nullptr, arguments, pointers.data()) == 0);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
  return child;
}

std::string hostName() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

TEST_CASE("what a child process of the log tests does", "[.log-child]") {
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (int line = 0; line < kLines; ++line) logTrace("{}", lineText(t, line));
    });
  }
  for (std::thread& thread : threads) thread.join();
  logInfo("an info");
  logWarn("a {}", "warning");
}

TEST_CASE("the lines of many threads go whole to the file", "[log]") {
  ScratchDirectory directory;
  const std::string errors = directory.file("stderr");
  const std::string pattern = directory.file("log.%h.%p.%q%%.%");
  const pid_t child = runChild({"VCOLL_DEBUG=TRACE", "VCOLL_DEBUG_FILE=" + pattern}, errors);
  CHECK(readLines(errors).empty());

  const std::string host = hostName();
  const std::string prefix = fmt::format("vcoll {}:{} ", host, child);
  std::multiset<std::string> expected = {prefix + "INFO an info", prefix + "WARN a warning"};
  for (int t = 0; t < kThreads; ++t) {
    for (int line = 0; line < kLines; ++line) expected.insert(prefix + "TRACE " + lineText(t, line));
  }
  const std::vector<std::string> lines = readLines(directory.file(fmt::format("log.{}.{}.%q%%.%", host, child)));
  CHECK(std::multiset<std::string>(lines.begin(), lines.end()) == expected);
}

TEST_CASE("the level decides what is written", "[log]") {
  ScratchDirectory directory;
  const std::string errors = directory.file("stderr");
  pid_t child = runChild({}, errors);
  const std::string host = hostName();
  CHECK(readLines(errors) == std::vector<std::string>{fmt::format("vcoll {}:{} WARN a warning", host, child)});

  child = runChild({"VCOLL_DEBUG=info"}, errors);
  CHECK(readLines(errors) == std::vector<std::string>{fmt::format("vcoll {}:{} INFO an info", host, child),
                                                      fmt::format("vcoll {}:{} WARN a warning", host, child)});

  const std::string file = directory.file("log");
  runChild({"VCOLL_DEBUG=NONE", "VCOLL_DEBUG_FILE=" + file, "VCOLL_UNKNOWN=1"}, errors);
  CHECK(readLines(errors).empty());
  CHECK(access(file.c_str(), F_OK) != 0);
}

TEST_CASE("a log file that cannot be opened is named on stderr", "[log]") {
  ScratchDirectory directory;
  const std::string errors = directory.file("stderr");
  const std::string path = directory.file("missing") + "/log";
  runChild({"VCOLL_DEBUG_FILE=" + path}, errors);
  const std::vector<std::string> lines = readLines(errors);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].find(path) != std::string::npos);
  CHECK(lines[0].find("No such file or directory") != std::string::npos);
  CHECK(lines[1].find("WARN a warning") != std::string::npos);
}

TEST_CASE("an unknown variable is warned about once per process", "[log]") {
  ScratchDirectory directory;
  const std::string errors = directory.file("stderr");
  runChild({"VCOLL_LANE=2"}, errors);
  const std::vector<std::string> lines = readLines(errors);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].find("WARN environment variable VCOLL_LANE is not known") != std::string::npos);
  CHECK(lines[0].find("did you mean VCOLL_LANES?") != std::string::npos);
  CHECK(lines[1].find("WARN a warning") != std::string::npos);
}
