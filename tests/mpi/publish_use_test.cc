// SPDX-License-Identifier: Apache-2.0
// PublishStream: bad arguments, calls out of order, ranks that disagree, bytes that change after the push.
#include <algorithm>
#include <cstring>

#include "harness.h"
#include "publish_steps.h"
#include "suites.h"

namespace suite {

namespace {

#define REJECTED(call, code, word)                                                                \
  do {                                                                                            \
    const vcollResult_t rejected = (call);                                                        \
    EXPECT(rejected == (code), "{} gave {}", #call, vcollGetErrorString(rejected));               \
    EXPECT(std::strstr(vcollGetLastError(nullptr), word) != nullptr, "no \"{}\" in \"{}\"", word, \
           vcollGetLastError(nullptr));                                                           \
  } while (false)

void badUse() {
  const WorldComm comm;
  Layout layout;
  for (int r = 0; r < worldSize; ++r) layout.add(r, 1000);
  layout.finish();
  Stream stream(comm.get(), layout);
  vcollPublishStream_t s = stream.get();
  const uint64_t own = stream.item(static_cast<size_t>(worldRank)).id;
  int ready = 0;
  REJECTED(vcollPublishStreamPush(s, own, nullptr), vcollInvalidUsage, "no step is begun");
  REJECTED(vcollPublishStreamWait(s, own, 1, nullptr), vcollInvalidUsage, "begun no step");
  REJECTED(vcollPublishStreamEnd(s, 1), vcollInvalidUsage, "no step is begun");
  REJECTED(vcollPublishStreamBegin(s, VCOLL_NO_STEP), vcollInvalidArgument, "VCOLL_NO_STEP");
  MUST(vcollPublishStreamBegin(s, 5));
  REJECTED(vcollPublishStreamBegin(s, 6), vcollInvalidUsage, "has not been ended");
  REJECTED(vcollPublishStreamPush(s, 77, nullptr), vcollInvalidArgument, "item = 77");
  REJECTED(vcollPublishStreamEnd(s, 5), vcollInvalidUsage, "was not pushed");
  REJECTED(vcollPublishStreamEnd(s, 4), vcollInvalidArgument, "step = 4");
  REJECTED(vcollPublishStreamWait(s, own, 6, nullptr), vcollInvalidUsage, "step = 6");
  REJECTED(vcollPublishStreamTest(s, own, 5, nullptr), vcollInvalidArgument, "ready");
  REJECTED(vcollPublishStreamRelease(s, own, 5), vcollInvalidUsage, "no lease");
  REJECTED(vcollPublishStreamPush(s, own, reinterpret_cast<vcollStream_t>(&ready)), vcollInvalidArgument, "hostStream");
  REJECTED(vcollPublishStreamBegin(nullptr, 6), vcollInvalidArgument, "not a live PublishStream");
  if (worldSize > 1) {
    const uint64_t other = stream.item(static_cast<size_t>((worldRank + 1) % worldSize)).id;
    REJECTED(vcollPublishStreamPush(s, other, nullptr), vcollInvalidArgument, "is owned by rank");
  }
  for (size_t i = 0; i < layout.items.size(); ++i) {
    if (std::find(stream.mine().begin(), stream.mine().end(), i) != stream.mine().end()) continue;
    REJECTED(vcollPublishStreamWait(s, stream.item(i).id, 5, nullptr), vcollInvalidArgument, "has no copy of it");
    break;
  }
  int leader = 0;
  REJECTED(vcollPublishStreamGetLeader(s, own, 99, &leader), vcollInvalidArgument, "node = 99");
  stream.push(static_cast<size_t>(worldRank), 5);
  REJECTED(vcollPublishStreamPush(s, own, nullptr), vcollInvalidUsage, "pushed already");
  MUST(vcollPublishStreamWaitAll(s, 5, nullptr));
  MUST(vcollPublishStreamEnd(s, 5));
  MUST(vcollPublishStreamAcquire(s, own, 5, nullptr));
  REJECTED(vcollPublishStreamBegin(s, 6), vcollInvalidUsage, "its owner, has a lease");
  MUST(vcollPublishStreamRelease(s, own, 5));
  REJECTED(vcollPublishStreamBegin(s, 5), vcollInvalidArgument, "does not grow");
  REJECTED(vcollPublishStreamBegin(s, 4), vcollInvalidArgument, "does not grow: the last one on this rank was 5");
  MUST(vcollPublishStreamBegin(s, 6));
  REJECTED(vcollPublishStreamWait(s, own, 5, nullptr), vcollInvalidUsage, "is over");
  for (const size_t i : ownItems(layout)) stream.push(i, 6);
  MUST(vcollPublishStreamEnd(s, 6));
  vcollPublishStream_t none = nullptr;
  MUST(vcollPublishStreamDestroy(none));
}

// Arguments of Create: found on the rank itself, or on all ranks alike; the communicator stays usable.
void badManifest() {
  const WorldComm comm;
  void* memory = nullptr;
  vcollWindow_t window = nullptr;
  MUST(vcollMemAlloc(&memory, 4096));
  MUST(vcollWindowRegister(comm.get(), memory, 4096, &window));
  vcollPublishStream_t stream = nullptr;
  const int last = worldSize - 1;
  const auto create = [&](std::vector<vcollPublishItem_t> items, const vcollPublishConfig_t* config = nullptr) {
    return vcollPublishStreamCreate(comm.get(), window, items.data(), items.size(), config, &stream);
  };
  REJECTED(create({{1, worldSize, 0, 0, 8}}), vcollInvalidArgument, "items[0].owner");
  REJECTED(create({{1, 0, 0, 0, 8}, {2, -1, 0, 0, 8}}), vcollInvalidArgument, "items[1].owner = -1");
  REJECTED(create({{1, 0, 3, 0, 8}}), vcollInvalidArgument, "reserved = 3");
  REJECTED(create({{1, 0, 0, 4090, 8}}), vcollInvalidArgument, "offset 4090 + bytes 8");
  REJECTED(create({{1, 0, 0, UINT64_MAX, 8}}), vcollInvalidArgument, "items[0]");
  REJECTED(create({{1, 0, 0, 0, 8}, {1, last, 0, 8, 8}}), vcollInvalidArgument, "id 1 occurs twice");
  REJECTED(create({{1, 0, 0, 0, 9}, {2, last, 0, 8, 8}}), vcollInvalidArgument, "overlaps");
  vcollPublishConfig_t config = VCOLL_PUBLISH_CONFIG_INITIALIZER;
  config.copies = 3;
  REJECTED(create({}, &config), vcollInvalidArgument, "copies = 3");
  config.copies = 2;
  REJECTED(create({}, &config), vcollInvalidArgument, "copyStride = 0");
  config.copyStride = 8;
  REJECTED(create({{1, 0, 0, 0, 16}}, &config), vcollInvalidArgument, "copyStride = 8");
  config.copyStride = 5000;
  REJECTED(create({}, &config), vcollInvalidArgument, "copyStride = 5000");
  config = VCOLL_PUBLISH_CONFIG_INITIALIZER;
  config.chunkBytes = 100;
  REJECTED(create({}, &config), vcollInvalidArgument, "chunkBytes = 100");
  config = VCOLL_PUBLISH_CONFIG_INITIALIZER;
  config.magic = 1;
  REJECTED(create({}, &config), vcollInvalidArgument, "magic");
  MUST(create({{1, 0, 0, 0, 8}}));
  REJECTED(vcollWindowDeregister(comm.get(), window), vcollInvalidUsage, "in use by a PublishStream");
  MUST(vcollPublishStreamDestroy(stream));
  MUST(create({}));  // nothing to publish: steps pass
  for (uint64_t step = 0; step < 3; ++step) {
    MUST(vcollPublishStreamBegin(stream, step));
    MUST(vcollPublishStreamWaitAll(stream, step, nullptr));
    MUST(vcollPublishStreamEnd(stream, step));
  }
  MUST(vcollPublishStreamDestroy(stream));
  MUST(vcollWindowDeregister(comm.get(), window));
  MUST(vcollMemFree(memory));
  expectUsable(comm.get());
}

// What all ranks must say alike.
void expectSame(vcollResult_t result, vcollResult_t wanted, const std::vector<std::string>& words) {
  const std::string text = vcollGetLastError(nullptr);
  EXPECT(result == wanted, "{}: {}", vcollGetErrorString(result), text);
  for (const std::string& word : words) EXPECT(text.find(word) != std::string::npos, "no \"{}\" in \"{}\"", word, text);
  const std::vector<std::string> all = gatherTexts(text);
  for (const std::string& other : all) EXPECT(other == all[0], "\"{}\" but rank 0 says \"{}\"", other, all[0]);
}

void disagreement() {
  if (worldSize < 2) return;
  const int last = worldSize - 1;
  const auto differing = [&](const std::vector<std::string>& words, std::vector<vcollPublishItem_t> items, int copies) {
    const WorldComm comm;
    void* memory = nullptr;
    vcollWindow_t window = nullptr;
    MUST(vcollMemAlloc(&memory, 4096));
    MUST(vcollWindowRegister(comm.get(), memory, 4096, &window));
    vcollPublishConfig_t config = VCOLL_PUBLISH_CONFIG_INITIALIZER;
    config.copies = copies;
    config.copyStride = copies == 2 ? 2048 : 0;
    vcollPublishStream_t stream = nullptr;
    expectSame(vcollPublishStreamCreate(comm.get(), window, items.data(), items.size(), &config, &stream),
               vcollMismatch, words);
    MPI_Barrier(MPI_COMM_WORLD);
    MUST(vcollWindowDeregister(comm.get(), window));
    MUST(vcollMemFree(memory));
  };
  const bool odd = worldRank == last;
  differing({"item 4", "bytes"}, {{4, 0, 0, 0, odd ? 24u : 16u}}, 1);
  differing({"item 4", "offset"}, {{4, 0, 0, odd ? 8u : 0u, 16}}, 1);
  differing({"item 9", "has not"},
            odd ? std::vector<vcollPublishItem_t>{{9, 0, 0, 0, 16}} : std::vector<vcollPublishItem_t>{}, 1);
  differing({"config->copies", "rank 0 has 1"}, {}, odd ? 2 : 1);

  // Steps: the reader has begun another one than the owner pushes. Found where the header arrives.
  int nodes = nodesOfLayout();
  if (nodes < 2) return;
  const WorldComm comm({3000, nullptr});
  Layout layout;
  layout.add(0, 5000);
  layout.finish();
  Stream stream(comm.get(), layout);
  stream.expectFailure();
  const uint64_t step = worldRank == 0 ? 7 : 5;
  if (worldRank == 0) {
    MUST(vcollPublishStreamBegin(stream.get(), step));
    stream.push(0, step);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (worldRank != 0) (void)vcollPublishStreamBegin(stream.get(), step);  // who is told of the failure first cannot
  vcollResult_t state = vcollSuccess;
  for (int i = 0; i < 1000 && state == vcollSuccess; ++i) {
    sleepMs(2);
    MUST(vcollCommGetAsyncError(comm.get(), &state));
  }
  EXPECT(state == vcollMismatch, "{}", vcollGetErrorString(state));
  const vcollResult_t result = vcollPublishStreamBegin(stream.get(), 100);
  expectSame(result, vcollMismatch, {"step", "has 7", "has 5"});
}

// An owner that changes its bytes after the push is found out.
void checksum() {
  if (nodesOfLayout() < 2) return;
  const WorldComm comm({5000, nullptr});
  Layout layout;
  layout.add(0, 300000);
  layout.finish();
  Stream stream(comm.get(), layout, configWith(VCOLL_UNDEF_INT, 0, 1));
  steps(stream, 1, 2, 9);
  stream.expectFailure();
  MPI_Barrier(MPI_COMM_WORLD);
  if (worldRank == 0) {
    MUST(vcollPublishStreamBegin(stream.get(), 20));
    stream.push(0, 20);
    stream.memory()[stream.item(0).offset + 12345] ^= 1;  // nobody has opened its copy yet
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (worldRank != 0) (void)vcollPublishStreamBegin(stream.get(), 20);
  vcollResult_t state = vcollSuccess;
  for (int i = 0; i < 2000 && state == vcollSuccess; ++i) {
    sleepMs(2);
    MUST(vcollCommGetAsyncError(comm.get(), &state));
  }
  EXPECT(state == vcollRemoteError, "{}", vcollGetErrorString(state));
  const vcollResult_t result = vcollPublishStreamBegin(stream.get(), 100);
  expectSame(result, vcollRemoteError, {"item 1000", "step 20", "checksum"});
}

}  // namespace

void publishUseSuite() {
  runCase("publish.bad_use", badUse);
  runCase("publish.bad_manifest", badManifest);
  runCase("publish.disagreement", disagreement);
  runCase("publish.checksum", checksum);
}

}  // namespace suite
