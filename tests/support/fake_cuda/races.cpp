// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/races.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/support/fake_cuda/memory.hpp"
#include "tests/support/fake_cuda/report.hpp"
#include "tests/support/fake_cuda/shadow.hpp"

namespace fake_cuda {
namespace {

struct Scene {
  std::shared_ptr<const Actor> actor;
  std::vector<Shadow*> touched;  // by a kernel
};

Scene& scene() {
  static Scene& state = *new Scene;
  return state;
}

void note(const void* address, std::size_t bytes, bool writes) {
  if (!looks_for_races() || bytes == 0 || !scene().actor)
    return;
  const auto at = reinterpret_cast<std::uint64_t>(address);
  const DeviceRange range = allocation_at(at);
  if (range.shadow != nullptr && at - range.first + bytes <= range.bytes)
    range.shadow->touch_range(scene().actor, at - range.first, bytes, writes);
}

std::string text_of(const Actor& actor) { return readable(actor.what) + " in " + actor.where; }

}  // namespace

bool looks_for_races() {
  static const bool looks = setting("RACES", 1) != 0;
  return looks;
}

bool ignores_waits() {
  static const bool ignores = setting("IGNORE_WAITS", 0) != 0;
  return ignores;
}

Acting::Acting(std::shared_ptr<const Actor> actor) : outer_(std::move(scene().actor)) {
  scene().actor = std::move(actor);
}

Acting::~Acting() {
  for (Shadow* const shadow : scene().touched)
    shadow->settle(scene().actor);
  scene().touched.clear();
  scene().actor = std::move(outer_);
}

void note_read(const void* address, std::size_t bytes) { note(address, bytes, false); }
void note_write(const void* address, std::size_t bytes) { note(address, bytes, true); }

void note_kernel_in(Shadow& shadow) { scene().touched.push_back(&shadow); }

// Of a pair of kernels or calls once.
void tell_race(const Race& race) {
  const auto verb = [](bool writes) { return writes ? std::string(" writes") : std::string(" reads"); };
  static auto& told = *new std::set<std::string>;
  const std::string pair = race.before.what + verb(race.before_writes) + race.now.what + verb(race.now_writes);
  if (told.insert(pair).second)
    misuse("a race: " + text_of(race.now) + verb(race.now_writes) + " " + name_of(race.shadow, race.offset) +
           ", which " + text_of(race.before) + verb(race.before_writes) + ": nothing orders the two");
}

}  // namespace fake_cuda
