/* SPDX-License-Identifier: Apache-2.0
 *
 * vcoll: variable-length collectives for two-level clusters. The only public header of libvcoll (C99).
 *
 * OWNERSHIP   Every handle made by a vcoll...Create/Init/Alloc/Register call is freed by its
 *             Destroy/Free/Deregister twin and by nothing else. The library keeps no pointer that a
 *             caller passed once a call (blocking) or its stream work (asynchronous) has ended: count,
 *             displacement and segment arrays are copied before the call returns, buffers are not.
 *             Strings returned by the library belong to it.
 * THREADS     Different communicators may be used by different threads at the same time. One
 *             communicator is used by one thread at a time (several threads may take turns).
 *             vcollCommAbort, vcollCommGetAsyncError and vcollGetLastError may be called from any
 *             thread at any time while the handle lives. Several ranks may live in one process, each
 *             driven by a thread of its own. After fork() the child must not call vcoll; it gets
 *             vcollInvalidUsage.
 * ORDER       All ranks of a communicator make the same collective calls in the same order, with equal
 *             counts, segments, types, ops, windows and window offsets. Calls marked [collective] take part
 *             in that order; "call #N" in a message counts them from 1. What differs inside a node, or
 *             when a plan, window or new shape of counts is first used, is vcollMismatch; VCOLL_CHECK=1
 *             finds every difference over all nodes, before data moves.
 * STREAMS     With a NULL stream a call returns when its result is complete. With a host stream
 *             (vcollHostStreamCreate) it returns after checking its arguments and the work is done in
 *             stream order by the library; errors of the work are found with vcollHostStreamSynchronize
 *             or vcollCommGetAsyncError. Work of one communicator put on several streams runs in the order
 *             of the calls.
 * IN PLACE    AllGatherV: sendbuf == recvbuf + displs[rank] elements. ReduceScatterV: recvbuf == sendbuf +
 *             (sum of recvcounts before rank) elements. Any other overlap of the two is undefined.
 *             Window calls: AllGatherV is always in place; ReduceScatterV is when both windows and both
 *             offsets are equal. Except in place a send buffer is never written.
 * ERRORS      Every call returns a vcollResult_t; the text of the last failure in this thread or on a
 *             communicator is read with vcollGetLastError. vcollInvalidArgument names the argument and
 *             its value, is found before anything is sent, and leaves the communicator usable. Every
 *             other failure of a collective puts the communicator in error on every rank: later calls on
 *             it return the same error at once, what its buffers hold is undefined; vcollCommAbort and
 *             vcollCommDestroy still return.
 * NUMERICS    Integer sums and products wrap (two's complement); avg of integers divides the wrapped sum and
 *             truncates toward zero. min and max
 *             propagate NaN from whichever rank holds it; the sign of a zero result of min/max of -0 and
 *             +0 is unspecified. float16 and bfloat16 are reduced in fp32 inside a node and rounded once
 *             (to nearest even) per hop between nodes; VCOLL_PARTIALS=fp32 carries fp32 between nodes and
 *             rounds once. The order of a reduction is fixed by the plan: the same segments, path and node
 *             layout give the same bits in every run, whatever the timing, and each segment's bits do not
 *             depend on the other segments.
 * WIDTHS      Counts, offsets and sizes are 64-bit everywhere (size_t on the 64-bit targets supported).
 */
#ifndef VCOLL_H_
#define VCOLL_H_

#include <stddef.h>
#include <stdint.h>

#define VCOLL_MAJOR 0
#define VCOLL_MINOR 1
#define VCOLL_PATCH 0
#define VCOLL_VERSION_CODE (VCOLL_MAJOR * 10000 + VCOLL_MINOR * 100 + VCOLL_PATCH)

#if defined(__GNUC__)
#define VCOLL_API __attribute__((visibility("default")))
#else
#define VCOLL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What every result code means. New codes are added at the end. */
typedef enum {
  vcollSuccess = 0,
  vcollSystemError = 1,     /* the operating system refused something; the text names it and what was wanted */
  vcollInternalError = 2,   /* a broken promise inside vcoll: please report it */
  vcollInvalidArgument = 3, /* an argument is wrong; nothing was sent, the communicator stays usable */
  vcollInvalidUsage = 4,    /* a call that is not legal here (order, state, fork) */
  vcollRemoteError = 5,     /* a peer was lost or reported a failure; the text names it */
  vcollInProgress = 6,      /* work has not finished yet */
  vcollTimeout = 7,         /* a bounded wait ran out; the text names call, queue, chunk and peer */
  vcollMismatch = 8,        /* ranks disagree; the text names the first differing field and both values */
  vcollAborted = 9,         /* the communicator was aborted, here or on another rank */
  vcollUnsupported = 10,    /* not offered for this type, fabric or build */
  vcollNumResults = 11
} vcollResult_t;

typedef enum {
  vcollInt8 = 0,
  vcollUint8 = 1,
  vcollInt32 = 2,
  vcollUint32 = 3,
  vcollInt64 = 4,
  vcollUint64 = 5,
  vcollFloat16 = 6,
  vcollFloat32 = 7,
  vcollFloat64 = 8,
  vcollBfloat16 = 9,
  vcollFloat8e4m3 = 10, /* moved by AllGatherV; a reduction of it is vcollUnsupported */
  vcollFloat8e5m2 = 11, /* likewise */
  vcollNumTypes = 12
} vcollDataType_t;

typedef enum { vcollSum = 0, vcollProd = 1, vcollMax = 2, vcollMin = 3, vcollAvg = 4, vcollNumOps = 5 } vcollRedOp_t;

typedef struct vcollComm* vcollComm_t;
typedef struct vcollPlan* vcollPlan_t;
typedef struct vcollWindow* vcollWindow_t;
typedef struct vcollPublishStream* vcollPublishStream_t;
/* A cudaStream_t on the cuda fabric; on the host fabric a queue made by vcollHostStreamCreate, or NULL. */
typedef struct vcollStream* vcollStream_t;

#define VCOLL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[VCOLL_UNIQUE_ID_BYTES];
} vcollUniqueId;

/* Structs that cross the ABI start with their size and a magic number set by the initializer. A caller
 * built against another version of this header has another size: fields it does not know take their defaults. */
#define VCOLL_MAGIC 0x76636f6cu
#define VCOLL_UNDEF_INT INT32_MIN

typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  int32_t timeoutMs;  /* bound of every wait; default VCOLL_TIMEOUT_MS */
  int32_t check;      /* 1: compare every call over all ranks; default VCOLL_CHECK */
  const char* name;   /* shown in messages; copied; default NULL */
  const char* hostId; /* as VCOLL_HOSTID, for this rank only; copied; default NULL */
} vcollConfig_t;

#define VCOLL_CONFIG_INITIALIZER \
  { sizeof(vcollConfig_t), VCOLL_MAGIC, VCOLL_VERSION_CODE, VCOLL_UNDEF_INT, VCOLL_UNDEF_INT, NULL, NULL }

/* One piece of a window that belongs to one rank. */
typedef struct {
  int32_t owner;    /* rank */
  int32_t reserved; /* must be 0 */
  uint64_t offset;  /* bytes, from the offset given to the call */
  uint64_t bytes;   /* may be 0 */
} vcollSegment_t;

typedef enum {
  vcollPathAuto = 0,
  vcollPathStar = 1,  /* the source node puts to every node in one hop */
  vcollPathChain = 2, /* node to node */
  vcollNumPaths = 3
} vcollPath_t;

typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  int32_t path;  /* vcollPath_t; default VCOLL_PATH, else by the cost model */
  int32_t lanes; /* default VCOLL_LANES */
  int64_t
      chunkBytes; /* default VCOLL_CHUNK_BYTES; a multiple of 16; 0: default. Long queues between nodes: up to 4 x */
} vcollPlanConfig_t;

#define VCOLL_PLAN_CONFIG_INITIALIZER \
  { sizeof(vcollPlanConfig_t), VCOLL_MAGIC, VCOLL_VERSION_CODE, VCOLL_UNDEF_INT, VCOLL_UNDEF_INT, 0 }

/* What a plan came to; for people and tests. */
typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  int32_t path; /* vcollPathStar or vcollPathChain */
  int32_t nodes;
  int32_t rails;
  int32_t lanes;
  int32_t even; /* 1: every rank owns the same number of bytes */
  int32_t reserved;
  uint64_t segments;
  uint64_t slices;
  uint64_t chunks; /* over all queues */
  uint64_t bytes;
  uint64_t digest;    /* equal on every rank */
  double predictedUs; /* by the cost model */
} vcollPlanInfo_t;

#define VCOLL_PLAN_INFO_INITIALIZER \
  { sizeof(vcollPlanInfo_t), VCOLL_MAGIC, VCOLL_VERSION_CODE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0 }

/* ---- library ---- */

/* Version of the library at run time, as VCOLL_VERSION_CODE. version must not be NULL. */
VCOLL_API vcollResult_t vcollGetVersion(int* version);
/* A short constant text for a code; never NULL. */
VCOLL_API const char* vcollGetErrorString(vcollResult_t result);
/* The text of comm's error if it is in error, else of the last failure in the calling thread ("" if none).
 * comm may be NULL. Valid until the next vcoll call of this thread. */
VCOLL_API const char* vcollGetLastError(vcollComm_t comm);

/* ---- communicators ---- */

/* Makes an id for one communicator and listens for its ranks in the calling process, which must live until all
 * ranks have joined. The bytes are passed to the other ranks by any means. An id serves one init. */
VCOLL_API vcollResult_t vcollGetUniqueId(vcollUniqueId* id);
/* [collective] Joins rank (0..nranks-1) of nranks. Bounded by VCOLL_TIMEOUT_MS. */
VCOLL_API vcollResult_t vcollCommInitRank(vcollComm_t* comm, int nranks, vcollUniqueId id, int rank);
/* [collective] The same with a config; config may be NULL. */
VCOLL_API vcollResult_t vcollCommInitRankConfig(vcollComm_t* comm, int nranks, vcollUniqueId id, int rank,
                                                const vcollConfig_t* config);
/* [collective] Rank, size and rendezvous address from the launcher's environment: torchrun, Slurm, Open MPI, PMIx
 * (docs/environment.md lists the variables). Without a launcher: a communicator of one rank. */
VCOLL_API vcollResult_t vcollCommInitFromEnv(vcollComm_t* comm);
/* [collective] Ranks of equal color form a new communicator, ordered by key, then rank. color < 0: takes part, gets
 * *newcomm = NULL. config may be NULL. */
VCOLL_API vcollResult_t vcollCommSplit(vcollComm_t comm, int color, int key, vcollComm_t* newcomm,
                                       const vcollConfig_t* config);
/* [collective] Ends all work and waits until every rank came here; only Destroy may follow. */
VCOLL_API vcollResult_t vcollCommFinalize(vcollComm_t comm);
/* Frees the communicator with its plans and windows. Waits for this rank's own unfinished stream work, which ends by
 * its time-out at the latest (vcollCommAbort first makes that immediate); otherwise it does not wait for peers. NULL is
 * fine. */
VCOLL_API vcollResult_t vcollCommDestroy(vcollComm_t comm);
/* Any thread: puts the communicator in error (vcollAborted) on every rank; running calls return. Idempotent. The handle
 * must still be destroyed. */
VCOLL_API vcollResult_t vcollCommAbort(vcollComm_t comm);
/* Any thread: *asyncError = vcollSuccess, or the error the communicator is in. */
VCOLL_API vcollResult_t vcollCommGetAsyncError(vcollComm_t comm, vcollResult_t* asyncError);
VCOLL_API vcollResult_t vcollCommCount(vcollComm_t comm, int* count);
VCOLL_API vcollResult_t vcollCommUserRank(vcollComm_t comm, int* rank);
VCOLL_API vcollResult_t vcollCommNodeCount(vcollComm_t comm, int* nodes);
/* node and local rank (0..) of any rank. */
VCOLL_API vcollResult_t vcollCommRankNode(vcollComm_t comm, int rank, int* node, int* localRank);
VCOLL_API vcollResult_t vcollCommRailCount(vcollComm_t comm, int* rails);

/* ---- memory ---- */

/* bytes of zeroed, page-aligned memory that can become a window; pages are populated here, not in calls. */
VCOLL_API vcollResult_t vcollMemAlloc(void** ptr, size_t bytes);
/* Frees memory of vcollMemAlloc; windows on it must be deregistered first (vcollInvalidUsage). NULL is fine. */
VCOLL_API vcollResult_t vcollMemFree(void* ptr);
/* [collective] Makes [ptr, ptr + bytes), inside one vcollMemAlloc allocation and at any alignment, a window. bytes
 * must be equal on all ranks. */
VCOLL_API vcollResult_t vcollWindowRegister(vcollComm_t comm, void* ptr, size_t bytes, vcollWindow_t* window);
/* Local. No call on the window may be running. NULL is fine. */
VCOLL_API vcollResult_t vcollWindowDeregister(vcollComm_t comm, vcollWindow_t window);
/* Address and size of this rank's part of a window. ptr and bytes may be NULL. */
VCOLL_API vcollResult_t vcollWindowQuery(vcollWindow_t window, void** ptr, size_t* bytes);

/* ---- host streams ---- */

VCOLL_API vcollResult_t vcollHostStreamCreate(vcollStream_t* stream);
/* Waits until all work put on the stream has ended; the first error of that work since the last synchronize. */
VCOLL_API vcollResult_t vcollHostStreamSynchronize(vcollStream_t stream);
/* vcollInProgress while work remains; else as Synchronize. */
VCOLL_API vcollResult_t vcollHostStreamQuery(vcollStream_t stream);
/* Waits for the work, then frees. NULL is fine. */
VCOLL_API vcollResult_t vcollHostStreamDestroy(vcollStream_t stream);

/* ---- collectives on any memory ---- */

/* [collective] Rank r's recvcounts[r] elements arrive at recvbuf + displs[r] elements on every rank. recvcounts is
 * equal on all ranks; displs is local and may leave gaps or permute, never overlap; NULL: packed in rank order.
 * sendcount == recvcounts[rank]. Pointers may be NULL where their counts are 0. */
VCOLL_API vcollResult_t vcollAllGatherV(const void* sendbuf, size_t sendcount, void* recvbuf, const size_t* recvcounts,
                                        const size_t* displs, vcollDataType_t type, vcollComm_t comm,
                                        vcollStream_t stream);
/* [collective] sendbuf holds sum(recvcounts) elements, rank r's part after those of lower ranks; recvbuf gets the
 * recvcounts[rank] reduced elements of this rank. */
VCOLL_API vcollResult_t vcollReduceScatterV(const void* sendbuf, void* recvbuf, const size_t* recvcounts,
                                            vcollDataType_t type, vcollRedOp_t op, vcollComm_t comm,
                                            vcollStream_t stream);

/* ---- plans: frozen segment tables on windows, zero copy ---- */

/* [collective] segments is equal on all ranks, in any order, several per owner allowed, never overlapping; offset and
 * bytes are multiples of the size of type, which reductions use (vcollUint8 for plans that only move bytes). config may
 * be NULL. Plans end with their communicator at the latest. */
VCOLL_API vcollResult_t vcollPlanCreate(vcollComm_t comm, const vcollSegment_t* segments, size_t nsegments,
                                        vcollDataType_t type, const vcollPlanConfig_t* config, vcollPlan_t* plan);
/* Local. No call on the plan may be running. NULL is fine. */
VCOLL_API vcollResult_t vcollPlanDestroy(vcollPlan_t plan);
VCOLL_API vcollResult_t vcollPlanGetInfo(vcollPlan_t plan, vcollPlanInfo_t* info);
/* [collective] Every segment, at window offset + segment offset, reaches every rank from its owner. offset is equal on
 * all ranks. */
VCOLL_API vcollResult_t vcollPlanAllGatherV(vcollPlan_t plan, vcollWindow_t window, size_t offset,
                                            vcollStream_t stream);
/* [collective] Every segment of src (at srcOffset + segment offset on every rank) is reduced over all ranks into its
 * owner's dst window at dstOffset + segment offset. Both offsets are equal on all ranks. Other bytes of dst are not
 * touched. */
VCOLL_API vcollResult_t vcollPlanReduceScatterV(vcollPlan_t plan, vcollWindow_t src, size_t srcOffset,
                                                vcollWindow_t dst, size_t dstOffset, vcollRedOp_t op,
                                                vcollStream_t stream);

/* ---- PublishStream: versions of whole items, from their owners to the other nodes ----
 *
 * An item is a piece of a window with one owner. The owner's rail (its place among the ranks of its node) fixes who has
 * copies: the owner, and on every other node the rank that serves that rail, the leader (vcollPublishStreamGetLeader).
 * Step after step every owner pushes each of its items once, in any order, as soon as it is ready; every leader's copy,
 * at the same place of its window, then takes that version. It travels by itself: no rank need be inside a call. A
 * version is named by its step. Items of one owner arrive in the order of its pushes; items of different owners never
 * wait for each other.
 *
 * Every rank of the communicator, owner or reader, begins the same steps in the same order. With one copy the library
 * may overwrite a version once its reader has begun the next step and holds no lease on an item of that owner. With two
 * (config.copies) steps alternate between them, and a version stays until the step after the next is begun. A reader
 * that lags behind holds the others up only when they are as many steps ahead as there are copies (two on a chain: the
 * station before it keeps the next one).
 *
 * These calls are not [collective] but for Create: they take no part in the order of the communicator's calls, and run
 * beside them. Push, Wait, WaitAll, Test, Acquire, Release and GetVersion of one stream may be called by several
 * threads at once; Begin, End and Destroy by one, with no other call of that stream but Waits running. A failure puts
 * the communicator in error, and is then returned by every wait that cannot end; versions that are whole can still be
 * read (GetVersion). */

typedef struct {
  uint64_t id;      /* any number; unique in the stream */
  int32_t owner;    /* rank */
  int32_t reserved; /* must be 0 */
  uint64_t offset;  /* in the window */
  uint64_t bytes;   /* may be 0 */
} vcollPublishItem_t;

typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  int32_t path;        /* vcollPath_t; default VCOLL_PATH, else by the cost model */
  int32_t copies;      /* 1 or 2; default 1 */
  uint64_t copyStride; /* bytes from an item's first copy to its second; with 2 copies only */
  int64_t chunkBytes;  /* a multiple of 16; 0: VCOLL_CHUNK_BYTES, up to eight times as much for many bytes */
  int32_t verify;      /* 1: a checksum goes with every item, readers check it; default VCOLL_PUBLISH_VERIFY */
  int32_t reserved;    /* must be 0 */
} vcollPublishConfig_t;

#define VCOLL_PUBLISH_CONFIG_INITIALIZER \
  { sizeof(vcollPublishConfig_t), VCOLL_MAGIC, VCOLL_VERSION_CODE, VCOLL_UNDEF_INT, 1, 0, 0, VCOLL_UNDEF_INT, 0 }

#define VCOLL_NO_STEP UINT64_MAX /* no version; not a step */

/* [collective] Each rank describes the items it owns; what others own may be listed too, and must then be what their
 * owners say. The manifest is compared over all ranks: a difference is vcollMismatch everywhere; one that contradicts
 * itself (an id twice, items that overlap) is vcollInvalidArgument everywhere and leaves the communicator usable.
 * config is equal on all ranks and may be NULL. The window must stay registered; streams end with their communicator at
 * the latest. */
VCOLL_API vcollResult_t vcollPublishStreamCreate(vcollComm_t comm, vcollWindow_t window,
                                                 const vcollPublishItem_t* items, size_t nitems,
                                                 const vcollPublishConfig_t* config, vcollPublishStream_t* stream);
/* Begins step `step`, greater than the one before. Waits until the copies that it overwrites have been received and
 * passed on here; from then on this rank may write the items it owns. */
VCOLL_API vcollResult_t vcollPublishStreamBegin(vcollPublishStream_t stream, uint64_t step);
/* By the owner, between Begin and End: the item's bytes are final and are on their way once this work is done; they
 * must not change until Begin allows it. */
VCOLL_API vcollResult_t vcollPublishStreamPush(vcollPublishStream_t stream, uint64_t item, vcollStream_t hostStream);
/* Ends the step on this rank: no item it owns is missing (else vcollInvalidUsage names one). Does not wait. */
VCOLL_API vcollResult_t vcollPublishStreamEnd(vcollPublishStream_t stream, uint64_t step);
/* By the owner or a leader: done when this rank's copy holds exactly version `step` of the item, a step that this rank
 * has begun and not yet given up. */
VCOLL_API vcollResult_t vcollPublishStreamWait(vcollPublishStream_t stream, uint64_t item, uint64_t step,
                                               vcollStream_t hostStream);
/* Of all items that this rank has copies of. */
VCOLL_API vcollResult_t vcollPublishStreamWaitAll(vcollPublishStream_t stream, uint64_t step, vcollStream_t hostStream);
/* *ready = 1 if Wait would return at once. */
VCOLL_API vcollResult_t vcollPublishStreamTest(vcollPublishStream_t stream, uint64_t item, uint64_t step, int* ready);
/* As Wait, and takes a lease: the version stays as it is until Release, whatever steps are begun. ptr may be NULL;
 * *ptr is where the bytes are. Leases count. An owner's lease makes its own Begin fail (vcollInvalidUsage) where that
 * would give up the version. */
VCOLL_API vcollResult_t vcollPublishStreamAcquire(vcollPublishStream_t stream, uint64_t item, uint64_t step,
                                                  const void** ptr);
VCOLL_API vcollResult_t vcollPublishStreamRelease(vcollPublishStream_t stream, uint64_t item, uint64_t step);
/* Where version `step` of the item is, or is to be written by its owner: with two copies the place alternates. */
VCOLL_API vcollResult_t vcollPublishStreamAddress(vcollPublishStream_t stream, uint64_t item, uint64_t step,
                                                  void** ptr);
/* The newest whole version that this rank holds of the item, in *step and *ptr (may be NULL): VCOLL_NO_STEP and NULL if
 * there is none, because none came yet or the only copy was being overwritten when a failure stopped it. */
VCOLL_API vcollResult_t vcollPublishStreamGetVersion(vcollPublishStream_t stream, uint64_t item, uint64_t* step,
                                                     const void** ptr);
/* The rank that has the item's copy on a node. */
VCOLL_API vcollResult_t vcollPublishStreamGetLeader(vcollPublishStream_t stream, uint64_t item, int node, int* rank);
/* Waits until the steps begun here have been received and passed on (not after an error), then frees, whatever it
 * returns. NULL is fine. */
VCOLL_API vcollResult_t vcollPublishStreamDestroy(vcollPublishStream_t stream);

/* ---- for programs that dlopen ---- */

/* All calls above, in this order, fixed for ever; later versions append. */
typedef struct {
  size_t size; /* bytes of this table in the library that made it */
  int version; /* VCOLL_VERSION_CODE of that library */
  vcollResult_t (*getVersion)(int*);
  const char* (*getErrorString)(vcollResult_t);
  const char* (*getLastError)(vcollComm_t);
  vcollResult_t (*getUniqueId)(vcollUniqueId*);
  vcollResult_t (*commInitRank)(vcollComm_t*, int, vcollUniqueId, int);
  vcollResult_t (*commInitRankConfig)(vcollComm_t*, int, vcollUniqueId, int, const vcollConfig_t*);
  vcollResult_t (*commInitFromEnv)(vcollComm_t*);
  vcollResult_t (*commSplit)(vcollComm_t, int, int, vcollComm_t*, const vcollConfig_t*);
  vcollResult_t (*commFinalize)(vcollComm_t);
  vcollResult_t (*commDestroy)(vcollComm_t);
  vcollResult_t (*commAbort)(vcollComm_t);
  vcollResult_t (*commGetAsyncError)(vcollComm_t, vcollResult_t*);
  vcollResult_t (*commCount)(vcollComm_t, int*);
  vcollResult_t (*commUserRank)(vcollComm_t, int*);
  vcollResult_t (*commNodeCount)(vcollComm_t, int*);
  vcollResult_t (*commRankNode)(vcollComm_t, int, int*, int*);
  vcollResult_t (*commRailCount)(vcollComm_t, int*);
  vcollResult_t (*memAlloc)(void**, size_t);
  vcollResult_t (*memFree)(void*);
  vcollResult_t (*windowRegister)(vcollComm_t, void*, size_t, vcollWindow_t*);
  vcollResult_t (*windowDeregister)(vcollComm_t, vcollWindow_t);
  vcollResult_t (*windowQuery)(vcollWindow_t, void**, size_t*);
  vcollResult_t (*hostStreamCreate)(vcollStream_t*);
  vcollResult_t (*hostStreamSynchronize)(vcollStream_t);
  vcollResult_t (*hostStreamQuery)(vcollStream_t);
  vcollResult_t (*hostStreamDestroy)(vcollStream_t);
  vcollResult_t (*allGatherV)(const void*, size_t, void*, const size_t*, const size_t*, vcollDataType_t, vcollComm_t,
                              vcollStream_t);
  vcollResult_t (*reduceScatterV)(const void*, void*, const size_t*, vcollDataType_t, vcollRedOp_t, vcollComm_t,
                                  vcollStream_t);
  vcollResult_t (*planCreate)(vcollComm_t, const vcollSegment_t*, size_t, vcollDataType_t, const vcollPlanConfig_t*,
                              vcollPlan_t*);
  vcollResult_t (*planDestroy)(vcollPlan_t);
  vcollResult_t (*planGetInfo)(vcollPlan_t, vcollPlanInfo_t*);
  vcollResult_t (*planAllGatherV)(vcollPlan_t, vcollWindow_t, size_t, vcollStream_t);
  vcollResult_t (*planReduceScatterV)(vcollPlan_t, vcollWindow_t, size_t, vcollWindow_t, size_t, vcollRedOp_t,
                                      vcollStream_t);
  vcollResult_t (*publishStreamCreate)(vcollComm_t, vcollWindow_t, const vcollPublishItem_t*, size_t,
                                       const vcollPublishConfig_t*, vcollPublishStream_t*);
  vcollResult_t (*publishStreamBegin)(vcollPublishStream_t, uint64_t);
  vcollResult_t (*publishStreamPush)(vcollPublishStream_t, uint64_t, vcollStream_t);
  vcollResult_t (*publishStreamEnd)(vcollPublishStream_t, uint64_t);
  vcollResult_t (*publishStreamWait)(vcollPublishStream_t, uint64_t, uint64_t, vcollStream_t);
  vcollResult_t (*publishStreamWaitAll)(vcollPublishStream_t, uint64_t, vcollStream_t);
  vcollResult_t (*publishStreamTest)(vcollPublishStream_t, uint64_t, uint64_t, int*);
  vcollResult_t (*publishStreamAcquire)(vcollPublishStream_t, uint64_t, uint64_t, const void**);
  vcollResult_t (*publishStreamRelease)(vcollPublishStream_t, uint64_t, uint64_t);
  vcollResult_t (*publishStreamAddress)(vcollPublishStream_t, uint64_t, uint64_t, void**);
  vcollResult_t (*publishStreamGetVersion)(vcollPublishStream_t, uint64_t, uint64_t*, const void**);
  vcollResult_t (*publishStreamGetLeader)(vcollPublishStream_t, uint64_t, int, int*);
  vcollResult_t (*publishStreamDestroy)(vcollPublishStream_t);
} vcollApiTable_t;

/* The table, or NULL if the library is older than minVersion (a VCOLL_VERSION_CODE). */
VCOLL_API const vcollApiTable_t* vcollGetApiTable(int minVersion);

#ifdef __cplusplus
}
#endif
#endif /* VCOLL_H_ */
