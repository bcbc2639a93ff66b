// SPDX-License-Identifier: Apache-2.0
// Parts of vcoll-info.
#pragma once

namespace vcoll {

// docs/environment.md on stdout.
void printEnvironmentMarkdown();
// Processors, NUMA nodes, memory and network interfaces of this machine on stdout.
void printMachine();

}  // namespace vcoll
