// SPDX-License-Identifier: Apache-2.0
#include "runtime/safetensors.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "runtime/cluster.h"

namespace vmuon {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // the format's own bound

[[noreturn]] void damaged(const std::string& path, const std::string& why) {
  fail(vcollInvalidArgument, fmt::format("{} is not a checkpoint: {}", path, why));
}

std::string shapeText(const std::vector<uint64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

uint64_t headerLength(int fd, const std::string& path, uint64_t fileBytes) {
  unsigned char raw[8];
  if (fileBytes < sizeof raw) damaged(path, fmt::format("it has {} bytes", fileBytes));
  readAt(fd, path, 0, raw, sizeof raw);
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | raw[i];
  if (length > kMaxHeader || length > fileBytes - sizeof raw) {
    damaged(path, fmt::format("its header would have {} bytes, the file has {}", length, fileBytes));
  }
  return length;
}

// The tensor's first byte after the header.
uint64_t checkEntry(const nlohmann::json& entry, const Tensor& tensor, const std::string& path) {
  const auto type = entry.at("dtype").get<std::string>();
  const auto shape = entry.at("shape").get<std::vector<uint64_t>>();
  const auto range = entry.at("data_offsets").get<std::vector<uint64_t>>();
  if (type != "F32") fail(vcollInvalidArgument, fmt::format("{}: '{}' has type {}, want F32", path, tensor.name, type));
  if (shape != tensor.shape) {
    fail(vcollInvalidArgument,
         fmt::format("{}: '{}' has shape {}, want {}", path, tensor.name, shapeText(shape), shapeText(tensor.shape)));
  }
  if (range.size() != 2 || range[1] < range[0] || range[1] - range[0] != tensor.elements() * sizeof(float)) {
    damaged(path, fmt::format("the bytes of '{}' do not fit its shape", tensor.name));
  }
  return range[0];
}

}  // namespace

TensorFile describeTensors(const std::vector<Tensor>& tensors, const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  TensorFile file;
  file.metadata = metadata;
  uint64_t at = 0;
  for (const Tensor& tensor : tensors) {
    const uint64_t bytes = tensor.elements() * sizeof(float);
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {at, at + bytes}}};
    file.offsets.push_back(at);
    at += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // tensors start at a multiple of 8
  for (size_t i = 0; i < 8; ++i) file.header.push_back(static_cast<char>(text.size() >> (8 * i) & 0xff));
  file.header += text;
  for (uint64_t& offset : file.offsets) offset += file.header.size();
  file.bytes = file.header.size() + at;
  return file;
}

TensorFile openTensors(int fd, const std::string& path, const std::vector<Tensor>& expected) {
  struct stat status {};
  if (fstat(fd, &status) != 0) fail(vcollSystemError, fmt::format("fstat({}): {}", path, std::strerror(errno)));
  TensorFile file;
  file.bytes = static_cast<uint64_t>(status.st_size);
  const uint64_t length = headerLength(fd, path, file.bytes);
  std::string text(length, '\0');
  readAt(fd, path, 8, text.data(), length);
  try {
    const nlohmann::json header = nlohmann::json::parse(text);
    if (header.contains("__metadata__")) header["__metadata__"].get_to(file.metadata);
    size_t known = header.contains("__metadata__") ? 1 : 0;
    for (const Tensor& tensor : expected) {
      if (!header.contains(tensor.name))
        fail(vcollInvalidArgument, fmt::format("{}: '{}' is missing", path, tensor.name));
      const uint64_t begin = checkEntry(header[tensor.name], tensor, path);
      const uint64_t offset = 8 + length + begin;
      if (begin > file.bytes || offset + tensor.elements() * sizeof(float) > file.bytes) {
        damaged(path, fmt::format("it ends inside '{}'", tensor.name));
      }
      file.offsets.push_back(offset);
      ++known;
    }
    if (known != header.size()) {
      for (const auto& [name, entry] : header.items()) {
        if (name == "__metadata__") continue;
        const bool wanted =
            std::any_of(expected.begin(), expected.end(), [&](const Tensor& t) { return t.name == name; });
        if (!wanted) fail(vcollInvalidArgument, fmt::format("{}: '{}' is not of this optimizer", path, name));
      }
    }
  } catch (const nlohmann::json::exception& error) {
    damaged(path, error.what());
  }
  return file;
}

void writeAt(int fd, const std::string& path, uint64_t offset, const void* data, uint64_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = pwrite(fd, from, bytes, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      fail(vcollSystemError,
           fmt::format("writing {} bytes at {} of {}: {}", bytes, offset, path, std::strerror(errno)));
    }
    from += done;
    offset += static_cast<uint64_t>(done);
    bytes -= static_cast<uint64_t>(done);
  }
}

void readAt(int fd, const std::string& path, uint64_t offset, void* data, uint64_t bytes) {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t done = pread(fd, to, bytes, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      fail(vcollSystemError, fmt::format("reading {} bytes at {} of {}: {}", bytes, offset, path,
                                         done == 0 ? "end of file" : std::strerror(errno)));
    }
    to += done;
    offset += static_cast<uint64_t>(done);
    bytes -= static_cast<uint64_t>(done);
  }
}

}  // namespace vmuon
