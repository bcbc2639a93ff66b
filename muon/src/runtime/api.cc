// SPDX-License-Identifier: Apache-2.0
// The C interface: checks what C can get wrong, and turns exceptions into results.
#include <fmt/format.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "runtime/optimizer.h"

struct vmuonOptimizer {
  vmuon::Optimizer impl;
};

namespace vmuon {
namespace {

thread_local std::string createError;

// A struct of the caller's, which may be older (shorter) or newer (longer) than ours: what it does not have keeps our
// default.
template <typename T>
T readStruct(const T* given, const T& defaults, const char* name) {
  if (!given) fail(vcollInvalidArgument, fmt::format("{} = NULL", name));
  if (given->magic != VMUON_MAGIC || given->size < offsetof(T, version) + sizeof given->version) {
    fail(vcollInvalidArgument, fmt::format("{} was not made with its initializer", name));
  }
  T read = defaults;
  std::memcpy(&read, given, std::min(given->size, sizeof(T)));
  read.size = sizeof(T);
  return read;
}

Settings readConfig(const vmuonConfig_t* given) {
  const vmuonConfig_t defaults = VMUON_CONFIG_INITIALIZER;
  Settings settings;
  settings.config = given ? readStruct(given, defaults, "config") : defaults;
  const vmuonConfig_t& c = settings.config;
  const auto choice = [](const char* field, int32_t value, int32_t count) {
    if (value < 0 || value >= count) {
      fail(vcollInvalidArgument, fmt::format("config->{} = {}: want 0 to {}", field, value, count - 1));
    }
  };
  choice("line", c.line, vmuonNumLines);
  choice("sharding", c.sharding, vmuonNumSharding);
  choice("hsdp", c.hsdp, 2);
  choice("asyncPublish", c.asyncPublish, 2);
  choice("balance", c.balance, 2);
  if (c.gradType != vcollFloat32 && c.gradType != vcollBfloat16) {
    fail(vcollInvalidArgument, fmt::format("config->gradType = {}: want vcollFloat32 or vcollBfloat16", c.gradType));
  }
  if (!(c.maxGradNorm >= 0 && c.maxGradNorm < 1e300)) {
    fail(vcollInvalidArgument, fmt::format("config->maxGradNorm = {}: want a number from 0", c.maxGradNorm));
  }
  if (!(c.byteCap == 0 || (c.byteCap >= 1 && c.byteCap < 1e300))) {
    fail(vcollInvalidArgument, fmt::format("config->byteCap = {}: want 0 or a number from 1", c.byteCap));
  }
  settings.coefficients = c.coefficients ? c.coefficients : kDefaultCoefficients;
  const char* environment = std::getenv("VMUON_COST_CACHE");
  settings.costCache = c.costCache ? c.costCache : environment ? environment : "";
  settings.config.coefficients = nullptr;
  settings.config.costCache = nullptr;
  return settings;
}

template <typename Action>
vcollResult_t guarded(std::string* text, Optimizer* optimizer, const Action& action) {
  try {
    action();
    return vcollSuccess;
  } catch (const vcoll::Error& error) {
    *text = error.what();
    if (optimizer && optimizer->communicationFailed()) optimizer->kill(error.code(), *text);
    return error.code();
  } catch (const std::invalid_argument& error) {
    *text = error.what();
    return vcollInvalidArgument;
  } catch (const std::bad_alloc&) {
    *text = "out of memory";
    if (optimizer) optimizer->kill(vcollSystemError, *text);
    return vcollSystemError;
  } catch (const std::exception& error) {
    *text = error.what();
    if (optimizer) optimizer->kill(vcollInternalError, *text);
    return vcollInternalError;
  }
}

template <typename Action>
vcollResult_t call(vmuonOptimizer_t optimizer, const Action& action) {
  if (!optimizer) {
    createError = "optimizer = NULL";
    return vcollInvalidArgument;
  }
  return guarded(&optimizer->impl.lastError, &optimizer->impl, [&] { action(optimizer->impl); });
}

void needPointer(const void* pointer, const char* name) {
  if (!pointer) fail(vcollInvalidArgument, fmt::format("{} = NULL", name));
}

std::string directoryText(const char* directory) {
  if (!directory || !*directory) fail(vcollInvalidArgument, "directory is NULL or empty");
  return directory;
}

ParamSpec readParam(const vmuonParam_t* given) {
  const vmuonParam_t defaults = VMUON_PARAM_INITIALIZER;
  const vmuonParam_t p = readStruct(given, defaults, "param");
  ParamSpec spec;
  spec.name = p.name ? p.name : "";
  spec.tiedTo = p.tiedTo ? p.tiedTo : "";
  spec.kind = p.kind;
  spec.dtype = p.dtype;
  spec.layer = p.layer;
  spec.group = p.group;
  spec.frozen = p.frozen != 0;
  if (p.ndim < 0 || p.ndim > VMUON_MAX_DIMS) {
    fail(vcollInvalidArgument, fmt::format("'{}': ndim = {}: want 1 to {}", spec.name, p.ndim, VMUON_MAX_DIMS));
  }
  spec.shape.assign(p.shape, p.shape + p.ndim);
  if (p.nsplits < 0 || (p.nsplits > 0 && !p.splits)) {
    fail(vcollInvalidArgument,
         fmt::format("'{}': nsplits = {}, splits = {}", spec.name, p.nsplits, p.splits ? "given" : "NULL"));
  }
  if (p.nsplits > 0) spec.splits.assign(p.splits, p.splits + p.nsplits);
  return spec;
}

}  // namespace
}  // namespace vmuon

using vmuon::call;
using vmuon::Optimizer;

extern "C" {

VMUON_API const char* vmuonGetLastError(vmuonOptimizer_t optimizer) {
  return optimizer ? optimizer->impl.lastError.c_str() : vmuon::createError.c_str();
}

VMUON_API vcollResult_t vmuonCreate(vmuonOptimizer_t* optimizer, vcollComm_t comm, const vmuonConfig_t* config) {
  return vmuon::guarded(&vmuon::createError, nullptr, [&] {
    vmuon::needPointer(optimizer, "optimizer");
    *optimizer = nullptr;
    vmuon::needPointer(comm, "comm");
    vmuon::Settings settings;
    std::string wrong;
    try {
      settings = vmuon::readConfig(config);
      vmuon::coefficientSet(settings.coefficients);
    } catch (const std::exception& error) {
      wrong = error.what();
    }
    *optimizer = new vmuonOptimizer{Optimizer(comm, settings, wrong)};
  });
}

VMUON_API vcollResult_t vmuonDestroy(vmuonOptimizer_t optimizer) {
  delete optimizer;
  return vcollSuccess;
}

VMUON_API vcollResult_t vmuonAddGroup(vmuonOptimizer_t optimizer, const vmuonGroup_t* group, int32_t* number) {
  return call(optimizer, [&](Optimizer& o) {
    const vmuonGroup_t defaults = VMUON_GROUP_INITIALIZER;
    const int32_t made = o.addGroup(vmuon::readStruct(group, defaults, "group"));
    if (number) *number = made;
  });
}

VMUON_API vcollResult_t vmuonSetGroup(vmuonOptimizer_t optimizer, int32_t number, const vmuonGroup_t* group) {
  return call(optimizer, [&](Optimizer& o) {
    const vmuonGroup_t defaults = VMUON_GROUP_INITIALIZER;
    o.setGroup(number, vmuon::readStruct(group, defaults, "group"));
  });
}

VMUON_API vcollResult_t vmuonAddParam(vmuonOptimizer_t optimizer, const vmuonParam_t* param, int32_t* number) {
  return call(optimizer, [&](Optimizer& o) {
    const int32_t made = o.addParam(vmuon::readParam(param));
    if (number) *number = made;
  });
}

VMUON_API vmuonKind_t vmuonSuggestKind(const char* name, int32_t ndim, const uint64_t* shape) {
  return vmuon::suggestKind(name, ndim, shape);
}

VMUON_API vcollResult_t vmuonOpen(vmuonOptimizer_t optimizer) {
  return call(optimizer, [](Optimizer& o) { o.open(); });
}

VMUON_API vcollResult_t vmuonDescribe(vmuonOptimizer_t optimizer, const char** text) {
  return call(optimizer, [&](Optimizer& o) {
    vmuon::needPointer(text, "text");
    *text = o.describe().c_str();
  });
}

VMUON_API vcollResult_t vmuonOwner(vmuonOptimizer_t optimizer, int32_t param, uint64_t expert, int32_t* rank) {
  return call(optimizer, [&](Optimizer& o) {
    vmuon::needPointer(rank, "rank");
    *rank = o.owner(param, expert);
  });
}

VMUON_API vcollResult_t vmuonSetParam(vmuonOptimizer_t optimizer, int32_t param, const float* values) {
  return call(optimizer, [&](Optimizer& o) { o.setParam(param, values); });
}

VMUON_API vcollResult_t vmuonGetParam(vmuonOptimizer_t optimizer, int32_t param, float* values) {
  return call(optimizer, [&](Optimizer& o) { o.getParam(param, values); });
}

VMUON_API vcollResult_t vmuonBeginForward(vmuonOptimizer_t optimizer, int32_t layer) {
  return call(optimizer, [&](Optimizer& o) { o.beginForward(layer); });
}

VMUON_API vcollResult_t vmuonEndForward(vmuonOptimizer_t optimizer, int32_t layer) {
  return call(optimizer, [&](Optimizer& o) { o.endForward(layer); });
}

VMUON_API vcollResult_t vmuonBeginBackward(vmuonOptimizer_t optimizer, int32_t layer) {
  return call(optimizer, [&](Optimizer& o) { o.beginBackward(layer); });
}

VMUON_API vcollResult_t vmuonEndBackward(vmuonOptimizer_t optimizer, int32_t layer) {
  return call(optimizer, [&](Optimizer& o) { o.endBackward(layer); });
}

VMUON_API vcollResult_t vmuonParamData(vmuonOptimizer_t optimizer, int32_t param, const void** data) {
  return call(optimizer, [&](Optimizer& o) {
    vmuon::needPointer(data, "data");
    *data = o.paramData(param);
  });
}

VMUON_API vcollResult_t vmuonGradData(vmuonOptimizer_t optimizer, int32_t param, void** data) {
  return call(optimizer, [&](Optimizer& o) {
    vmuon::needPointer(data, "data");
    *data = o.gradData(param);
  });
}

VMUON_API vcollResult_t vmuonStep(vmuonOptimizer_t optimizer, vmuonStats_t* stats) {
  return call(optimizer, [&](Optimizer& o) {
    vmuonStats_t all = VMUON_STATS_INITIALIZER;
    if (stats && stats->size < sizeof stats->size)
      vmuon::fail(vcollInvalidArgument, "stats was not made with its initializer");
    o.step(&all);
    if (!stats) return;
    const size_t size = stats->size;
    std::memcpy(stats, &all, std::min(size, sizeof all));
    stats->size = size;
  });
}

VMUON_API vcollResult_t vmuonSave(vmuonOptimizer_t optimizer, const char* directory) {
  return call(optimizer, [&](Optimizer& o) { o.save(vmuon::directoryText(directory)); });
}

VMUON_API vcollResult_t vmuonLoad(vmuonOptimizer_t optimizer, const char* directory) {
  return call(optimizer, [&](Optimizer& o) { o.load(vmuon::directoryText(directory)); });
}

}  // extern "C"
