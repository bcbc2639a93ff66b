// SPDX-License-Identifier: Apache-2.0
// A wire: the network between nodes as the host fabric sees it. The table of functions is the plug-in interface (tcp is
// built in, verbs is opened at run time); plain C so that a third party can add one without our headers' C++.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VCOLL_WIRE_VERSION 1

/* What a wire may call back. All are thread safe and never block. */
typedef struct {
  void* context;
  /* Address of [offset, offset + bytes) of this rank's window, or NULL if that is not inside a registered window. */
  void* (*resolve)(void* context, uint32_t window, uint64_t offset, uint64_t bytes);
  /* The bytes of all puts that precede it on its connection are visible: add to this rank's counter. */
  void (*signal)(void* context, uint32_t counter, uint64_t add);
  /* The connection to peer is lost, or the peer broke the protocol. Called once per peer at most. */
  void (*lost)(void* context, int peer, const char* why);
  /* A local resource that a lane may wait for became free (room to put, flushed). */
  void (*wake)(void* context);
} vcollWireHost_v1;

typedef struct vcollWireComm vcollWireComm; /* one communicator's use of a wire; opaque */

#define VCOLL_WIRE_ADDRESS_BYTES 256

typedef struct {
  uint32_t version; /* VCOLL_WIRE_VERSION */
  const char* name;
  /* NULL if the wire can be used here; else why not. */
  const char* (*unusable)(void);
  /* nonce: equal on all ranks of the communicator. address: filled with what peers need to reach this rank.
   * 0 or an errno. error: at least 512 bytes of text. */
  int (*open)(const vcollWireHost_v1* host, const uint64_t nonce[2], int rank, int nranks,
              unsigned char address[VCOLL_WIRE_ADDRESS_BYTES], vcollWireComm** comm, char* error);
  /* addresses: nranks x VCOLL_WIRE_ADDRESS_BYTES, kept by the caller for the life of comm. Connects to each of peers
   * (those already connected are skipped) and waits until the peers' side is up too; every listed peer lists this rank
   * in its own connect of the same round. *cancelled turns non-zero to give up. */
  int (*connect)(vcollWireComm* comm, const unsigned char* addresses, const int* peers, int npeers, int64_t timeoutMs,
                 const volatile int* cancelled, char* error);
  /* For wires that register memory: called for each window before its first use. */
  int (*windowAdd)(vcollWireComm* comm, uint32_t window, void* base, uint64_t bytes, char* error);
  void (*windowRemove)(vcollWireComm* comm, uint32_t window);
  /* Room for at least one more put to peer? Never blocks. One thread at a time per comm calls ready/put/signal/flushed.
   */
  int (*ready)(vcollWireComm* comm, int peer);
  /* bytes > 0. Lands at (window, offset) of peer, then adds `add` to its counter. source must stay unchanged until
   * flushed. Puts and signals to one peer take effect in order. Never blocks. */
  void (*put)(vcollWireComm* comm, int peer, const void* source, uint64_t bytes, uint32_t window, uint64_t offset,
              uint32_t counter, uint64_t add);
  void (*signal)(vcollWireComm* comm, int peer, uint32_t counter, uint64_t add);
  /* All puts so far have left their source buffers. */
  int (*flushed)(vcollWireComm* comm);
  /* Peers see an orderly end, not a loss. Puts already made are still delivered when `graceful`, else dropped: no
   * source is read after this returns. Does not wait for peers. */
  void (*close)(vcollWireComm* comm, int graceful);
  /* NULL, or both: a thread inside a call, which waits without sleeping, serves the wire itself. Between attend(1) and
   * attend(0) it calls poll often, and the wire may leave its own thread asleep. poll never blocks; non-zero if
   * anything happened. The same thread as for put. */
  void (*attend)(vcollWireComm* comm, int on);
  int (*poll)(vcollWireComm* comm);
} vcollWire_v1;

/* A plug-in exports this under the name "vcollWirePlugin_v1". */
typedef const vcollWire_v1* (*vcollWirePlugin_v1_t)(void);

#ifdef __cplusplus
}
#endif
