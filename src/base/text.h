// SPDX-License-Identifier: Apache-2.0
// Formatting with fmt's syntax and compile-time checks. fmt's implementation is compiled once, in text.cc: including it
// everywhere would triple the time of a build.
#pragma once

#include <fmt/core.h>

#include <string>

namespace vcoll {

std::string formatArguments(fmt::string_view format, fmt::format_args arguments);

template <typename... Args>
std::string formatText(fmt::format_string<Args...> format, Args&&... args) {
  return formatArguments(format, fmt::make_format_args(args...));
}

}  // namespace vcoll
