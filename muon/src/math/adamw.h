// SPDX-License-Identifier: Apache-2.0
// AdamW for parameters that are not matrices, on any range of their elements.
#pragma once

#include <vmuon/vmuon.h>
#include <cstdint>

namespace vmuon {

// Elements [begin, end) of the arrays. `step` counts this parameter's updates from 1, for the bias correction. The
// learning rate and weight decay are the group's adam... fields, unscaled. Moments are zero before the first step.
void adamWUpdate(const vmuonGroup_t& group, int64_t step, const float* grad, float gradScale, float* firstMoment,
                 float* secondMoment, float* master, int64_t begin, int64_t end);

}  // namespace vmuon
