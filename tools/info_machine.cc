// SPDX-License-Identifier: Apache-2.0
// The machine section of vcoll-info.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <unistd.h>

#include <climits>
#include <cstdint>
#include <fstream>
#include <map>
#include <string>

#include "info.h"

#ifdef VCOLL_INFO_HWLOC
#include <hwloc.h>
#endif

namespace vcoll {
namespace {

std::string firstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

void printHost() {
  char host[HOST_NAME_MAX + 1] = "";
  (void)gethostname(host, sizeof host - 1);
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const int usable = sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 0;
  fmt::print("\nmachine {}\n", host);
  fmt::print("  processors   {} online, {} usable by this process\n", sysconf(_SC_NPROCESSORS_ONLN), usable);
  const double pages = static_cast<double>(sysconf(_SC_PHYS_PAGES));
  fmt::print("  memory       {:.1f} GiB\n", pages * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 30));
}

#ifdef VCOLL_INFO_HWLOC
std::string cpuList(hwloc_const_bitmap_t set) {
  char* text = nullptr;
  if (hwloc_bitmap_list_asprintf(&text, set) < 0) return "?";
  std::string list = text;
  free(text);
  return list;
}

// The NUMA nodes an I/O device hangs on.
std::string nearNodes(hwloc_topology_t topology, hwloc_obj_t device) {
  const hwloc_obj_t ancestor = hwloc_get_non_io_ancestor_obj(topology, device);
  return ancestor != nullptr && ancestor->nodeset != nullptr ? cpuList(ancestor->nodeset) : "?";
}

void printTopology() {
  hwloc_topology_t topology;
  if (hwloc_topology_init(&topology) != 0) return;
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc_topology_load(topology) == 0) {
    fmt::print("  packages     {}, cores {}, hardware threads {}\n",
               hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE),
               hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE), hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU));
    for (hwloc_obj_t cache = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_L3CACHE, nullptr); cache != nullptr;
         cache = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_L3CACHE, cache)) {
      fmt::print("  L3 cache     {} MiB, cpus {}\n", cache->attr->cache.size >> 20, cpuList(cache->cpuset));
    }
    for (hwloc_obj_t node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, nullptr); node != nullptr;
         node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) {
      fmt::print("  NUMA node {}  cpus {}, {:.1f} GiB\n", node->os_index, cpuList(node->cpuset),
                 static_cast<double>(node->attr->numanode.local_memory) / (1 << 30));
    }
    for (hwloc_obj_t device = hwloc_get_next_osdev(topology, nullptr); device != nullptr;
         device = hwloc_get_next_osdev(topology, device)) {
      const auto type = device->attr->osdev.type;
      if (type != HWLOC_OBJ_OSDEV_OPENFABRICS && type != HWLOC_OBJ_OSDEV_GPU && type != HWLOC_OBJ_OSDEV_COPROC)
        continue;
      const char* kind = type == HWLOC_OBJ_OSDEV_OPENFABRICS ? "RDMA device" : "accelerator";
      fmt::print("  {:<12} {}, NUMA node {}\n", kind, device->name, nearNodes(topology, device));
    }
  }
  hwloc_topology_destroy(topology);
}
#else
void printTopology() { fmt::print("  topology     not known: built without hwloc\n"); }
#endif

void printInterfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return;
  std::map<std::string, std::string> addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    char text[INET6_ADDRSTRLEN] = "";
    const int family = entry->ifa_addr->sa_family;
    const void* raw = nullptr;
    if (family == AF_INET) raw = &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr;
    if (family == AF_INET6) raw = &reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
    if (raw == nullptr || inet_ntop(family, raw, text, sizeof text) == nullptr) continue;
    addresses[entry->ifa_name] += fmt::format(" {}", text);
  }
  freeifaddrs(list);
  for (const auto& [name, text] : addresses) {
    const std::string base = "/sys/class/net/" + name;
    const std::string speed = firstLine(base + "/speed");
    const std::string node = firstLine(base + "/device/numa_node");
    fmt::print("  interface    {}{}", name, text);
    if (!speed.empty() && speed[0] != '-') fmt::print(", {} Mb/s", speed);
    if (!node.empty() && node[0] != '-') fmt::print(", NUMA node {}", node);
    fmt::print("\n");
  }
}

}  // namespace

void printMachine() {
  printHost();
  printTopology();
  printInterfaces();
}

}  // namespace vcoll
