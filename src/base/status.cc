// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <array>
#include <cerrno>
#include <system_error>

namespace vcoll {

Status systemError(const std::string& what, int errnoValue) {
  return makeError(vcollSystemError, "{}: {} (errno {})", what, std::generic_category().message(errnoValue),
                   errnoValue);
}

Status systemError(const std::string& what) { return systemError(what, errno); }

const char* resultName(vcollResult_t code) {
  static constexpr std::array<const char*, vcollNumResults> kNames = {
      "success",     "system error", "internal error", "invalid argument", "invalid usage", "remote error",
      "in progress", "timed out",    "ranks disagree", "aborted",          "unsupported"};
  const auto index = static_cast<size_t>(code);
  return index < kNames.size() ? kNames[index] : "unknown result code";
}

}  // namespace vcoll
