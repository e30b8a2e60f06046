// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/shadow.hpp"

#include <iterator>

namespace fake_cuda {
namespace {

// Two kernels that are handed the same address may both read it. A copy, a matmul or a message says what it does, and a
// kernel that works beside it may do the opposite.
bool excludes(Access a, Access b) { return a != b || a == Access::write; }

}  // namespace

void Shadow::split(std::size_t offset) {
  const auto next = pieces_.upper_bound(offset);
  const auto piece = std::prev(next);
  if (piece->first != offset)
    pieces_.emplace_hint(next, offset, piece->second);
}

void Shadow::touch(const std::shared_ptr<const Actor>& actor, std::size_t offset, std::size_t bytes, Access access) {
  split(offset);
  split(offset + bytes);
  const auto first = pieces_.find(offset), end = pieces_.find(offset + bytes);
  for (auto piece = first; piece != end; ++piece) {
    History& history = piece->second;
    for (const Touch& before : history)
      if (excludes(before.access, access) && !actor->comes_after(*before.actor))
        tell_race({*before.actor, *actor, before.access, access, this, piece->first});
    // What comes after this access comes after those that this one comes after.
    std::erase_if(history, [&](const Touch& before) {
      return access == Access::write || (before.access == access && actor->comes_after(*before.actor));
    });
    history.push_back({actor, access});
  }
  if (access == Access::write)  // one piece again
    pieces_.erase(std::next(first), end);
}

}  // namespace fake_cuda
