// SPDX-License-Identifier: Apache-2.0
// docs/environment.md, from the table of parameters.
#include <fmt/format.h>

#include <string>

#include "base/params.h"
#include "info.h"

namespace vcoll {
namespace {

constexpr const char* kHead = R"(# Environment variables

<!-- Written by `vcoll-info --markdown` from src/base/params.h; a test keeps the two equal. Do not edit. -->

Read once per process, at the first call of the library. An empty variable counts as unset. Numbers are decimal and may
end in K, M or G (binary). A value outside what is allowed is an error that names the variable; a `VCOLL_` variable that
is not in this table gives one warning. All ranks should have the same values unless the meaning says otherwise.
`vcoll-info` prints the values in force.

| variable | default | allowed | meaning |
|---|---|---|---|
)";

// Described here because src/bootstrap/launch_env.cc reads them, though they are not ours to declare.
constexpr const char* kLaunchers = R"(
## Variables of launchers

`vcollCommInitFromEnv` takes rank, size and the place to meet from the launcher. The first row whose rank and size are set
counts; without any it makes a communicator of one rank. `VCOLL_COMM_ID`, equal on all ranks, replaces the place to meet of
every row: rank 0 listens there for the time of the rendezvous.

| launcher | rank | size | where rank 0 listens |
|---|---|---|---|
| torchrun, or a shell loop | `RANK` | `WORLD_SIZE` | `MASTER_ADDR`, `MASTER_PORT`; the port after it if `TORCHELASTIC_USE_AGENT_STORE` is `True`, because torchrun itself listens at the first |
| Open MPI | `OMPI_COMM_WORLD_RANK` | `OMPI_COMM_WORLD_SIZE` | 127.0.0.1 if `OMPI_COMM_WORLD_LOCAL_SIZE` is the size, at a port of 20000..29999 made from `PMIX_NAMESPACE`, `OMPI_MCA_ess_base_jobid` or `OMPI_MCA_orte_hnp_uri`; on several hosts `VCOLL_COMM_ID` is needed |
| Slurm (srun) | `SLURM_PROCID` | `SLURM_STEP_NUM_TASKS` or `SLURM_NTASKS` | the first host of `SLURM_STEP_NODELIST`, `SLURM_NODELIST` or `SLURM_JOB_NODELIST`, at a port of 20000..29999 made from `SLURM_JOB_ID` and `SLURM_STEP_ID` |
| PMIx | `PMIX_RANK` | `PMIX_SIZE` | `VCOLL_COMM_ID` is needed |

`vcollCommInitRank` with one rank is an error where these variables say that several were started: each would work alone.
)";

// A | would end the cell.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

void printEnvironmentMarkdown() {
  fmt::print("{}", kHead);
  size_t count = 0;
  const ParamInfo* table = paramTable(&count);
  for (const ParamInfo* p = table; p != table + count; ++p) {
    const std::string value = p->defaultValue.empty() ? "" : fmt::format("`{}`", p->defaultValue);
    fmt::print("| `{}` | {} | {} | {} |\n", p->name, value, cell(p->allowed), cell(p->doc));
  }
  fmt::print("{}", kLaunchers);
}

}  // namespace vcoll
