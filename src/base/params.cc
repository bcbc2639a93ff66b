// SPDX-License-Identifier: Apache-2.0
#include "base/params.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <numeric>
#include <vector>

#include "base/log.h"

namespace vcoll {
namespace {

bool equalIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::toupper(static_cast<unsigned char>(x)) == std::toupper(static_cast<unsigned char>(y));
  });
}

// Cuts text up to the first separator off its front; the rest is empty after the last piece.
std::string_view nextPiece(std::string_view* text, std::string_view separator) {
  const size_t end = text->find(separator);
  const std::string_view piece = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + separator.size());
  return piece;
}

bool parseInteger(std::string_view text, int64_t* value) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  if (!parseSize(text, value)) return false;
  if (negative) *value = -*value;
  return true;
}

// "lo..hi", "lo..hi, multiple of n" or "a|b|c".
bool isAllowed(int64_t value, std::string_view allowed, bool* understood) {
  constexpr std::string_view kMultiple = ", multiple of ";
  *understood = true;
  if (allowed.find("..") == std::string_view::npos) {
    bool found = false;
    while (!allowed.empty()) {
      int64_t choice = 0;
      *understood = *understood && parseInteger(nextPiece(&allowed, "|"), &choice);
      found = found || choice == value;
    }
    return *understood && found;
  }
  int64_t lo = 0;
  int64_t hi = 0;
  int64_t multiple = 1;
  const bool loOk = parseInteger(nextPiece(&allowed, ".."), &lo);
  const bool hiOk = parseInteger(nextPiece(&allowed, kMultiple), &hi);
  *understood = loOk && hiOk && (allowed.empty() || (parseSize(allowed, &multiple) && multiple > 0));
  return *understood && value >= lo && value <= hi && value % multiple == 0;
}

Status badValue(const char* name, std::string_view value, const char* allowed) {
  return makeError(vcollInvalidArgument, "{}=\"{}\" is not valid; allowed: {}", name, value, allowed);
}

Status setParam(int64_t* field, const char* name, std::string_view text, const char* allowed) {
  int64_t value = 0;
  if (!parseInteger(text, &value)) return badValue(name, text, allowed);
  bool understood = false;
  const bool inside = isAllowed(value, allowed, &understood);
  if (!understood) return makeError(vcollInternalError, "the allowed values of {} read \"{}\"", name, allowed);
  if (!inside) return badValue(name, text, allowed);
  *field = value;
  return Status();
}

// A text with a list of choices is stored as the list spells it; any other text is taken as it is.
Status setParam(std::string* field, const char* name, std::string_view text, const char* allowed) {
  std::string_view choices = allowed;
  if (choices.find('|') == std::string_view::npos) {
    *field = text;
    return Status();
  }
  while (!choices.empty()) {
    const std::string_view choice = nextPiece(&choices, "|");
    if (equalIgnoringCase(choice, text)) {
      *field = choice;
      return Status();
    }
  }
  return badValue(name, text, allowed);
}

// Levenshtein distance.
size_t editDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, diagonal + (a[i] == b[j] ? 0u : 1u)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

struct ProcessParams {
  Params values;
  Status status;
};

}  // namespace

bool parseSize(std::string_view text, int64_t* value) {
  constexpr int64_t kMax = INT64_MAX;
  int64_t unit = 1;
  if (!text.empty()) {
    switch (std::toupper(static_cast<unsigned char>(text.back()))) {
      case 'K':
        unit = int64_t{1} << 10;
        break;
      case 'M':
        unit = int64_t{1} << 20;
        break;
      case 'G':
        unit = int64_t{1} << 30;
        break;
      default:
        break;
    }
  }
  if (unit > 1) text.remove_suffix(1);
  const auto isDigit = [](char c) { return c >= '0' && c <= '9'; };

  const size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  if (whole.empty() || !std::all_of(whole.begin(), whole.end(), isDigit)) return false;
  int64_t units = 0;
  for (const char c : whole) {
    if (units > (kMax - (c - '0')) / 10) return false;
    units = units * 10 + (c - '0');
  }
  if (units > kMax / unit) return false;
  int64_t bytes = units * unit;

  if (point != std::string_view::npos) {
    const std::string_view digits = text.substr(point + 1);
    // Nine digits are finer than a byte of a gigabyte, and keep the product below 2^63.
    if (unit == 1 || digits.empty() || digits.size() > 9) return false;
    if (!std::all_of(digits.begin(), digits.end(), isDigit)) return false;
    int64_t part = 0;
    int64_t scale = 1;
    for (const char c : digits) {
      part = part * 10 + (c - '0');
      scale *= 10;
    }
    const int64_t extra = part * unit / scale;
    if (bytes > kMax - extra) return false;
    bytes += extra;
  }
  *value = bytes;
  return true;
}

const ParamInfo* paramTable(size_t* count) {
  // The defaults are kept as the header writes them, without the quotes of texts.
  static const std::vector<ParamInfo>* const table = [] {
    auto* made = new std::vector<ParamInfo>;
    const Params defaults;
    const auto text = [](const auto& value) { return formatText("{}", value); };
#define X(field, name, kind, dflt, allowed, doc) made->push_back({name, text(defaults.field), allowed, doc});
    VCOLL_PARAMS(X)
#undef X
    return made;
  }();
  *count = table->size();
  return table->data();
}

Status readParams(Params* params) {
  Status first;
  // Every variable is read, so that one bad value costs the others nothing.
  const auto read = [&first](auto* field, const char* name, const char* allowed) {
    const char* text = std::getenv(name);
    if (text == nullptr || *text == '\0') return;
    Status status = setParam(field, name, text, allowed);
    if (first.ok() && !status.ok()) first = std::move(status);
  };
  *params = Params();
#define X(field, name, kind, dflt, allowed, doc) read(&params->field, name, allowed);
  VCOLL_PARAMS(X)
#undef X
  return first;
}

std::vector<std::string> unknownVariables() {
  constexpr std::string_view kPrefix = "VCOLL_";
  constexpr size_t kClose = 3;
  std::vector<std::string> warnings;
  size_t count = 0;
  const ParamInfo* table = paramTable(&count);
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    std::string_view name = *entry;
    name = name.substr(0, name.find('='));
    if (!name.starts_with(kPrefix)) continue;
    const ParamInfo* nearest = nullptr;
    size_t distance = kClose + 1;
    for (const ParamInfo* known = table; known != table + count; ++known) {
      const size_t d = editDistance(name, known->name);
      if (d < distance) {
        distance = d;
        nearest = known;
      }
    }
    if (distance == 0) continue;
    warnings.push_back(nearest == nullptr
                           ? formatText("environment variable {} is not known and has no effect", name)
                           : formatText("environment variable {} is not known and has no effect; did you mean {}?",
                                        name, nearest->name));
  }
  return warnings;
}

const Params& params(Status* status) {
  static std::atomic<const ProcessParams*> parsed{nullptr};
  static std::once_flag once;
  const ProcessParams* known = parsed.load(std::memory_order_acquire);
  if (known == nullptr) {
    bool mine = false;
    std::call_once(once, [&mine] {
      auto* made = new ProcessParams;
      made->status = readParams(&made->values);
      parsed.store(made, std::memory_order_release);
      mine = true;
    });
    known = parsed.load(std::memory_order_acquire);
    // Outside call_once: logging itself asks for the parameters.
    if (mine) {
      for (const std::string& warning : unknownVariables()) logWarn("{}", warning);
    }
  }
  if (status != nullptr) *status = known->status;
  return known->values;
}

}  // namespace vcoll
