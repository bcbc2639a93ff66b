// SPDX-License-Identifier: Apache-2.0
// Every VCOLL_* environment variable, declared and documented here and nowhere else. docs/environment.md
// is generated from this table (vcoll-info --markdown), and a test keeps the two equal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace vcoll {

// X(field, "VARIABLE", kind, default, "allowed values", "meaning")
//   kind int: a decimal with optional K/M/G suffix; kind text: a string.
// clang-format off
#define VCOLL_PARAMS(X)                                                                                                   \
  X(debug, "VCOLL_DEBUG", text, "WARN", "NONE|WARN|INFO|TRACE",                                                           \
    "Log level. Lines go to stderr.")                                                                                     \
  X(debugFile, "VCOLL_DEBUG_FILE", text, "", "path",                                                                      \
    "Log lines go to this file instead; %h becomes the host name, %p the process id.")                                    \
  X(timeoutMs, "VCOLL_TIMEOUT_MS", int, 60000, "1..86400000",                                                             \
    "Bound of every wait, in milliseconds: rendezvous, connect, each collective.")                                        \
  X(check, "VCOLL_CHECK", int, 0, "0|1",                                                                                  \
    "1: compare every call over all ranks before it moves data; a disagreement is the same error everywhere.")            \
  X(hostId, "VCOLL_HOSTID", text, "", "any text",                                                                         \
    "Ranks with different texts are on different nodes, whatever the machine. Lets one machine stand for several.")       \
  X(fabric, "VCOLL_FABRIC", text, "auto", "auto|host|cuda",                                                               \
    "Which fabric carries the collectives.")                                                                              \
  X(wire, "VCOLL_WIRE", text, "auto", "auto, tcp or NAME",                                                                  \
    "Wire of the host fabric between nodes; NAME: libvcoll_NAME.so.")                                                                    \
  X(path, "VCOLL_PATH", text, "auto", "auto|star|chain",                                                                  \
    "How queues travel between nodes. auto: by the cost model.")                                                          \
  X(chunkBytes, "VCOLL_CHUNK_BYTES", int, 65536, "1K..16M, multiple of 16",                                               \
    "Unit of flow between nodes.")                                                                                        \
  X(lanes, "VCOLL_LANES", int, 1, "1..16",                                                                                \
    "Lanes of a plan. The host fabric runs all lanes of a rank on one thread.")                                           \
  X(slots, "VCOLL_SLOTS", int, 4, "1..64",                                                                                \
    "Slots of a ReduceScatterV ring between two nodes.")                                                                  \
  X(partials, "VCOLL_PARTIALS", text, "same", "same|fp32",                                                                \
    "Type of the partial sums of 16-bit floats between nodes.")                                                           \
  X(hop, "VCOLL_HOP", text, "push", "pull|push",                                                                          \
    "AllGatherV inside a node on the host fabric: ranks pull what agents announce, or agents push to all windows.")       \
  X(spin, "VCOLL_SPIN", int, -1, "-1..1000000",                                                                           \
    "Polls before a waiting thread starts to yield. -1: by the number of local ranks and cores.")                         \
  X(yield, "VCOLL_YIELD", int, -1, "-1..1000000",                                                                         \
    "Yields before a waiting thread sleeps on a futex. -1: by the number of local ranks and cores.")                      \
  X(stagingBytes, "VCOLL_STAGING_BYTES", int, 4194304, "64K..1G",                                                         \
    "Staging memory of a rank for calls on private buffers, allocated at init.")                                          \
  X(directBytes, "VCOLL_DIRECT_BYTES", int, -1, "-1..64G",                                                                \
    "AllGatherV on private buffers reads the peers' memory directly from this total on, if one node holds all ranks "     \
    "and the system allows it; else it goes through staging memory. -1: 48K where each rank has a core, else never.")     \
  X(publishVerify, "VCOLL_PUBLISH_VERIFY", int, 0, "0|1",                                                                 \
    "1: a checksum goes with every published item, and every reader checks its copy.")                                    \
  X(publishStripe, "VCOLL_PUBLISH_STRIPE", int, 0, "0|1",                                                                 \
    "1: rails with nothing to publish carry chunks of heavy items of the others. vcollPublishStreamDestroy is then "      \
    "collective.")                                                                                                        \
  X(commId, "VCOLL_COMM_ID", text, "", "host:port or [ipv6]:port",                                                        \
    "Rendezvous address of vcollCommInitFromEnv: where rank 0 listens. Default: from the launcher's variables.")          \
  X(socketIfname, "VCOLL_SOCKET_IFNAME", text, "", "prefix list, ^exclude, =exact",                                       \
    "Network interfaces to use, in the syntax of NCCL_SOCKET_IFNAME. Default: all but loopback and docker, virbr, veth.") \
  X(socketFamily, "VCOLL_SOCKET_FAMILY", text, "", "AF_INET|AF_INET6",                                                    \
    "Address family to use. Default: both, IPv4 first.")                                                                  \
  X(faultDelayMs, "VCOLL_FAULT_CALL_DELAY_MS", int, 0, "0..60000",                                                        \
    "For tests: each rank sleeps a random time up to this before each collective.")
// clang-format on

// The values, parsed once per process at the first use.
struct Params {
#define VCOLL_PARAM_int int64_t
#define VCOLL_PARAM_text std::string
#define X(field, name, kind, dflt, allowed, doc) VCOLL_PARAM_##kind field = dflt;
  VCOLL_PARAMS(X)
#undef X
};

// Reads the environment; an empty variable counts as unset. A bad value is an error that names the variable, the value
// and what is allowed; its default stands in.
Status readParams(Params* params);
// The process's parameters; on a bad value *status (may be null) is set and the default stands in. The first call also
// logs unknownVariables().
const Params& params(Status* status = nullptr);
// One warning for each VCOLL_* variable of the environment that is not in the table, with the nearest name that is.
std::vector<std::string> unknownVariables();

struct ParamInfo {
  const char* name;
  std::string defaultValue;
  const char* allowed;
  const char* doc;
};
const ParamInfo* paramTable(size_t* count);

// "64K", "1.5M", "123": binary multiples. False if the text is not a size.
bool parseSize(std::string_view text, int64_t* value);

}  // namespace vcoll
