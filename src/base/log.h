// SPDX-License-Identifier: Apache-2.0
// Log lines on stderr (or VCOLL_DEBUG_FILE): "vcoll host:pid WARN text". Level by VCOLL_DEBUG.
#pragma once

#include <string_view>
#include <utility>

#include "base/text.h"

namespace vcoll {

enum class LogLevel { kNone = 0, kWarn = 1, kInfo = 2, kTrace = 3 };

bool logEnabled(LogLevel level);
void logLine(LogLevel level, std::string_view text);

template <typename... Args>
void logWarn(fmt::format_string<Args...> format, Args&&... args) {
  if (logEnabled(LogLevel::kWarn)) logLine(LogLevel::kWarn, formatText(format, std::forward<Args>(args)...));
}
template <typename... Args>
void logInfo(fmt::format_string<Args...> format, Args&&... args) {
  if (logEnabled(LogLevel::kInfo)) logLine(LogLevel::kInfo, formatText(format, std::forward<Args>(args)...));
}
template <typename... Args>
void logTrace(fmt::format_string<Args...> format, Args&&... args) {
  if (logEnabled(LogLevel::kTrace)) logLine(LogLevel::kTrace, formatText(format, std::forward<Args>(args)...));
}

}  // namespace vcoll
