// SPDX-License-Identifier: Apache-2.0
// The command line of publish_stream_perf.
#pragma once

#include <string>
#include <vector>

#include "perf/options.h"
#include "perf/publish_models.h"

namespace vcoll::perf {

enum class PublishPeer { kPerOwner, kCoalesced };
inline constexpr PublishPeer kPublishPeers[] = {PublishPeer::kPerOwner, PublishPeer::kCoalesced};
const char* publishPeerName(PublishPeer peer);

// How the updates of the timeline are simulated.
enum class Compute {
  kSleep,   // the rank's thread is in the update, its core is free: as with a device that it waits for
  kSpin,    // the rank's thread and core are in the update
  kDevice,  // updates go on by themselves, also while the rank is inside a call
};
const char* computeName(Compute compute);

struct PublishRunOptions {
  std::vector<const PublishModel*> models;
  double scale = 0;  // 0: each model to kDefaultBytes
  bool ready = true;
  bool timeline = true;
  Compute compute = Compute::kSleep;
  double gapUs = -1;  // mean over items; < 0: as long as the transfer takes
  int copies = 1;
  bool verify = false;
  int iterations = 15;
  int warmup = 1;
  int check = 1;
  std::string jsonPath;
  int timeoutSeconds = 0;
  std::vector<PublishPeer> peers;
};

inline constexpr double kDefaultBytes = 64.0 * (1 << 20);

ParseResult parsePublishOptions(int argc, const char* const* argv, bool haveMpi, PublishRunOptions* options);

}  // namespace vcoll::perf
