// SPDX-License-Identifier: Apache-2.0
#include "transport/host/wire_select.h"

#include <dlfcn.h>

#include "base/log.h"
#include "transport/host/tcp_wire.h"

namespace vcoll {

namespace {

// The plug-in's table; empty `why` on success. Plug-ins stay loaded: their code may be on some stack.
const vcollWire_v1* openPlugin(const std::string& name, std::string* why) {
  const std::string file = "libvcoll_" + name + ".so";
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* text = dlerror();
    *why = text != nullptr ? text : "cannot open " + file;
    return nullptr;
  }
  const auto entry = reinterpret_cast<vcollWirePlugin_v1_t>(dlsym(handle, "vcollWirePlugin_v1"));
  const vcollWire_v1* wire = entry != nullptr ? entry() : nullptr;
  if (wire == nullptr || wire->version != VCOLL_WIRE_VERSION) {
    *why = file + " offers no vcollWirePlugin_v1 table";
    return nullptr;
  }
  const char* unusable = wire->unusable();
  if (unusable == nullptr) return wire;
  *why = unusable;
  return nullptr;
}

}  // namespace

Status selectWire(const std::string& name, const vcollWire_v1** wire) {
  if (name == "tcp") {
    *wire = tcpWire();
    logInfo("wire tcp: asked for by VCOLL_WIRE");
    return {};
  }
  const bool automatic = name == "auto";
  std::string why;
  *wire = openPlugin(automatic ? "verbs" : name, &why);
  if (*wire != nullptr) {
    logInfo("wire {}: {}", (*wire)->name, automatic ? "the fastest usable" : "asked for by VCOLL_WIRE");
    return {};
  }
  if (!automatic) return makeError(vcollUnsupported, "VCOLL_WIRE={}: {}", name, why);
  *wire = tcpWire();
  logInfo("wire tcp: verbs is not usable ({})", why);
  return {};
}

}  // namespace vcoll
