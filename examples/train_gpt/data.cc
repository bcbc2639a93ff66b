// SPDX-License-Identifier: Apache-2.0
#include "train_gpt/data.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>

#include "train_gpt/mix.h"

namespace gpt {
namespace {

namespace fs = std::filesystem;

const char* const kLicences = "/usr/share/common-licenses";

void append(const fs::path& path, std::vector<uint8_t>* bytes) {
  std::ifstream file(path, std::ios::binary);
  if (file) bytes->insert(bytes->end(), std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  if (!file) throw std::runtime_error("cannot read " + path.string() + ": " + std::strerror(errno));
}

// Sorted; links would repeat other files.
std::vector<fs::path> licences() {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator at(kLicences, error), end; !error && at != end; at.increment(error)) {
    if (at->is_regular_file() && !at->is_symlink()) files.push_back(at->path());
  }
  if (error || files.empty()) {
    throw std::runtime_error(std::string("no texts in ") + kLicences + (error ? " (" + error.message() + ")" : "") +
                             ": name a file with --data");
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

Text::Text(const std::string& path, size_t context) : context_(context) {
  if (!path.empty())
    append(path, &bytes_);
  else
    for (const fs::path& file : licences()) append(file, &bytes_);
  training_ = bytes_.size() - bytes_.size() / 10;
  if (bytes_.size() - training_ <= context) {
    throw std::runtime_error((path.empty() ? "the licence texts have" : path + " has") + ' ' +
                             std::to_string(bytes_.size()) + " bytes; --context " + std::to_string(context) +
                             " needs at least " + std::to_string(10 * (context + 1)));
  }
}

void Text::sequence(uint64_t seed, uint64_t step, uint64_t index, uint8_t* bytes) const {
  const uint64_t places = training_ - context_;
  const uint64_t place = mix(mix(mix(seed) + step) + index) % places;
  std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(place), context_ + 1, bytes);
}

void Text::heldOut(uint64_t index, uint8_t* bytes) const {
  const uint64_t places = bytes_.size() - training_ - context_;
  const uint64_t place = training_ + mix(index) % places;
  std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(place), context_ + 1, bytes);
}

uint64_t Text::digest() const {
  uint64_t digest = bytes_.size();
  for (const uint8_t byte : bytes_) digest = mix(digest ^ byte);
  return digest;
}

}  // namespace gpt
