// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/races.hpp"

#include <iterator>
#include <set>

#include "tests/support/fake_cuda/memory.hpp"
#include "tests/support/fake_cuda/report.hpp"

namespace fake_cuda {
namespace {

// What is done now, and by whom.
auto& acting = *new std::shared_ptr<const Actor>;

void note(const void* address, std::size_t bytes, Access access) {
  if (bytes == 0 || !acting)
    return;
  const DeviceRange range = allocation_at(reinterpret_cast<std::uint64_t>(address));
  if (range.shadow != nullptr && range.offset + bytes <= range.bytes)
    range.shadow->touch({acting, access}, range.offset, bytes);
}

std::string text_of(const Actor& actor) { return readable(actor.what) + " in " + actor.where; }

std::string verb_of(Access access) {
  return access == Access::read ? " reads" : access == Access::write ? " writes" : " is handed";
}

// Two kernels that are handed the same address may both read it. A copy, a matmul or a message says what it does, and a
// kernel that works beside it may do the opposite.
bool excludes(Access a, Access b) { return a != b || a == Access::write; }

// Of a pair of kernels or calls once.
void tell_race(const Touch& now, const Touch& before, const std::string& where) {
  static auto& told = *new std::set<std::string>;
  const std::string pair = before.actor->what + verb_of(before.access) + now.actor->what + verb_of(now.access);
  if (told.insert(pair).second)
    misuse("a race: " + text_of(*now.actor) + verb_of(now.access) + " " + where + ", which " + text_of(*before.actor) +
           verb_of(before.access) + ": nothing orders the two");
}

}  // namespace

bool ignores_waits() {
  static const bool ignores = setting("IGNORE_WAITS", 0) != 0;
  return ignores;
}

Acting::Acting(std::shared_ptr<const Actor> actor) : outer_(std::move(acting)) { acting = std::move(actor); }
Acting::~Acting() { acting = std::move(outer_); }

void note_read(const void* address, std::size_t bytes) { note(address, bytes, Access::read); }
void note_write(const void* address, std::size_t bytes) { note(address, bytes, Access::write); }

void note_kernel(std::uint64_t address, const std::string& kernel) {
  const void* const pointer = reinterpret_cast<const void*>(address);
  if (place_of(pointer, 1, readable(kernel)).valid)
    note(pointer, 1, Access::kernel);
}

void Shadow::split(std::size_t offset) {
  const auto next = pieces_.upper_bound(offset);
  const auto piece = std::prev(next);
  if (piece->first != offset)
    pieces_.emplace_hint(next, offset, piece->second);
}

void Shadow::touch(const Touch& now, std::size_t offset, std::size_t bytes) {
  split(offset);
  split(offset + bytes);
  const auto first = pieces_.find(offset), end = pieces_.find(offset + bytes);
  for (auto piece = first; piece != end; ++piece) {
    History& history = piece->second;
    for (const Touch& before : history)
      if (excludes(before.access, now.access) && !now.actor->comes_after(*before.actor))
        tell_race(now, before, name_of(this, piece->first));
    // What comes after this access comes after those that this one comes after.
    std::erase_if(history, [&](const Touch& before) {
      return now.access == Access::write || (before.access == now.access && now.actor->comes_after(*before.actor));
    });
    history.push_back(now);
  }
  if (now.access == Access::write)  // one piece again
    pieces_.erase(std::next(first), end);
}

}  // namespace fake_cuda
