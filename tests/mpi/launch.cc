// SPDX-License-Identifier: Apache-2.0
#define FMT_HEADER_ONLY
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "launch.h"

namespace launch {

std::string sayArguments(fmt::string_view format, fmt::format_args arguments) {
  return fmt::vformat(format, arguments);
}

int rank = 0;
int ranks = 1;

namespace {
int failures = 0;
FILE* verdictFile = nullptr;

std::string fileOf(const std::string& directory, int rankOfJob) {
  return directory + "/rank" + std::to_string(rankOfJob);
}

void setEnvironment(const Environment& environment) {
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
}

// What surrounds the tests must not look like a launcher or tune the library.
void clearEnvironment() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name = std::string(*entry).substr(0, std::string(*entry).find('='));
    for (const char* prefix :
         {"VCOLL_", "OMPI_COMM", "PMIX_", "SLURM_", "RANK", "WORLD_SIZE", "MASTER_", "TORCHELASTIC"}) {
      if (name.rfind(prefix, 0) == 0) names.push_back(name);
    }
  }
  for (const std::string& name : names) unsetenv(name.c_str());
  setenv("VCOLL_DEBUG", "NONE", 1);  // errors are expected; their texts are checked
}

template <typename Child>
pid_t spawn(const Child& child) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) {
    std::perror("fork");
    std::exit(2);
  }
  if (pid > 0) return pid;
  setpgid(0, 0);
  child();
  std::perror("exec");
  _exit(127);
}

void exec(const std::vector<std::string>& arguments) {
  std::vector<char*> raw;
  for (const std::string& argument : arguments) raw.push_back(const_cast<char*>(argument.c_str()));
  raw.push_back(nullptr);
  execvp(raw[0], raw.data());
}

std::string ownPath() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

}  // namespace

void tell(const std::string& key, const std::string& value) {
  std::fprintf(verdictFile, "%s=%s\n", key.c_str(), value.c_str());
  std::fflush(verdictFile);
}
void tell(const std::string& key, double value) { tell(key, say("{:.6f}", value)); }

vcollResult_t told(const std::string& key, vcollComm_t comm, const std::function<vcollResult_t()>& call) {
  const double start = now();
  const vcollResult_t result = call();
  const double end = now();
  tell(key + ".start", start);
  tell(key + ".end", end);
  tell(key + ".text", result == vcollSuccess ? "" : vcollGetLastError(comm));
  tell(key + ".result", vcollGetErrorString(result));
  return result;
}

vcollComm_t initFromEnv() {
  vcollComm_t comm = nullptr;
  told("init", nullptr, [&] { return vcollCommInitFromEnv(&comm); });
  if (comm == nullptr) std::exit(3);
  (void)vcollCommCount(comm, &ranks);
  (void)vcollCommUserRank(comm, &rank);
  return comm;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double cpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void sleepMs(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

vcollResult_t gather(vcollComm_t comm) {
  const std::vector<size_t> counts(static_cast<size_t>(ranks), 1);
  std::vector<int> all(counts.size(), -1);
  const vcollResult_t result = vcollAllGatherV(&rank, 1, all.data(), counts.data(), nullptr, vcollInt32, comm, nullptr);
  for (int r = 0; r < ranks && result == vcollSuccess; ++r) {
    if (all[static_cast<size_t>(r)] != r) tell("data", say("element {} is {}", r, all[static_cast<size_t>(r)]));
  }
  return result;
}

vcollResult_t gatherMuch(vcollComm_t comm, size_t bytes) {
  static std::vector<unsigned char> send;
  static std::vector<unsigned char> recv;
  send.assign(bytes, static_cast<unsigned char>(rank));
  recv.resize(bytes * static_cast<size_t>(ranks));
  const std::vector<size_t> counts(static_cast<size_t>(ranks), bytes);
  const vcollResult_t result =
      vcollAllGatherV(send.data(), bytes, recv.data(), counts.data(), nullptr, vcollUint8, comm, nullptr);
  for (size_t r = 0; r < counts.size() && result == vcollSuccess; ++r) {
    if (recv[r * bytes] != r || recv[(r + 1) * bytes - 1] != r) tell("data", say("part {} is wrong", r));
  }
  return result;
}

vcollResult_t reduceMuch(vcollComm_t comm, size_t floats) {
  static std::vector<float> send;
  static std::vector<float> recv;
  send.assign(floats * static_cast<size_t>(ranks), 1);
  recv.resize(floats);
  const std::vector<size_t> counts(static_cast<size_t>(ranks), floats);
  const vcollResult_t result =
      vcollReduceScatterV(send.data(), recv.data(), counts.data(), vcollFloat32, vcollSum, comm, nullptr);
  if (result == vcollSuccess &&
      (recv[0] != static_cast<float>(ranks) || recv[floats - 1] != static_cast<float>(ranks))) {
    tell("data", say("a sum is {}", recv[0]));
  }
  return result;
}

int openDescriptors() {
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return -1;
  int count = -1;  // its own
  for (const dirent* entry = readdir(directory); entry != nullptr; entry = readdir(directory)) {
    if (entry->d_name[0] != '.') ++count;
  }
  closedir(directory);
  return count;
}

std::string Verdict::text(const std::string& key) const {
  const auto found = values.find(key);
  return found == values.end() ? "" : found->second;
}
double Verdict::number(const std::string& key) const {
  const auto found = values.find(key);
  return found == values.end() ? -1 : std::atof(found->second.c_str());
}

void fail(const char* file, int line, const std::string& text) {
  ++failures;
  const char* slash = std::strrchr(file, '/');
  std::fprintf(stderr, "FAIL %s:%d: %s\n", slash == nullptr ? file : slash + 1, line, text.c_str());
}

Job::Job(std::string role) : role_(std::move(role)) {
  char name[] = "/tmp/vcoll-launch-XXXXXX";
  if (mkdtemp(name) == nullptr) {
    std::perror("mkdtemp");
    std::exit(2);
  }
  directory_ = name;
}

Job::~Job() {
  (void)wait(0);
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void Job::mpirun(int ranksOfJob, const Environment& environment, const std::vector<int>& layout) {
  const std::string self = ownPath();
  const pid_t pid = spawn([&] {
    setEnvironment({{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
    setEnvironment(environment);
    std::vector<std::string> all = {VCOLL_TEST_MPIRUN,
                                    "--enable-recovery",
                                    "--oversubscribe",
                                    "--bind-to",
                                    "none",
                                    "--mca",
                                    "mpi_yield_when_idle",
                                    "1",
                                    "-np",
                                    std::to_string(ranksOfJob),
                                    self,
                                    "--role",
                                    role_,
                                    "--directory",
                                    directory_};
    std::string nodes;
    for (const int node : layout) nodes += (nodes.empty() ? "" : ",") + std::to_string(node);
    if (!nodes.empty()) all.insert(all.end(), {"--nodes", nodes});
    exec(all);
  });
  children_.push_back(pid);
}

void Job::process(int rankOfJob, const Environment& environment, int maxDescriptors) {
  const std::string self = ownPath();
  const pid_t pid = spawn([&] {
    setEnvironment(environment);
    if (maxDescriptors > 0) {
      const auto limit = static_cast<rlim_t>(maxDescriptors);
      const rlimit files = {limit, limit};
      setrlimit(RLIMIT_NOFILE, &files);
    }
    exec({self, "--role", role_, "--directory", directory_, "--rank", std::to_string(rankOfJob)});
  });
  children_.push_back(pid);
}

std::vector<int> Job::wait(double seconds) {
  const double end = now() + seconds;
  std::vector<int> codes;
  for (const pid_t pid : children_) {
    int status = 0;
    pid_t got = 0;
    while ((got = waitpid(pid, &status, WNOHANG)) == 0 && now() < end) sleepMs(10);
    if (got == 0) {
      kill(-pid, SIGKILL);
      waitpid(pid, &status, 0);
      codes.push_back(-1);
    } else {
      codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
  }
  // mpirun's ranks have process groups of their own: what a killed mpirun left goes by the pid that each rank told.
  if (!children_.empty()) {
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      const std::string name = entry.path().filename().string();
      if (name.rfind("rank", 0) != 0) continue;
      const auto pid = static_cast<pid_t>(verdict(std::atoi(name.c_str() + 4)).number("pid"));
      std::error_code gone;
      if (pid > 0 && std::filesystem::read_symlink(say("/proc/{}/exe", pid), gone).string() == ownPath()) {
        kill(pid, SIGKILL);
      }
    }
  }
  children_.clear();
  return codes;
}

Verdict Job::verdict(int rankOfJob) const {
  Verdict all;
  std::ifstream file(fileOf(directory_, rankOfJob));
  all.exists = file.good();
  for (std::string line; std::getline(file, line);) {
    const size_t equals = line.find('=');
    if (equals != std::string::npos) all.values[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return all;
}

bool Job::waitFor(int rankOfJob, const std::string& key, double seconds) const {
  const double end = now() + seconds;
  while (now() < end) {
    if (verdict(rankOfJob).values.count(key) != 0) return true;
    sleepMs(5);
  }
  return false;
}

void destroyTold(vcollComm_t comm) {
  told("destroy", nullptr, [&] { return vcollCommDestroy(comm); });
}

void expectDestroyed(const Verdict& verdict) {
  CHECK(verdict.text("destroy.result") == vcollGetErrorString(vcollSuccess), "destroy gave \"{}\" ({})",
        verdict.text("destroy.result"), verdict.text("destroy.text"));
  const double took = verdict.number("destroy.end") - verdict.number("destroy.start");
  CHECK(took < 1, "destroy took {:.3f} s", took);
  CHECK(verdict.text("data").empty(), "{}", verdict.text("data"));
}

void expectFailure(const Verdict& verdict, const std::string& key, vcollResult_t result, double since, double within,
                   const std::vector<std::string>& words) {
  const std::string text = verdict.text(key + ".text");
  CHECK(verdict.text(key + ".result") == vcollGetErrorString(result), "{} was \"{}\" ({}), expected {}", key,
        verdict.text(key + ".result"), text, vcollGetErrorString(result));
  const double took = verdict.number(key + ".end") - since;
  CHECK(took < within, "{} ended after {:.3f} s, allowed {}", key, took, within);
  for (const std::string& word : words)
    CHECK(text.find(word) != std::string::npos, "\"{}\" does not say \"{}\"", text, word);
}

int freePort(bool ipv6) {
  const int fd = socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_storage storage{};
  socklen_t length = ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  auto* four = reinterpret_cast<sockaddr_in*>(&storage);
  auto* six = reinterpret_cast<sockaddr_in6*>(&storage);
  if (ipv6) {
    six->sin6_family = AF_INET6;
    six->sin6_addr = in6addr_loopback;
  } else {
    four->sin_family = AF_INET;
    four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  int port = 0;
  if (fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&storage), length) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) == 0) {
    port = ntohs(ipv6 ? six->sin6_port : four->sin_port);
  }
  if (fd >= 0) close(fd);
  return port;
}

}  // namespace launch

int main(int argc, char** argv) {
  using namespace launch;
  std::map<std::string, std::string> flags;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--", 0) == 0 && i + 1 < argc) {
      flags[argument] = argv[++i];
    } else {
      names.push_back(argument);
    }
  }
  if (flags.count("--role") != 0) {
    const char* fromMpirun = getenv("OMPI_COMM_WORLD_RANK");
    rank = std::atoi(flags.count("--rank") != 0 ? flags["--rank"].c_str() : fromMpirun != nullptr ? fromMpirun : "0");
    verdictFile = std::fopen(fileOf(flags["--directory"], rank).c_str(), "we");
    if (verdictFile == nullptr) {
      std::perror("verdict file");
      return 2;
    }
    tell("pid", std::to_string(getpid()));
    if (flags.count("--nodes") != 0) {
      std::string nodes = flags["--nodes"];
      for (int r = 0; r < rank; ++r) nodes.erase(0, nodes.find(',') + 1);
      setenv("VCOLL_HOSTID", ("node" + nodes.substr(0, nodes.find(','))).c_str(), 1);
    }
    for (const auto* roles : {&faultRoles(), &publishRoles(), &startRoles()}) {
      for (const Role& role : *roles) {
        if (flags["--role"] == role.name) {
          role.run();
          return 0;
        }
      }
    }
    return 2;
  }
  clearEnvironment();
  bool found = false;
  for (const auto* cases : {&faultCases(), &publishCases(), &startCases()}) {
    for (const Case& entry : *cases) {
      bool wanted = names.empty();
      for (const std::string& name : names) wanted = wanted || name == entry.name;
      if (!wanted) continue;
      found = true;
      const int before = failures;
      const double start = now();
      entry.judge();
      std::printf("%-28s %s %.2f s\n", entry.name, failures == before ? "ok    " : "FAILED", now() - start);
      std::fflush(stdout);
    }
  }
  if (!found) {
    std::fprintf(stderr, "usage: launch_tests [CASE..]\ncases:");
    for (const auto* cases : {&faultCases(), &publishCases(), &startCases()}) {
      for (const Case& entry : *cases) std::fprintf(stderr, " %s", entry.name);
    }
    std::fprintf(stderr, "\n");
    return 2;
  }
  return failures == 0 ? 0 : 1;
}
