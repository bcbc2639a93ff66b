// SPDX-License-Identifier: Apache-2.0
// The first bytes on every connection between vcoll processes.
#pragma once

#include <array>
#include <cstdint>

#include "bootstrap/listener.h"

namespace vcoll {

constexpr std::array<char, 8> kHelloMagic = {'v', 'c', 'o', 'l', 'l', 'H', 'i', '\n'};
constexpr uint32_t kHelloVersion = 1;  // of this frame; the library's version is compared in the rendezvous
constexpr uint32_t kMaxHelloPayload = 4096;

struct HelloHeader {
  std::array<char, 8> magic = kHelloMagic;
  uint32_t version = kHelloVersion;
  uint32_t purpose = 0;
  Nonce nonce{};
  uint32_t payloadBytes = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(HelloHeader) == 40);

}  // namespace vcoll
