// SPDX-License-Identifier: Apache-2.0
// The safetensors file format: 8 bytes of header length, a JSON header, the tensors' bytes. Only fp32 tensors here.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace vmuon {

struct Tensor {
  std::string name;
  std::vector<uint64_t> shape;
  uint64_t elements() const {
    uint64_t n = 1;
    for (const uint64_t d : shape) n *= d;
    return n;
  }
};

// Where the tensors' bytes are in the file, in the order given.
struct TensorFile {
  std::string header;             // the file's first bytes
  std::vector<uint64_t> offsets;  // of every tensor's first byte in the file
  std::map<std::string, std::string> metadata;
  uint64_t bytes = 0;  // of the whole file
};

TensorFile describeTensors(const std::vector<Tensor>& tensors, const std::map<std::string, std::string>& metadata);

// Reads the header of an open file and checks that it has exactly the tensors named, whole and in fp32. Throws
// vcoll::Error: what is missing, superfluous, of another shape or type, or damaged is named, with the path.
TensorFile openTensors(int fd, const std::string& path, const std::vector<Tensor>& expected);

// All bytes or vcoll::Error (vcollSystemError) with the path.
void writeAt(int fd, const std::string& path, uint64_t offset, const void* data, uint64_t bytes);
void readAt(int fd, const std::string& path, uint64_t offset, void* data, uint64_t bytes);

}  // namespace vmuon
