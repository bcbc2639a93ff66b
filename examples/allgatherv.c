/* SPDX-License-Identifier: Apache-2.0
 * Every rank contributes rank + 1 numbers; every rank gets them all. README.md here says how to build and start it. */
#include <stdio.h>
#include <stdlib.h>
#include <vcoll/vcoll.h>

static void check(vcollResult_t result, vcollComm_t comm) {
  if (result == vcollSuccess) return;
  fprintf(stderr, "%s: %s\n", vcollGetErrorString(result), vcollGetLastError(comm));
  exit(1);
}

int main(void) {
  vcollComm_t comm = NULL;
  int rank, size;
  check(vcollCommInitFromEnv(&comm), NULL); /* rank and size from the launcher's variables */
  check(vcollCommUserRank(comm, &rank), comm);
  check(vcollCommCount(comm, &size), comm);

  const size_t mine = (size_t)rank + 1, total = (size_t)size * ((size_t)size + 1) / 2;
  size_t* counts = malloc((size_t)size * sizeof *counts);
  int32_t *send = malloc(mine * sizeof *send), *recv = malloc(total * sizeof *recv);
  for (int r = 0; r < size; r++) counts[r] = (size_t)r + 1;
  for (size_t i = 0; i < mine; i++) send[i] = 10 * rank + (int32_t)i;

  check(vcollAllGatherV(send, mine, recv, counts, NULL, vcollInt32, comm, NULL), comm);

  printf("rank %d of %d:", rank, size);
  for (size_t i = 0; i < total; i++) printf(" %d", recv[i]);
  printf("\n");
  free(recv), free(send), free(counts);
  check(vcollCommFinalize(comm), comm);
  check(vcollCommDestroy(comm), NULL);
  return 0;
}
