// SPDX-License-Identifier: Apache-2.0
// docs/environment.md, from the table of parameters.
#include <fmt/format.h>

#include <string>

#include "base/params.h"
#include "info.h"

namespace vcoll {
namespace {

constexpr const char* kHead = R"(# Environment variables

<!-- Written by `vcoll-info --markdown` from src/base/params.h; a test keeps the two equal. Do not edit. -->

Read once per process, at the first call of the library. An empty variable counts as unset. Numbers are decimal and may
end in K, M or G (binary). A value outside what is allowed is an error that names the variable; a `VCOLL_` variable that
is not in this table gives one warning. All ranks should have the same values unless the meaning says otherwise.
`vcoll-info` prints the values in force.

| variable | default | allowed | meaning |
|---|---|---|---|
)";

constexpr const char* kLaunchers = R"(
## Variables of launchers

LAUNCHERS
)";

// A | would end the cell.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

void printEnvironmentMarkdown() {
  fmt::print("{}", kHead);
  size_t count = 0;
  const ParamInfo* table = paramTable(&count);
  for (const ParamInfo* p = table; p != table + count; ++p) {
    const std::string value = p->defaultValue.empty() ? "" : fmt::format("`{}`", p->defaultValue);
    fmt::print("| `{}` | {} | {} | {} |\n", p->name, value, cell(p->allowed), cell(p->doc));
  }
  fmt::print("{}", kLaunchers);
}

}  // namespace vcoll
