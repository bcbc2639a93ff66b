// SPDX-License-Identifier: Apache-2.0
// Slurm's compressed host lists.
#pragma once

#include <string>
#include <string_view>

namespace vcoll {

// The first host of a list such as "n[03-07,9],m1": "n03". Empty if the brackets do not match.
std::string firstSlurmHost(std::string_view list);

}  // namespace vcoll
