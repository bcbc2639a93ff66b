// SPDX-License-Identifier: Apache-2.0
#include "plan/costs_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace vmuon {
namespace {

using Json = nlohmann::json;

constexpr int kFileVersion = 1;

struct Entry {
  CostKey key;
  std::map<Shape, double> times;
};

uint64_t dimension(const Json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() == 0)
    throw std::runtime_error("a dimension is no positive number");
  return value.get<uint64_t>();
}

// Throws std::exception with what is wrong.
std::vector<Entry> parse(const std::string& text) {
  const Json file = Json::parse(text);
  if (file.at("version") != kFileVersion) throw std::runtime_error(fmt::format("its version is not {}", kFileVersion));
  std::vector<Entry> entries;
  for (const Json& machine : file.at("machines")) {
    Entry entry;
    entry.key = {machine.at("cpu").get<std::string>(), machine.at("blas").get<std::string>(),
                 machine.at("coefficients").get<std::string>()};
    for (const Json& shape : machine.at("shapes")) {
      const auto seconds = shape.at("seconds").get<double>();
      if (!std::isfinite(seconds) || seconds <= 0) throw std::runtime_error("a time is not positive");
      entry.times[{dimension(shape.at("rows")), dimension(shape.at("cols"))}] = seconds;
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

// The file's entries. note: see loadCosts.
std::vector<Entry> readEntries(const std::string& path, std::string* note) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    if (errno != ENOENT) *note = fmt::format("cannot read measured times from {}: {}", path, std::strerror(errno));
    return {};
  }
  std::ostringstream text;
  text << in.rdbuf();
  try {
    return parse(text.str());
  } catch (const std::exception& e) {
    *note = fmt::format("measured times in {} are ignored: {}", path, e.what());
    return {};
  }
}

std::string write(const std::string& path, const std::string& text) {
  const std::string temporary = fmt::format("{}.{}", path, ::getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (file == nullptr) return fmt::format("cannot create {}: {}", temporary, std::strerror(errno));
  bool ok = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  ok = std::fflush(file) == 0 && ok;
  ok = ::fsync(::fileno(file)) == 0 && ok;
  ok = std::fclose(file) == 0 && ok;
  if (ok && std::rename(temporary.c_str(), path.c_str()) == 0) return "";
  const int error = errno;
  std::remove(temporary.c_str());
  return fmt::format("cannot write measured times to {}: {}", path, std::strerror(error));
}

}  // namespace

std::string cpuModel() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(':');
    const size_t start = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
    if (start != std::string::npos) return line.substr(start);
  }
  return "unknown";
}

std::string loadCosts(const std::string& path, const CostKey& key, MeasuredCosts* costs) {
  std::string note;
  for (const Entry& entry : readEntries(path, &note)) {
    if (entry.key == key) costs->times.insert(entry.times.begin(), entry.times.end());
  }
  return note;
}

std::string saveCosts(const std::string& path, const CostKey& key, const MeasuredCosts& costs) {
  std::string note;
  std::vector<Entry> entries = readEntries(path, &note);
  size_t at = 0;
  while (at < entries.size() && !(entries[at].key == key)) ++at;
  if (at == entries.size()) entries.push_back({key, {}});
  for (const auto& [shape, seconds] : costs.times) entries[at].times[shape] = seconds;

  Json machines = Json::array();
  for (const Entry& entry : entries) {
    Json shapes = Json::array();
    for (const auto& [shape, seconds] : entry.times) {
      shapes.push_back({{"rows", shape.first}, {"cols", shape.second}, {"seconds", seconds}});
    }
    machines.push_back({{"cpu", entry.key.cpu},
                        {"blas", entry.key.blas},
                        {"coefficients", entry.key.coefficients},
                        {"shapes", std::move(shapes)}});
  }
  const Json file{{"version", kFileVersion}, {"machines", std::move(machines)}};
  return write(path, file.dump(1, ' ', false, Json::error_handler_t::replace) + '\n');
}

}  // namespace vmuon
