// SPDX-License-Identifier: Apache-2.0
// Text as bytes, and which pieces of it are trained on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gpt {

// A file, or with an empty path the licence texts of Debian. The last tenth is held out.
class Text {
 public:
  // Throws std::runtime_error: what could not be read, or is too short for sequences of so many bytes.
  Text(const std::string& path, size_t context);

  // Sequence `index` of a step's global batch, context + 1 bytes. Depends on nothing but the arguments and the text.
  void sequence(uint64_t seed, uint64_t step, uint64_t index, uint8_t* bytes) const;
  // Sequence `index` of the held-out part; the same in every run.
  void heldOut(uint64_t index, uint8_t* bytes) const;

  size_t size() const { return bytes_.size(); }
  // Equal texts have equal digests.
  uint64_t digest() const;

 private:
  size_t context_;
  std::vector<uint8_t> bytes_;
  size_t training_;  // bytes of the first part
};

}  // namespace gpt
