// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/params.h"
#include "bootstrap/group.h"
#include "bootstrap/slurm_hosts.h"
#include "bootstrap/socket.h"

namespace vcoll {
namespace {

constexpr uint64_t kFirstPort = 20000;  // below the range from which Linux picks ports for connections
constexpr uint64_t kPorts = 10000;

// The first of the variables that is set and not empty.
struct Variable {
  const char* name = nullptr;  // nullptr: none is set
  std::string value;
};
Variable firstSet(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return {name, value};
  }
  return {};
}

Status number(const Variable& variable, int lowest, int* value) {
  const char* end = variable.value.data() + variable.value.size();
  const auto [stop, error] = std::from_chars(variable.value.data(), end, *value);
  if (error == std::errc() && stop == end && *value >= lowest) return {};
  return makeError(vcollInvalidArgument, "{} is \"{}\": it must be a number from {}", variable.name, variable.value,
                   lowest);
}

Status rankAndSize(const Variable& rank, const Variable& size, LaunchInfo* info) {
  VCOLL_TRY(number(size, 1, &info->nranks));
  VCOLL_TRY(number(rank, 0, &info->rank));
  if (info->rank < info->nranks) return {};
  return makeError(vcollInvalidArgument, "{} is {}: it must be less than {}, which is {}", rank.name, rank.value,
                   size.name, size.value);
}

// A port that the ranks of one job agree on and other jobs on the host hardly have.
uint64_t portFrom(std::string_view text) {
  Digest sum;
  for (const char letter : text) sum.add(static_cast<unsigned char>(letter));
  return kFirstPort + sum.value() % kPorts;
}

std::string hostPort(const std::string& host, uint64_t port) {
  const bool ipv6 = host.find(':') != std::string::npos && host.front() != '[';
  return ipv6 ? formatText("[{}]:{}", host, port) : formatText("{}:{}", host, port);
}

Status needCommId(std::string_view why) {
  return makeError(vcollInvalidUsage, "{}: set VCOLL_COMM_ID to host:port, where rank 0 is to listen, on every rank",
                   why);
}

Status torchAddress(LaunchInfo* info) {
  const Variable host = firstSet({"MASTER_ADDR"});
  const Variable port = firstSet({"MASTER_PORT"});
  if (host.name == nullptr) return needCommId("RANK and WORLD_SIZE are set but MASTER_ADDR is not");
  if (port.name == nullptr) return needCommId("RANK and WORLD_SIZE are set but MASTER_PORT is not");
  int value = 0;
  VCOLL_TRY(number(port, 1, &value));
  // torchrun's agent itself listens at MASTER_PORT then.
  if (firstSet({"TORCHELASTIC_USE_AGENT_STORE"}).value == "True") ++value;
  if (value > 65535) {
    return makeError(vcollInvalidArgument, "MASTER_PORT is \"{}\": port {} would be used", port.value, value);
  }
  info->address = hostPort(host.value, static_cast<uint64_t>(value));
  return {};
}

Status slurmAddress(LaunchInfo* info) {
  const Variable nodes = firstSet({"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"});
  const Variable job = firstSet({"SLURM_JOB_ID", "SLURM_JOBID"});
  const Variable step = firstSet({"SLURM_STEP_ID", "SLURM_STEPID"});
  if (nodes.name == nullptr)
    return needCommId("SLURM_PROCID is set but SLURM_STEP_NODELIST and SLURM_NODELIST are not");
  if (job.name == nullptr) return needCommId("SLURM_PROCID is set but SLURM_JOB_ID is not");
  const std::string host = firstSlurmHost(nodes.value);
  if (host.empty()) {
    return makeError(vcollInvalidArgument, "{} is \"{}\": no host name can be read from it", nodes.name, nodes.value);
  }
  info->address = hostPort(host, portFrom(job.value + "." + step.value));
  return {};
}

Status openMpiAddress(LaunchInfo* info) {
  const Variable local = firstSet({"OMPI_COMM_WORLD_LOCAL_SIZE"});
  const Variable job = firstSet({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"});
  if (local.name == nullptr) return needCommId("OMPI_COMM_WORLD_LOCAL_SIZE is not set");
  int localSize = 0;
  VCOLL_TRY(number(local, 1, &localSize));
  if (localSize != info->nranks) {
    return needCommId(formatText("Open MPI started {} ranks, {} of them on this host, and names no host to meet at",
                                 info->nranks, localSize));
  }
  if (job.name == nullptr) return needCommId("PMIX_NAMESPACE and OMPI_MCA_ess_base_jobid are not set");
  info->address = hostPort("127.0.0.1", portFrom(job.value));
  return {};
}

using AddressOf = Status (*)(LaunchInfo*);

Status readLauncher(LaunchInfo* info, AddressOf* addressOf) {
  const Variable torchRank = firstSet({"RANK"});
  const Variable torchSize = firstSet({"WORLD_SIZE"});
  const Variable openMpiRank = firstSet({"OMPI_COMM_WORLD_RANK"});
  const Variable openMpiSize = firstSet({"OMPI_COMM_WORLD_SIZE"});
  const Variable slurmRank = firstSet({"SLURM_PROCID"});
  const Variable slurmSize = firstSet({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  const Variable pmixRank = firstSet({"PMIX_RANK"});
  const Variable pmixSize = firstSet({"PMIX_SIZE"});
  if (torchRank.name != nullptr && torchSize.name != nullptr) {
    info->launcher = "torchrun";
    *addressOf = torchAddress;
    return rankAndSize(torchRank, torchSize, info);
  }
  if (openMpiRank.name != nullptr && openMpiSize.name != nullptr) {
    info->launcher = "openmpi";
    *addressOf = openMpiAddress;
    return rankAndSize(openMpiRank, openMpiSize, info);
  }
  if (openMpiSize.name != nullptr) {
    info->launcher = "openmpi";
    VCOLL_TRY(number(openMpiSize, 1, &info->nranks));
    if (info->nranks > 1) {
      return makeError(
          vcollInvalidUsage,
          "OMPI_COMM_WORLD_SIZE is {} but OMPI_COMM_WORLD_RANK is not set: every rank would be alone; start "
          "the program with mpirun, or unset the variable",
          openMpiSize.value);
    }
  }
  if (slurmRank.name != nullptr && slurmSize.name != nullptr) {
    info->launcher = "slurm";
    *addressOf = slurmAddress;
    return rankAndSize(slurmRank, slurmSize, info);
  }
  if (pmixRank.name != nullptr) {
    info->launcher = "pmix";
    *addressOf = [](LaunchInfo*) { return needCommId("PMIx names no host to meet at"); };
    if (pmixSize.name != nullptr) return rankAndSize(pmixRank, pmixSize, info);
    return makeError(
        vcollInvalidUsage,
        "PMIX_RANK is set but PMIX_SIZE is not: set PMIX_SIZE to the number of ranks, and VCOLL_COMM_ID to "
        "host:port, where rank 0 is to listen, on every rank");
  }
  info->launcher = "none";
  return {};
}

}  // namespace

Status readLaunchInfo(LaunchInfo* info) {
  LaunchInfo fresh;
  AddressOf addressOf = nullptr;
  const Status found = readLauncher(&fresh, &addressOf);
  *info = fresh;
  VCOLL_TRY(found);
  if (fresh.nranks > 1) {
    Params fromEnv;
    VCOLL_TRY(readParams(&fromEnv));
    if (fromEnv.commId.empty()) {
      VCOLL_TRY(addressOf(&fresh));
    } else {
      std::string host;
      uint16_t port = 0;
      VCOLL_TRY(parseHostPort(fromEnv.commId, "VCOLL_COMM_ID", &host, &port));
      fresh.address = fromEnv.commId;
    }
  }
  info->address = fresh.address;
  return {};
}

}  // namespace vcoll
