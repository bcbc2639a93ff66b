// SPDX-License-Identifier: Apache-2.0
#include "runtime/cluster.h"

#include <fmt/format.h>

#include <algorithm>

namespace vmuon {

void fail(vcollResult_t code, const std::string& text) { throw vcoll::Error(code, text); }

namespace {

vcoll::Comm splitComm(vcollComm_t comm, int color, int key) {
  vcollComm_t made = nullptr;
  vcoll::check(vcollCommSplit(comm, color, key, &made, nullptr), comm);
  return vcoll::Comm(made);
}

}  // namespace

Cluster::Cluster(vcollComm_t comm) {
  vcoll::check(vcollCommUserRank(comm, &rank_), comm);
  world_ = splitComm(comm, 0, rank_);
  nodes_ = world_.nodes();
  nodeOf_.resize(static_cast<size_t>(size()));
  localOf_.resize(static_cast<size_t>(size()));
  for (int r = 0; r < size(); ++r) {
    const auto index = static_cast<size_t>(r);
    vcoll::check(vcollCommRankNode(world_.native(), r, &nodeOf_[index], &localOf_[index]), world_.native());
  }
}

void Cluster::arrange(bool hsdp) {
  agree(hsdp ? 1 : 0, "config->hsdp");
  if (!hsdp || nodes_ == 1) {  // on one node the only copy is the node's
    gather_ = splitComm(world_.native(), 0, rank_);
    return;
  }
  std::vector<int> ranksOf(static_cast<size_t>(nodes_), 0);
  for (const int node : nodeOf_) ++ranksOf[static_cast<size_t>(node)];
  const auto [fewest, most] = std::minmax_element(ranksOf.begin(), ranksOf.end());
  if (*fewest != *most) {
    fail(vcollInvalidArgument,
         fmt::format(
             "config->hsdp = 1 needs nodes of equally many ranks: node {} has {}, node {} has {}; hsdp = 0 takes any",
             fewest - ranksOf.begin(), *fewest, most - ranksOf.begin(), *most));
  }
  gather_ = splitComm(world_.native(), node(), localRank());
  column_ = splitComm(world_.native(), localRank(), node());
}

bool Cluster::failed() const {
  for (const vcoll::Comm* comm : {&world_, &gather_, &column_}) {
    vcollResult_t error = vcollSuccess;
    if (*comm && (vcollCommGetAsyncError(comm->native(), &error) != vcollSuccess || error != vcollSuccess)) return true;
  }
  return false;
}

void Cluster::exchangeBytes(const void* mine, size_t bytes, void* all) {
  const std::vector<size_t> counts(static_cast<size_t>(size()), bytes);
  vcoll::check(vcollAllGatherV(mine, bytes, all, counts.data(), nullptr, vcollUint8, world_.native(), nullptr),
               world_.native());
}

void Cluster::agree(uint64_t digest, std::string_view what) {
  const std::vector<uint64_t> all = exchange(digest);
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r] != all[0]) {
      fail(vcollMismatch,
           fmt::format("{} differs between rank 0 ({:016x}) and rank {} ({:016x})", what, all[0], r, all[r]));
    }
  }
}

void Cluster::agreeNoError(vcollResult_t code, const std::string& text) {
  struct Report {
    int32_t code;
    char text[508];
  };
  Report mine{text.empty() ? 0 : int32_t{code}, {}};
  std::memcpy(mine.text, text.data(), std::min(text.size(), sizeof mine.text - 1));
  const std::vector<Report> all = exchange(mine);
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].code == 0) continue;
    fail(static_cast<vcollResult_t>(all[r].code),
         static_cast<int>(r) == rank_ ? text : fmt::format("rank {}: {}", r, all[r].text));
  }
}

}  // namespace vmuon
