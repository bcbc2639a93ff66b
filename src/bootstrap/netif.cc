// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/netif.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "bootstrap/socket.h"

namespace vcoll {
namespace {

bool startsWithAny(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](auto prefix) { return name.starts_with(prefix); });
}

// Empty: usable. Else why not.
std::string_view whyNot(const IfAddress& address, const IfSpec& spec, const std::string& family) {
  if (family == "AF_INET" && address.endpoint.family != 4) return "not IPv4";
  if (family == "AF_INET6" && address.endpoint.family != 6) return "not IPv6";
  if (!address.running) return "not up and running";
  if (!spec.names.empty()) return spec.matches(address.name) ? "" : "not in VCOLL_SOCKET_IFNAME";
  if (address.loopback) return "";  // the last resort
  if (startsWithAny(address.name, {"docker", "virbr", "veth"})) return "a virtual network by its name";
  if (!address.broadcast) return "not broadcast-capable";
  return "";
}

// Lower is better.
int order(const IfAddress& address) {
  return (address.loopback ? 4 : 0) + (isLinkLocal(address.endpoint) ? 2 : 0) + (address.endpoint.family == 6 ? 1 : 0);
}

}  // namespace

IfSpec IfSpec::parse(std::string_view text) {
  IfSpec spec;
  if (text.starts_with('^')) {
    spec.exclude = true;
    text.remove_prefix(1);
  }
  if (text.starts_with('=')) {
    spec.exact = true;
    text.remove_prefix(1);
  }
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) spec.names.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return spec;
}

bool IfSpec::matches(std::string_view name) const {
  const bool listed = std::any_of(names.begin(), names.end(), [&](const std::string& entry) {
    return exact ? name == entry : name.starts_with(entry);
  });
  return listed != exclude;
}

Status listInterfaces(std::vector<IfAddress>* interfaces) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return systemError("listing the network interfaces");
  interfaces->clear();
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    sockaddr_storage storage{};
    std::memcpy(&storage, entry->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    IfAddress address;
    address.name = entry->ifa_name;
    address.running = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0;
    address.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    address.broadcast = (entry->ifa_flags & IFF_BROADCAST) != 0;
    address.endpoint = fromSockaddr(storage);
    interfaces->push_back(address);
  }
  ::freeifaddrs(list);
  return {};
}

Status chooseInterface(const std::vector<IfAddress>& interfaces, const std::string& ifname, const std::string& family,
                       IfAddress* chosen, std::string* why) {
  if (!family.empty() && family != "AF_INET" && family != "AF_INET6") {
    return makeError(vcollInvalidArgument, "VCOLL_SOCKET_FAMILY is \"{}\": it must be AF_INET or AF_INET6", family);
  }
  const IfSpec spec = IfSpec::parse(ifname);
  const IfAddress* best = nullptr;
  std::string candidates;
  for (const IfAddress& address : interfaces) {
    const std::string_view reason = whyNot(address, spec, family);
    if (reason.empty() && (best == nullptr || order(address) < order(*best))) best = &address;
    const std::string text = address.endpoint.text();
    candidates +=
        formatText("{}{} {}{}{}{}", candidates.empty() ? "" : ", ", address.name, text.substr(0, text.rfind(':')),
                   reason.empty() ? "" : " (", reason, reason.empty() ? "" : ")");
  }
  if (best == nullptr) {
    const std::string wanted = formatText("{}{}{}{}", ifname.empty() ? "" : " VCOLL_SOCKET_IFNAME=", ifname,
                                          family.empty() ? "" : " VCOLL_SOCKET_FAMILY=", family);
    return makeError(wanted.empty() ? vcollSystemError : vcollInvalidArgument,
                     "no network interface to listen on{}{}; this host has: {}", wanted.empty() ? "" : " with", wanted,
                     candidates.empty() ? "none" : candidates);
  }
  *chosen = *best;
  const char* reason = !spec.names.empty()           ? "VCOLL_SOCKET_IFNAME"
                       : best->loopback              ? "only the loopback is left: other hosts cannot reach it"
                       : isLinkLocal(best->endpoint) ? "the first that is up, link-local only"
                                                     : "the first that is up";
  *why = formatText("{} ({}) out of {}", best->name, reason, candidates);
  return {};
}

}  // namespace vcoll
