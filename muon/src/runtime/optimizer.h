// SPDX-License-Identifier: Apache-2.0
// The optimizer behind vmuon.h. Throws vcoll::Error; api.cc turns that into results.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "math/matrix_optimizer.h"
#include "runtime/grad_space.h"
#include "runtime/param_space.h"

namespace vmuon {

struct Settings {
  vmuonConfig_t config;  // its texts are below
  std::string coefficients;
  std::string costCache;
};

// What an owner keeps of one piece, all in fp32 and in the piece's order.
struct Owned {
  int piece = 0;
  std::vector<float> master;
  std::vector<float> grad;      // sum of the step's micro-batches
  std::vector<float> momentum;  // AdamW: first moment
  std::vector<float> second;    // AdamW: second moment; NorMuon: one value per row
  uint64_t steps = 0;           // updates done
};

class Optimizer {
 public:
  // [collective] wrong: what is wrong with this rank's settings; it is then thrown on all ranks.
  Optimizer(vcollComm_t comm, Settings settings, const std::string& wrong);

  int32_t addGroup(const vmuonGroup_t& group);
  int32_t addParam(const ParamSpec& spec);
  void open();
  const std::string& describe();
  int owner(int32_t param, uint64_t expert);

  void setParam(int32_t param, const float* values);
  void getParam(int32_t param, float* values);
  void setGroup(int32_t number, const vmuonGroup_t& group);

  void beginForward(int32_t layer);
  void endForward(int32_t layer);
  void beginBackward(int32_t layer);
  void endBackward(int32_t layer);
  const void* paramData(int32_t param);
  void* gradData(int32_t param);
  void step(vmuonStats_t* stats);

  void save(const std::string& directory);
  void load(const std::string& directory);

  bool communicationFailed() const { return cluster_.failed(); }
  // The first such failure; nothing works after it.
  void kill(vcollResult_t code, const std::string& text);
  std::string lastError;

 private:
  struct Saved;  // checkpoint.cc

  bool usesAdam(const Piece& piece) const;
  const Param& checkParam(int32_t param) const;
  int layerIndex(int32_t layer) const;
  void requireOpen(bool open) const;
  void measureCosts(MeasuredCosts* costs);
  void makeOwned();
  Owned* ownedOf(int piece);

  void shareTouched();
  bool gradientNorm();  // false: not finite somewhere
  void update(float gradScale);
  void updateOwned(Owned& owned, float gradScale);
  void gatherAndOrthogonalize(float gradScale);  // line B
  // Rounds fp32 values to the copy of a piece that this rank keeps, if it keeps one.
  void storeCopy(int piece, const float* values);
  void newValues();
  void fillStats(double stepTime);
  std::vector<Saved> savedTensors() const;
  float* savedPart(const Saved& saved, Owned& owned, uint64_t* first, uint64_t* count);

  Settings settings_;
  Cluster cluster_;
  Model model_;
  bool open_ = false;
  vcollResult_t dead_ = vcollSuccess;
  std::string deadText_;
  std::string description_;

  std::unique_ptr<NewtonSchulz> newtonSchulz_;
  std::vector<Owned> owned_;
  std::vector<int> index_;  // by piece: in owned_, or -1
  std::unique_ptr<ParamSpace> params_;
  std::unique_ptr<GradSpace> grads_;
  std::vector<uint8_t> touched_;  // by parameter: has a gradient this step
  std::vector<int> forward_;      // layers by index, in the order of this step's first forward
  std::vector<float> direction_;  // of the matrix being updated

  // Line B: what every rank orthogonalises.
  std::unique_ptr<vcoll::Memory> gatherMemory_;
  std::unique_ptr<vcoll::Window> gatherWindow_;
  std::vector<std::unique_ptr<vcoll::Plan>> gatherPlans_;  // by layer

  vmuonStats_t stats_ = VMUON_STATS_INITIALIZER;
};

}  // namespace vmuon
