// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/races.hpp"

#include <set>

#include "tests/support/fake_cuda/memory.hpp"
#include "tests/support/fake_cuda/report.hpp"
#include "tests/support/fake_cuda/shadow.hpp"

namespace fake_cuda {
namespace {

std::shared_ptr<const Actor>& acting() {
  static auto& actor = *new std::shared_ptr<const Actor>;
  return actor;
}

void note(const void* address, std::size_t bytes, Access access) {
  static const bool looks = setting("RACES", 1) != 0;
  if (!looks || bytes == 0 || !acting())
    return;
  const DeviceRange range = allocation_at(reinterpret_cast<std::uint64_t>(address));
  if (range.shadow != nullptr && range.offset + bytes <= range.bytes)
    range.shadow->touch(acting(), range.offset, bytes, access);
}

std::string text_of(const Actor& actor) { return readable(actor.what) + " in " + actor.where; }

std::string verb_of(Access access) {
  return access == Access::read ? " reads" : access == Access::write ? " writes" : " is handed";
}

}  // namespace

bool ignores_waits() {
  static const bool ignores = setting("IGNORE_WAITS", 0) != 0;
  return ignores;
}

Acting::Acting(std::shared_ptr<const Actor> actor) : outer_(std::move(acting())) { acting() = std::move(actor); }
Acting::~Acting() { acting() = std::move(outer_); }

void note_read(const void* address, std::size_t bytes) { note(address, bytes, Access::read); }
void note_write(const void* address, std::size_t bytes) { note(address, bytes, Access::write); }

void note_kernel(std::uint64_t address, const std::string& kernel) {
  const void* const pointer = reinterpret_cast<const void*>(address);
  if (place_of(pointer, 1, readable(kernel)).valid)
    note(pointer, 1, Access::kernel);
}

// Of a pair of kernels or calls once.
void tell_race(const Race& race) {
  static auto& told = *new std::set<std::string>;
  const std::string pair = race.before.what + verb_of(race.before_access) + race.now.what + verb_of(race.now_access);
  if (told.insert(pair).second)
    misuse("a race: " + text_of(race.now) + verb_of(race.now_access) + " " + name_of(race.shadow, race.offset) +
           ", which " + text_of(race.before) + verb_of(race.before_access) + ": nothing orders the two");
}

}  // namespace fake_cuda
