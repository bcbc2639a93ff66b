/* SPDX-License-Identifier: Apache-2.0
 * A program that opens libvcoll at run time and reaches everything through vcollGetApiTable. The one argument is the
 * library's path. One rank: gathers from itself, then closes the library and lives on. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <vcoll/vcoll.h>

#define EXPECT(condition)                                            \
  do {                                                               \
    if (!(condition)) {                                              \
      fprintf(stderr, "FAILED line %d: %s\n", __LINE__, #condition); \
      return 1;                                                      \
    }                                                                \
  } while (0)

typedef const vcollApiTable_t* (*GetTable)(int);

static int gatherAlone(const vcollApiTable_t* api) {
  vcollComm_t comm = NULL;
  vcollUniqueId id;
  const char send[5] = "abcd";
  char recv[5] = "";
  const size_t counts[1] = {5};
  int size = 0;
  EXPECT(api->getUniqueId(&id) == vcollSuccess);
  EXPECT(api->commInitRank(&comm, 1, id, 0) == vcollSuccess);
  EXPECT(api->commCount(comm, &size) == vcollSuccess && size == 1);
  EXPECT(api->allGatherV(send, 5, recv, counts, NULL, vcollInt8, comm, NULL) == vcollSuccess);
  EXPECT(memcmp(send, recv, 5) == 0);
  EXPECT(api->commFinalize(comm) == vcollSuccess);
  EXPECT(api->commDestroy(comm) == vcollSuccess);
  return 0;
}

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  EXPECT(dlsym(RTLD_DEFAULT, "vcollGetVersion") == NULL);
  GetTable getTable = NULL;
  void* symbol = dlsym(library, "vcollGetApiTable");
  EXPECT(symbol != NULL);
  memcpy(&getTable, &symbol, sizeof getTable); /* ISO C has no cast from data to function pointers */

  const vcollApiTable_t* api = getTable(VCOLL_VERSION_CODE);
  EXPECT(api != NULL);
  EXPECT(getTable(0) == api);
  EXPECT(getTable(VCOLL_VERSION_CODE + 1) == NULL);
  EXPECT(api->size == sizeof *api);
  EXPECT(api->version == VCOLL_VERSION_CODE);
  /* Every entry is there: the table is its size and version, then pointers only. */
  for (size_t at = offsetof(vcollApiTable_t, getVersion); at < sizeof *api; at += sizeof(void*)) {
    void* entry = NULL;
    memcpy(&entry, (const char*)api + at, sizeof entry);
    EXPECT(entry != NULL);
  }
  int version = 0;
  EXPECT(api->getVersion(&version) == vcollSuccess && version == VCOLL_VERSION_CODE);
  EXPECT(api->getVersion(NULL) == vcollInvalidArgument);
  EXPECT(strlen(api->getErrorString(vcollTimeout)) > 0);
  EXPECT(gatherAlone(api) == 0);

  /* The library has a thread of its own, which must not lose its code here. */
  EXPECT(dlclose(library) == 0);
  usleep(100 * 1000);
  return 0;
}
