// SPDX-License-Identifier: Apache-2.0
// The ranks that train together: communicators of our own, and small exchanges between all ranks.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <vcoll/vcoll.hpp>
#include <vector>

namespace vmuon {

[[noreturn]] void fail(vcollResult_t code, const std::string& text);

class Cluster {
 public:
  // [collective] Splits comm, so that the caller's own calls on it never mix with ours.
  explicit Cluster(vcollComm_t comm);
  // [collective] Once, before gather() and column() are used. hsdp: every node holds a copy of the parameters; nodes
  // must then have equally many ranks.
  void arrange(bool hsdp);

  int rank() const { return rank_; }
  int size() const { return world_.size(); }
  int nodes() const { return nodes_; }
  int node() const { return nodeOf_[static_cast<size_t>(rank_)]; }
  int localRank() const { return localOf_[static_cast<size_t>(rank_)]; }
  const std::vector<int>& nodeOf() const { return nodeOf_; }
  const std::vector<int>& localOf() const { return localOf_; }
  bool replicated() const { return bool(column_); }

  const vcoll::Comm& world() const { return world_; }
  // Ranks that share one copy of the parameters: a node's, or all. Apart from world(), so that another thread may use
  // it.
  const vcoll::Comm& gather() const { return gather_; }
  // Ranks of the same place on all nodes, in the order of nodes. Only where replicated.
  const vcoll::Comm& column() const { return column_; }

  // The rank that holds, among the ranks I gather with, the copy of what `owner` owns: the owner, or its leader here.
  int leader(int owner) const { return replicated() ? localOf_[static_cast<size_t>(owner)] : owner; }
  int gatherRank() const { return replicated() ? localRank() : rank_; }

  // Whether a communicator is in error, which it stays.
  bool failed() const;

  // [collective] Everybody's value, by rank.
  template <typename T>
  std::vector<T> exchange(const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<size_t>(size()));
    exchangeBytes(&mine, sizeof(T), all.data());
    return all;
  }
  // [collective] The same for equally long arrays, one after the other.
  template <typename T>
  std::vector<T> exchangeArray(const std::vector<T>& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(mine.size() * static_cast<size_t>(size()));
    exchangeBytes(mine.data(), mine.size() * sizeof(T), all.data());
    return all;
  }
  // [collective] Returns when all ranks have called it.
  void barrier() { exchange(char{0}); }
  // [collective] vcollMismatch on every rank, naming what and two ranks, unless all digests are equal.
  void agree(uint64_t digest, std::string_view what);
  // [collective] If any rank passes a text, throws it on all ranks: that of the lowest such rank, which is named.
  void agreeNoError(vcollResult_t code, const std::string& text);

 private:
  void exchangeBytes(const void* mine, size_t bytes, void* all);

  vcoll::Comm world_;
  vcoll::Comm gather_;
  vcoll::Comm column_;
  int rank_ = 0;
  int nodes_ = 1;
  std::vector<int> nodeOf_;
  std::vector<int> localOf_;
};

}  // namespace vmuon
