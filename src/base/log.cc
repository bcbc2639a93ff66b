// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/params.h"
#include "base/status.h"

namespace vcoll {
namespace {

struct Log {
  LogLevel level = LogLevel::kWarn;
  int fd = STDERR_FILENO;
  std::string host;
};

void writeLine(const Log& log, LogLevel level, std::string_view text) {
  static constexpr std::array<const char*, 4> kNames = {"NONE", "WARN", "INFO", "TRACE"};
  const std::string line =
      formatText("vcoll {}:{} {} {}\n", log.host, getpid(), kNames[static_cast<size_t>(level)], text);
  // One write per line keeps the lines of threads and processes apart. What a full disk or a closed stderr loses is
  // lost: there is nowhere left to say it.
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = write(log.fd, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
}

LogLevel levelOf(std::string_view name) {
  if (name == "NONE") return LogLevel::kNone;
  if (name == "INFO") return LogLevel::kInfo;
  if (name == "TRACE") return LogLevel::kTrace;
  return LogLevel::kWarn;
}

std::string expandPath(const std::string& pattern, const std::string& host) {
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'h') {
      path += host;
    } else if (next == 'p') {
      path += std::to_string(getpid());
    } else {
      path += pattern[i];
      continue;
    }
    ++i;
  }
  return path;
}

const Log* openLog() {
  auto* log = new Log;
  std::array<char, 256> host{};
  // A name too long for the buffer may come without its terminating zero.
  if (gethostname(host.data(), host.size() - 1) != 0) strcpy(host.data(), "unknown-host");
  log->host = host.data();

  const Params& p = params();
  log->level = levelOf(p.debug);
  if (!p.debugFile.empty() && log->level != LogLevel::kNone) {
    const std::string path = expandPath(p.debugFile, log->host);
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd >= 0) {
      log->fd = fd;
    } else {
      const Status status = systemError(formatText("VCOLL_DEBUG_FILE: cannot open {}, using stderr", path));
      writeLine(*log, LogLevel::kWarn, status.text());
    }
  }
  return log;
}

// Made at the first use and never freed: threads may log until the process ends.
const Log& theLog() {
  params();  // its first call logs: it must not run inside the initialization below
  static const Log* const log = openLog();
  return *log;
}

}  // namespace

bool logEnabled(LogLevel level) { return level != LogLevel::kNone && level <= theLog().level; }

void logLine(LogLevel level, std::string_view text) { writeLine(theLog(), level, text); }

}  // namespace vcoll
