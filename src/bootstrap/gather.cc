// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/gather.h"

#include <utility>

#include "bootstrap/packing.h"

namespace vcoll {

std::string rankList(const std::vector<int>& ranks) {
  constexpr size_t kShown = 16;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size() && i < kShown; ++i) text += formatText("{}{}", i == 0 ? "" : ", ", ranks[i]);
  if (ranks.size() > kShown) text += formatText(" and {} more", ranks.size() - kShown);
  return text;
}

const std::string& Gather::name() const {
  static const auto* const none = new std::string;
  for (const auto& entry : entries_) {
    if (entry) return entry->name;
  }
  return *none;
}

Status Gather::add(int rank, uint64_t sequence, std::string name, std::vector<std::byte> blob) {
  if (rank < 0 || static_cast<size_t>(rank) >= entries_.size()) {
    return makeError(vcollInternalError, "a contribution of rank {} of {}", rank, entries_.size());
  }
  if (sequence != sequence_ || has(rank)) {
    return makeError(vcollInternalError, "rank {} contributes{} to exchange {} while exchange {} is under way", rank,
                     has(rank) ? " twice" : "", sequence, sequence_);
  }
  bytes_ += blob.size();
  if (bytes_ > kMaxBytes) {
    return makeError(vcollInvalidUsage, "exchange {} ({}) carries more than {} bytes", sequence, name, kMaxBytes);
  }
  entries_[static_cast<size_t>(rank)] = Entry{std::move(name), std::move(blob)};
  ++count_;
  return {};
}

Status Gather::mismatch() const {
  size_t first = entries_.size();
  for (size_t rank = 0; rank < entries_.size(); ++rank) {
    if (!entries_[rank]) continue;
    if (first == entries_.size()) first = rank;
    if (entries_[rank]->name == entries_[first]->name) continue;
    return makeError(vcollMismatch, "exchange {}: rank {} is in {}, rank {} is in {}", sequence_, first,
                     entries_[first]->name, rank, entries_[rank]->name);
  }
  return {};
}

std::vector<int> Gather::missing() const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < entries_.size(); ++rank) {
    if (!entries_[rank]) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

SharedBytes Gather::take() {
  Packer packer;
  packer.reserve(static_cast<size_t>(bytes_) + (entries_.size() + 1) * sizeof(uint64_t));
  packer.value(sequence_);
  for (auto& entry : entries_) {
    packer.blob(entry->blob.data(), entry->blob.size());
    entry.reset();
  }
  ++sequence_;
  count_ = 0;
  bytes_ = 0;
  return std::make_shared<const std::vector<std::byte>>(packer.take());
}

bool unpackAll(const std::vector<std::byte>& frame, int size, std::vector<std::vector<std::byte>>* all) {
  Unpacker reader(frame);
  uint64_t sequence = 0;
  if (!reader.value(&sequence)) return false;
  all->assign(static_cast<size_t>(size), {});
  for (auto& blob : *all) {
    if (!reader.blob(&blob)) return false;
  }
  return reader.atEnd();
}

uint64_t sequenceOf(const std::vector<std::byte>& frame) {
  uint64_t sequence = 0;
  return Unpacker(frame).value(&sequence) ? sequence : 0;
}

}  // namespace vcoll
