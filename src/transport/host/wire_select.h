// SPDX-License-Identifier: Apache-2.0
// Which wire the host fabric uses: tcp is built in, any other NAME is the plug-in libvcoll_NAME.so (wire.h).
#pragma once

#include <string>

#include "base/status.h"
#include "transport/host/wire.h"

namespace vcoll {

// name: VCOLL_WIRE. The choice and its reason are one INFO line. "auto" takes verbs where it is usable, else tcp; a
// wire named by the user that cannot be used is an error.
Status selectWire(const std::string& name, const vcollWire_v1** wire);

}  // namespace vcoll
