// SPDX-License-Identifier: Apache-2.0
// Checkpoints: one safetensors file per save, written by all owners at once at the places that everybody computes
// alike.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "runtime/optimizer.h"
#include "runtime/safetensors.h"

namespace vmuon {
namespace {

constexpr const char* kLatest = "latest";  // names the newest complete file

class File {
 public:
  File(const std::string& path, int flags) : path_(path), fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (fd_ < 0) fail(vcollSystemError, fmt::format("open({}): {}", path, std::strerror(errno)));
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }
  void sync() const {
    if (fsync(fd_) != 0) fail(vcollSystemError, fmt::format("fsync({}): {}", path_, std::strerror(errno)));
  }

 private:
  std::string path_;
  int fd_;
};

void renameFile(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    fail(vcollSystemError, fmt::format("rename({}, {}): {}", from, to, std::strerror(errno)));
  }
}

// The file that `latest` names, or the path itself if it is a file.
std::string findCheckpoint(const std::string& path) {
  if (std::filesystem::is_regular_file(path)) return path;
  std::ifstream latest(path + "/" + kLatest);
  std::string name;
  if (!std::getline(latest, name)) {
    fail(vcollInvalidArgument, fmt::format("directory = '{}': there is no complete checkpoint in it", path));
  }
  return path + "/" + name;
}

// What fails on this rank only must fail on all, or the others would wait.
template <typename Action>
void together(Cluster& cluster, const Action& action) {
  vcollResult_t code = vcollSuccess;
  std::string text;
  try {
    action();
  } catch (const vcoll::Error& error) {
    code = error.code();
    text = error.what();
  } catch (const std::exception& error) {
    code = vcollSystemError;
    text = error.what();
  }
  cluster.agreeNoError(code, text);
}

}  // namespace

// One tensor of the file.
struct Optimizer::Saved {
  enum class Field { kMaster, kMomentum, kSecond, kSteps };
  Tensor tensor;
  int32_t param;
  Field field;
};

std::vector<Optimizer::Saved> Optimizer::savedTensors() const {
  std::vector<Saved> list;
  for (int32_t p = 0; p < model_.params.size(); ++p) {
    const Param& param = model_.params[p];
    if (param.isAlias(p)) continue;
    const std::string& name = param.spec.name;
    const std::vector<uint64_t>& shape = param.spec.shape;
    const auto add = [&](const char* what, std::vector<uint64_t> dims, Saved::Field field) {
      list.push_back({{fmt::format("optimizer.{}.{}", what, name), std::move(dims)}, p, field});
    };
    list.push_back({{name, shape}, p, Saved::Field::kMaster});
    if (param.spec.frozen) continue;
    if (settings_.config.line == vmuonLineAdamW || param.spec.kind == vmuonElementwise) {
      add("exp_avg", shape, Saved::Field::kMomentum);
      add("exp_avg_sq", shape, Saved::Field::kSecond);
    } else {
      add("momentum", shape, Saved::Field::kMomentum);
      if (model_.groups[static_cast<size_t>(param.spec.group)].matrixOptimizer == vmuonOptNorMuon) {
        add("second_moment", std::vector<uint64_t>(shape.begin(), shape.end() - 1), Saved::Field::kSecond);
      }
    }
    add("steps", {1}, Saved::Field::kSteps);
  }
  std::set<std::string> names;
  for (const Saved& saved : list) {
    if (!names.insert(saved.tensor.name).second) {
      fail(vcollInvalidArgument,
           fmt::format("a parameter has the name of a tensor of the state: '{}'", saved.tensor.name));
    }
  }
  return list;
}

// The part of a tensor that a piece holds: values from element *first on. Null if none.
float* Optimizer::savedPart(const Saved& saved, Owned& owned, uint64_t* first, uint64_t* count) {
  const Piece& piece = model_.piece(owned.piece);
  *first = piece.offset;
  *count = piece.elements;
  switch (saved.field) {
    case Saved::Field::kMaster:
      return owned.master.data();
    case Saved::Field::kMomentum:
      return owned.momentum.data();
    case Saved::Field::kSecond:
      if (owned.second.size() != piece.elements) *first = piece.offset / piece.blocks.front().cols;
      *count = owned.second.size();
      return owned.second.data();
    case Saved::Field::kSteps:
      break;
  }
  return nullptr;
}

void Optimizer::save(const std::string& directory) {
  requireOpen(true);
  newValues();
  const std::vector<Saved> list = savedTensors();
  std::vector<Tensor> tensors;
  std::string ema;  // parameters whose momentum is an average and not a sum, one per line
  for (const Saved& saved : list) {
    tensors.push_back(saved.tensor);
    const ParamSpec& spec = model_.params[saved.param].spec;
    if (saved.field == Saved::Field::kMomentum && model_.groups[static_cast<size_t>(spec.group)].emaMomentum) {
      ema += spec.name + "\n";
    }
  }
  const TensorFile file =
      describeTensors(tensors, {{"format", "vmuon 1"}, {"step", std::to_string(stats_.step)}, {"ema_momentum", ema}});
  const std::string name = fmt::format("step-{:010}.safetensors", stats_.step);
  const std::string path = directory + "/" + name;
  const std::string part = path + ".part";
  together(cluster_, [&] {
    if (cluster_.rank() != 0) return;
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (error) fail(vcollSystemError, fmt::format("creating directory '{}': {}", directory, error.message()));
    const File out(part, O_WRONLY | O_CREAT | O_TRUNC);
    writeAt(out.fd(), part, 0, file.header.data(), file.header.size());
    if (ftruncate(out.fd(), static_cast<off_t>(file.bytes)) != 0) {
      fail(vcollSystemError, fmt::format("{} bytes for {}: {}", file.bytes, part, std::strerror(errno)));
    }
  });
  together(cluster_, [&] {
    const File out(part, O_WRONLY);
    for (size_t i = 0; i < list.size(); ++i) {
      const auto [firstPiece, lastPiece] = model_.table.piecesOf[static_cast<size_t>(list[i].param)];
      for (int p = firstPiece; p < lastPiece; ++p) {
        Owned* owned = ownedOf(p);
        if (!owned) continue;
        if (list[i].field == Saved::Field::kSteps) {
          const auto steps = static_cast<float>(owned->steps);
          if (p == firstPiece) writeAt(out.fd(), part, file.offsets[i], &steps, sizeof steps);
          continue;
        }
        uint64_t first = 0, count = 0;
        const float* values = savedPart(list[i], *owned, &first, &count);
        writeAt(out.fd(), part, file.offsets[i] + first * sizeof(float), values, count * sizeof(float));
      }
    }
    out.sync();
  });
  together(cluster_, [&] {
    if (cluster_.rank() != 0) return;
    renameFile(part, path);
    const std::string pointer = directory + "/" + kLatest;
    {
      const File out(pointer + ".part", O_WRONLY | O_CREAT | O_TRUNC);
      const std::string line = name + "\n";
      writeAt(out.fd(), pointer, 0, line.data(), line.size());
      out.sync();
    }
    renameFile(pointer + ".part", pointer);
    File(directory, O_RDONLY | O_DIRECTORY).sync();
  });
}

void Optimizer::load(const std::string& directory) {
  requireOpen(true);
  newValues();
  together(cluster_, [&] {
    const std::vector<Saved> list = savedTensors();
    std::vector<Tensor> tensors;
    for (const Saved& saved : list) tensors.push_back(saved.tensor);
    const std::string path = findCheckpoint(directory);
    const File in(path, O_RDONLY);
    const TensorFile file = openTensors(in.fd(), path, tensors);
    if (!file.metadata.count("step")) fail(vcollInvalidArgument, fmt::format("{}: its step is missing", path));
    const std::string ema = "\n" + (file.metadata.count("ema_momentum") ? file.metadata.at("ema_momentum") : "");
    std::vector<float> copy;
    for (size_t i = 0; i < list.size(); ++i) {
      const ParamSpec& spec = model_.params[list[i].param].spec;
      const vmuonGroup_t& group = model_.groups[static_cast<size_t>(spec.group)];
      const auto [firstPiece, lastPiece] = model_.table.piecesOf[static_cast<size_t>(list[i].param)];
      for (int p = firstPiece; p < lastPiece; ++p) {
        Owned* owned = ownedOf(p);
        if (owned && list[i].field == Saved::Field::kSteps) {
          float steps = 0;
          readAt(in.fd(), path, file.offsets[i], &steps, sizeof steps);
          owned->steps = static_cast<uint64_t>(steps);
        } else if (owned) {
          uint64_t first = 0, count = 0;
          float* values = savedPart(list[i], *owned, &first, &count);
          readAt(in.fd(), path, file.offsets[i] + first * sizeof(float), values, count * sizeof(float));
          if (list[i].field == Saved::Field::kMomentum && !usesAdam(model_.piece(p))) {
            const bool fileEma = ema.find("\n" + spec.name + "\n") != std::string::npos;
            const double factor = momentumConversion(fileEma, group.emaMomentum != 0, group.momentum);
            if (fileEma != (group.emaMomentum != 0)) {
              for (float& m : owned->momentum) m = static_cast<float>(m * factor);
            }
          }
        }
        // Every copy is refreshed here, an owner's and a leader's alike.
        if (list[i].field == Saved::Field::kMaster && params_->copies().at(p)) {
          const Piece& piece = model_.piece(p);
          copy.resize(std::max<size_t>(copy.size(), piece.elements));
          readAt(in.fd(), path, file.offsets[i] + piece.offset * sizeof(float), copy.data(),
                 piece.elements * sizeof(float));
          storeCopy(p, copy.data());
        }
      }
    }
    stats_.step = std::stoull(file.metadata.at("step"));
  });
}

}  // namespace vmuon
