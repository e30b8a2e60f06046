// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <queue>

#include "io/text/bpe.hpp"

namespace espalier {
namespace {

constexpr std::size_t longest_scan = 32;  // tokens; a heap is faster beyond

// Looks at all pairs for each merge.
std::size_t merge_by_scan(TokenId* tokens, std::size_t size, const MergeTable& merges) {
  MergeTable::Merge pairs[longest_scan];
  for (std::size_t i = 0; i + 1 < size; ++i)
    pairs[i] = merges.find(tokens[i], tokens[i + 1]);
  while (size > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < size; ++i)
      if (pairs[i].rank < pairs[best].rank)
        best = i;
    if (pairs[best].rank == MergeTable::no_rank)
      break;
    tokens[best] = pairs[best].merged;
    std::copy(tokens + best + 2, tokens + size, tokens + best + 1);
    if (best + 2 < size)
      std::copy(pairs + best + 2, pairs + size - 1, pairs + best + 1);
    --size;
    if (best > 0)
      pairs[best - 1] = merges.find(tokens[best - 1], tokens[best]);
    if (best + 1 < size)
      pairs[best] = merges.find(tokens[best], tokens[best + 1]);
  }
  return size;
}

struct MergeCandidate {
  std::uint32_t rank;
  std::uint32_t position;  // of the left token
  TokenId merged;
  bool operator>(const MergeCandidate& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

// Candidates wait in a heap; one whose pair has changed since is passed over.
std::size_t merge_by_heap(TokenId* tokens, std::size_t size, const MergeTable& merges) {
  constexpr std::uint32_t none = 0xFFFFFFFF;
  std::vector<std::uint32_t> next(size);
  std::vector<std::uint32_t> previous(size);
  std::priority_queue<MergeCandidate, std::vector<MergeCandidate>, std::greater<>> queue;
  const auto add = [&](std::uint32_t left) {
    if (left == none || next[left] == none)
      return;
    if (const MergeTable::Merge merge = merges.find(tokens[left], tokens[next[left]]);
        merge.rank != MergeTable::no_rank)
      queue.push({merge.rank, left, merge.merged});
  };
  for (std::size_t i = 0; i < size; ++i) {
    previous[i] = i == 0 ? none : static_cast<std::uint32_t>(i - 1);
    next[i] = i + 1 == size ? none : static_cast<std::uint32_t>(i + 1);
  }
  for (std::uint32_t i = 0; i < size; ++i)
    add(i);
  while (!queue.empty()) {
    const MergeCandidate top = queue.top();
    queue.pop();
    const std::uint32_t left = top.position;
    if (tokens[left] < 0 || next[left] == none)
      continue;
    const std::uint32_t right = next[left];
    if (const MergeTable::Merge now = merges.find(tokens[left], tokens[right]);
        now.rank != top.rank || now.merged != top.merged)
      continue;
    tokens[left] = top.merged;
    tokens[right] = -1;
    next[left] = next[right];
    if (next[right] != none)
      previous[next[right]] = left;
    add(previous[left]);
    add(left);
  }
  return static_cast<std::size_t>(std::remove(tokens, tokens + size, -1) - tokens);
}

}  // namespace

void merge_tokens(std::vector<TokenId>& tokens, std::size_t first, const MergeTable& merges) {
  const std::size_t size = tokens.size() - first;
  const std::size_t left = size <= longest_scan ? merge_by_scan(tokens.data() + first, size, merges)
                                                : merge_by_heap(tokens.data() + first, size, merges);
  tokens.resize(first + left);
}

}  // namespace espalier
