// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/slurm_hosts.h"

namespace vcoll {

std::string firstSlurmHost(std::string_view list) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ',';) {
    if (list[i] == ']') return {};
    if (list[i] != '[') {
      host += list[i++];
      continue;
    }
    const size_t close = list.find(']', i);
    const size_t end = list.find_first_of(",-]", i + 1);  // of the first number of the first range
    if (close == std::string_view::npos || end == i + 1) return {};
    host += list.substr(i + 1, end - i - 1);
    i = close + 1;
  }
  return host;
}

}  // namespace vcoll
