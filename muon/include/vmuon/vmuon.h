/* SPDX-License-Identifier: Apache-2.0
 *
 * vmuon: an owner-aware Muon runtime over vcoll (C99). Every weight matrix has one owner rank in the whole cluster; the
 * owner keeps the fp32 master copy and the optimizer's state, and alone orthogonalises the matrix. Gradients reach it
 * by ReduceScatterV; its new weights reach everybody by AllGatherV, and the other nodes by a PublishStream.
 *
 * A TRAINER   creates an optimizer on a communicator, adds groups and parameters, opens it, sets the values, and then
 *             repeats: vmuonBeginForward/EndForward per layer, vmuonBeginBackward/EndBackward per layer, vmuonStep.
 * LAYERS      are the unit of communication: all parameters with the same layer number move together. Forward visits
 * the layers in any fixed order; backward usually the other way round. POINTERS    vmuonParamData and vmuonGradData are
 * valid between the Begin and the End of the parameter's layer only. ORDER       Calls marked [collective] are made by
 * all ranks in the same order with equal arguments. THREADS     One optimizer is used by one thread at a time. ERRORS
 * vcollResult_t, as in vcoll.h; the text is read with vmuonGetLastError. vcollInvalidArgument names the parameter, the
 * field and the value, and changes nothing. An error of communication ends the optimizer: all later calls return it,
 * vmuonDestroy still works. NUMERICS    Masters, momentum and moments are fp32. Compute copies have the parameter's
 * type, rounded to nearest even once by the owner; all copies of a parameter are equal bit for bit.
 */
#ifndef VMUON_H_
#define VMUON_H_

#include <stddef.h>
#include <stdint.h>
#include <vcoll/vcoll.h>

#if defined(__GNUC__)
#define VMUON_API __attribute__((visibility("default")))
#else
#define VMUON_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct vmuonOptimizer* vmuonOptimizer_t;

/* What a parameter is to the optimizer. */
typedef enum {
  vmuonMatrix = 0,      /* [rows, columns]: one orthogonalisation */
  vmuonExperts = 1,     /* [experts, rows, columns]: one per expert; each expert may have its own owner */
  vmuonFusedRows = 2,   /* [rows, columns]: blocks of rows (QKV, gate-up), one orthogonalisation each; see splits */
  vmuonElementwise = 3, /* any shape: AdamW */
  vmuonNumKinds = 4
} vmuonKind_t;

/* How training is arranged. Bytes per rank and step, P = bytes of all parameters, N = ranks that share a copy (muon.md
 * 6). */
typedef enum {
  vmuonZero2 = 0, /* parameters stay gathered from forward to backward: 2(N-1)/N P */
  vmuonZero3 = 1, /* and are gathered again for backward: 3(N-1)/N P */
  vmuonNumSharding = 2
} vmuonSharding_t;

/* Four ways of doing the same training, for comparison in one program. */
typedef enum {
  vmuonLineAdamW = 0,    /* A: AdamW for everything, state sharded */
  vmuonLineGather = 1,   /* B: shards; the momentum of every matrix is gathered and orthogonalised on every rank */
  vmuonLinePerOwner = 2, /* C: owners, one collective per owner */
  vmuonLineOwner = 3,    /* D: owners, one variable-length collective per layer */
  vmuonNumLines = 4
} vmuonLine_t;

/* Factor on the learning rate of a matrix of m rows (outputs) and n columns. */
typedef enum {
  vmuonScaleMatchAdamW = 0, /* 0.2 sqrt(max(m, n)) */
  vmuonScaleOriginal = 1,   /* sqrt(max(1, m / n)) */
  vmuonScaleSpectral = 2,   /* sqrt(m / n) */
  vmuonScaleNone = 3,
  vmuonNumScales = 4
} vmuonScale_t;

typedef enum { vmuonOptMuon = 0, vmuonOptNorMuon = 1, vmuonNumMatrixOptimizers = 2 } vmuonMatrixOptimizer_t;

#define VMUON_MAGIC 0x766d756fu

typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  int32_t line;             /* vmuonLine_t; default vmuonLineOwner */
  int32_t sharding;         /* vmuonSharding_t; default vmuonZero2 */
  int32_t hsdp;             /* 1: copies in every node, PublishStream between nodes; 0: one copy in the whole cluster */
  int32_t asyncPublish;     /* hsdp: 1: publishes run into the next forward; 0: vmuonStep waits for them */
  int32_t gradType;         /* vcollFloat32 (default) or vcollBfloat16: type in which gradients travel */
  int32_t balance;          /* 1: owners by measured time (default); 0: round robin, for comparison */
  double maxGradNorm;       /* clip the global norm of all gradients to this; 0: no clipping */
  double byteCap;           /* heaviest rank's bytes over the mean, at most; default 1.1 */
  uint64_t mergeElements;   /* matrices of fewer elements share their layer's unit; default 5,000,000 */
  const char* coefficients; /* Newton-Schulz set; NULL: "polar-express" */
  const char* costCache;    /* file of measured times; NULL: VMUON_COST_CACHE or none; "" : none */
} vmuonConfig_t;

#define VMUON_CONFIG_INITIALIZER                                                                                    \
  {                                                                                                                 \
    sizeof(vmuonConfig_t), VMUON_MAGIC, VCOLL_VERSION_CODE, vmuonLineOwner, vmuonZero2, 0, 1, vcollFloat32, 1, 0.0, \
        1.1, 5000000, NULL, NULL                                                                                    \
  }

/* Hyper-parameters. A group serves matrices and element-wise parameters alike; each uses its part. */
typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  double lr;               /* matrices; weight decay is decoupled and uses lr without the scale */
  double momentum;         /* in [0, 1) */
  double weightDecay;      /* matrices */
  int32_t nesterov;        /* 1 or 0 */
  int32_t emaMomentum;     /* 0: M = mu M + G; 1: M = mu M + (1 - mu) G */
  int32_t scale;           /* vmuonScale_t */
  int32_t matrixOptimizer; /* vmuonMatrixOptimizer_t */
  double beta2;            /* NorMuon: of the row moments */
  double adamLr;           /* element-wise */
  double adamBeta1;
  double adamBeta2;
  double adamEps;
  double adamWeightDecay;
} vmuonGroup_t;

#define VMUON_GROUP_INITIALIZER                                                                                       \
  {                                                                                                                   \
    sizeof(vmuonGroup_t), VMUON_MAGIC, VCOLL_VERSION_CODE, 0.02, 0.95, 0.0, 1, 0, vmuonScaleMatchAdamW, vmuonOptMuon, \
        0.95, 3e-4, 0.9, 0.95, 1e-8, 0.0                                                                              \
  }

#define VMUON_MAX_DIMS 8

typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  const char* name;   /* unique; copied */
  const char* tiedTo; /* NULL, or the name of the parameter that holds the storage; then nothing else is read */
  int32_t kind;       /* vmuonKind_t; never guessed: see vmuonSuggestKind */
  int32_t dtype;      /* of the compute copy: vcollBfloat16 or vcollFloat32 */
  int32_t layer;      /* 0, 1, ...: the layer that uses it */
  int32_t group;      /* from vmuonAddGroup */
  int32_t frozen;     /* 1: never updated, has no gradient */
  int32_t ndim;
  uint64_t shape[VMUON_MAX_DIMS];
  int32_t nsplits;        /* vmuonFusedRows: number of blocks */
  const uint64_t* splits; /* their rows; the sum is shape[0]; copied */
} vmuonParam_t;

#define VMUON_PARAM_INITIALIZER                                                                                        \
  {                                                                                                                    \
    sizeof(vmuonParam_t), VMUON_MAGIC, VCOLL_VERSION_CODE, NULL, NULL, vmuonMatrix, vcollBfloat16, 0, 0, 0, 0, {0}, 0, \
        NULL                                                                                                           \
  }

/* Of the last step, of this rank unless it says otherwise. Times in seconds, sizes in bytes. */
typedef struct {
  size_t size;
  uint64_t step;           /* steps done */
  int32_t skipped;         /* 1: a gradient was not finite somewhere, and no rank changed anything */
  int32_t fallbacks;       /* layers that used private copies because the order of layers changed */
  double gradNorm;         /* of all gradients together, before clipping; the same on every rank */
  double newtonSchulzTime; /* time in orthogonalisation */
  double stepTime;         /* whole vmuonStep */
  double gatherTime;       /* waiting for AllGatherV */
  double reduceTime;       /* waiting for ReduceScatterV */
  double publishWait;      /* waiting for other nodes' publishes */
  uint64_t newtonSchulz;   /* orthogonalisations done here */
  uint64_t gatherBytes;    /* received by AllGatherV */
  uint64_t reduceBytes;    /* sent by ReduceScatterV */
  uint64_t publishBytes;   /* pushed by this rank */
  uint64_t stateBytes;     /* masters, momentum and moments held here */
  uint64_t copyBytes;      /* windows and leader copies held here */
} vmuonStats_t;

#define VMUON_STATS_INITIALIZER \
  { sizeof(vmuonStats_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Text of the last failure; with NULL of the last vmuonCreate in this thread. */
VMUON_API const char* vmuonGetLastError(vmuonOptimizer_t optimizer);

/* comm must outlive the optimizer and carry no other calls while one of its own is running. config may be NULL. */
VMUON_API vcollResult_t vmuonCreate(vmuonOptimizer_t* optimizer, vcollComm_t comm, const vmuonConfig_t* config);
VMUON_API vcollResult_t vmuonDestroy(vmuonOptimizer_t optimizer);

/* Before vmuonOpen. group and param may be NULL; numbers count from 0. */
VMUON_API vcollResult_t vmuonAddGroup(vmuonOptimizer_t optimizer, const vmuonGroup_t* group, int32_t* number);
VMUON_API vcollResult_t vmuonAddParam(vmuonOptimizer_t optimizer, const vmuonParam_t* param, int32_t* number);
/* The usual rule, for trainers that want it: hidden 2-D weights are matrices; embeddings, head, norms, biases are not.
 */
VMUON_API vmuonKind_t vmuonSuggestKind(const char* name, int32_t ndim, const uint64_t* shape);
/* [collective] Chooses owners, allocates windows, agrees on both by digest. */
VMUON_API vcollResult_t vmuonOpen(vmuonOptimizer_t optimizer);
/* A table of parameters: kind, shape, group, unit and, once open, owner. The text lives until the next call. */
VMUON_API vcollResult_t vmuonDescribe(vmuonOptimizer_t optimizer, const char** text);
VMUON_API vcollResult_t vmuonOwner(vmuonOptimizer_t optimizer, int32_t param, uint64_t expert, int32_t* rank);

/* The whole tensor in fp32, the same on every rank: the owners keep it as their master, everybody else rounds a copy.
 * vmuonGetParam is [collective] and gives the masters back. */
VMUON_API vcollResult_t vmuonSetParam(vmuonOptimizer_t optimizer, int32_t param, const float* values);
VMUON_API vcollResult_t vmuonGetParam(vmuonOptimizer_t optimizer, int32_t param, float* values);
/* New hyper-parameters from the next step on; the same on every rank. */
VMUON_API vcollResult_t vmuonSetGroup(vmuonOptimizer_t optimizer, int32_t number, const vmuonGroup_t* group);

/* [collective] After Begin the layer's parameters may be read; Begin also starts fetching the layer that came next last
 * time. */
VMUON_API vcollResult_t vmuonBeginForward(vmuonOptimizer_t optimizer, int32_t layer);
VMUON_API vcollResult_t vmuonEndForward(vmuonOptimizer_t optimizer, int32_t layer);
/* [collective] After Begin the layer's gradients are zero and may be added to; End sends them on their way. Gradients
 * of several micro-batches add up until vmuonStep; each is divided by the number of ranks. */
VMUON_API vcollResult_t vmuonBeginBackward(vmuonOptimizer_t optimizer, int32_t layer);
VMUON_API vcollResult_t vmuonEndBackward(vmuonOptimizer_t optimizer, int32_t layer);
VMUON_API vcollResult_t vmuonParamData(vmuonOptimizer_t optimizer, int32_t param, const void** data);
VMUON_API vcollResult_t vmuonGradData(vmuonOptimizer_t optimizer, int32_t param, void** data);
/* [collective] Clips, updates and sends out everything that got gradients; a layer without any since the last step
 * keeps its values. stats may be NULL. */
VMUON_API vcollResult_t vmuonStep(vmuonOptimizer_t optimizer, vmuonStats_t* stats);

/* [collective] Full tensors by name as safetensors files under the directory, written by owners; the directory's
 * earlier checkpoint stays until the new one is complete. Load accepts any number of ranks, sharding and line that has
 * the same parameters and state. */
VMUON_API vcollResult_t vmuonSave(vmuonOptimizer_t optimizer, const char* directory);
VMUON_API vcollResult_t vmuonLoad(vmuonOptimizer_t optimizer, const char* directory);

#ifdef __cplusplus
}
#endif
#endif
