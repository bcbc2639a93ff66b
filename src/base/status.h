// SPDX-License-Identifier: Apache-2.0
// Status: a result code with its text. Every internal call that can fail returns one.
#pragma once

#include <string>
#include <utility>

#include "base/text.h"
#include "vcoll/vcoll.h"

namespace vcoll {

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(vcollResult_t code, std::string text) : code_(code), text_(std::move(text)) {}

  bool ok() const { return code_ == vcollSuccess; }
  vcollResult_t code() const { return code_; }
  const std::string& text() const { return text_; }

 private:
  vcollResult_t code_ = vcollSuccess;
  std::string text_;
};

template <typename... Args>
Status makeError(vcollResult_t code, fmt::format_string<Args...> format, Args&&... args) {
  return Status(code, formatText(format, std::forward<Args>(args)...));
}

// A failed system call: "what: strerror (errno N)". Reads errno first.
Status systemError(const std::string& what);
Status systemError(const std::string& what, int errnoValue);

const char* resultName(vcollResult_t code);

#define VCOLL_TRY(expr)                       \
  do {                                        \
    ::vcoll::Status vcollTryStatus_ = (expr); \
    if (!vcollTryStatus_.ok()) {              \
      return vcollTryStatus_;                 \
    }                                         \
  } while (0)

}  // namespace vcoll
