// SPDX-License-Identifier: Apache-2.0
// Which network interface this process listens on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "bootstrap/listener.h"

namespace vcoll {

// VCOLL_SOCKET_IFNAME in the syntax of NCCL_SOCKET_IFNAME: "eth,ib" prefixes, "=eth0" exact names, "^docker" all but
// these prefixes, "^=eth0" all but these names.
struct IfSpec {
  bool exclude = false;
  bool exact = false;
  std::vector<std::string> names;

  static IfSpec parse(std::string_view text);
  bool matches(std::string_view name) const;
};

struct IfAddress {
  std::string name;
  bool running = false;  // up, and with a carrier
  bool loopback = false;
  bool broadcast = false;  // false for tunnels and point-to-point links
  Endpoint endpoint;       // port 0
};

// Every IPv4 and IPv6 address of this host.
Status listInterfaces(std::vector<IfAddress>* interfaces);

// The address to listen at. ifname and family are the two variables' values, "" where not set. *why says which
// candidates there were and why this one was taken.
Status chooseInterface(const std::vector<IfAddress>& interfaces, const std::string& ifname, const std::string& family,
                       IfAddress* chosen, std::string* why);

}  // namespace vcoll
