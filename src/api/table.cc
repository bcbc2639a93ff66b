// SPDX-License-Identifier: Apache-2.0
#include "vcoll/vcoll.h"

extern "C" const vcollApiTable_t* vcollGetApiTable(int minVersion) {
  static const vcollApiTable_t kTable = {
      sizeof(vcollApiTable_t),
      VCOLL_VERSION_CODE,
      vcollGetVersion,
      vcollGetErrorString,
      vcollGetLastError,
      vcollGetUniqueId,
      vcollCommInitRank,
      vcollCommInitRankConfig,
      vcollCommInitFromEnv,
      vcollCommSplit,
      vcollCommFinalize,
      vcollCommDestroy,
      vcollCommAbort,
      vcollCommGetAsyncError,
      vcollCommCount,
      vcollCommUserRank,
      vcollCommNodeCount,
      vcollCommRankNode,
      vcollCommRailCount,
      vcollMemAlloc,
      vcollMemFree,
      vcollWindowRegister,
      vcollWindowDeregister,
      vcollWindowQuery,
      vcollHostStreamCreate,
      vcollHostStreamSynchronize,
      vcollHostStreamQuery,
      vcollHostStreamDestroy,
      vcollAllGatherV,
      vcollReduceScatterV,
      vcollPlanCreate,
      vcollPlanDestroy,
      vcollPlanGetInfo,
      vcollPlanAllGatherV,
      vcollPlanReduceScatterV,
  };
  return minVersion <= VCOLL_VERSION_CODE ? &kTable : nullptr;
}
