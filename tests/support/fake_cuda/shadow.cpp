// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// A state is one number for all bytes to which the same was done: what an operation makes of it is found out once.
#include "tests/support/fake_cuda/shadow.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <vector>

namespace fake_cuda {
namespace {

using ActorPointer = std::shared_ptr<const Actor>;

struct History {
  ActorPointer writer;
  std::vector<ActorPointer> readers;  // since it was written; not those that come before others of them
};

constexpr std::uint32_t untouched = 0;
constexpr std::uint32_t several = ~std::uint32_t{0};  // the word has a state for each two bytes

struct Histories {
  std::vector<History> all{1};  // by state
  std::vector<std::uint32_t> unused;
  std::size_t enough = std::size_t{1} << 16;  // then those that no shadow holds are forgotten
  ActorPointer actor;                         // who makes what stands here of states
  std::unordered_map<std::uint32_t, std::uint32_t> after_read, after_write;
  std::uint32_t last[2] = {several, several}, after_last[2] = {};  // asked for: mostly it is the same again
  std::set<Shadow*> shadows;
};

Histories& histories() {
  static Histories& state = *new Histories;
  return state;
}

std::uint32_t new_state(History history) {
  Histories& h = histories();
  if (h.unused.empty()) {
    h.all.push_back(std::move(history));
    return static_cast<std::uint32_t>(h.all.size() - 1);
  }
  const std::uint32_t state = h.unused.back();
  h.unused.pop_back();
  h.all[state] = std::move(history);
  return state;
}

void forget_steps() {
  Histories& h = histories();
  h.after_read.clear();
  h.after_write.clear();
  h.last[0] = h.last[1] = several;
}

void begin(const ActorPointer& actor) {
  if (histories().actor != actor)
    forget_steps();
  histories().actor = actor;
}

template <class T>
auto zeros(std::size_t count) {
  return std::unique_ptr<T[], void (*)(void*)>(static_cast<T*>(std::calloc(count, sizeof(T))), std::free);
}

std::uint32_t find_next_state(std::uint32_t state, bool writes, const Shadow* shadow, std::size_t offset) {
  Histories& h = histories();
  auto& known = writes ? h.after_write : h.after_read;
  if (const auto found = known.find(state); found != known.end())
    return found->second;
  const History before = h.all[state];
  if (before.writer && !h.actor->comes_after(*before.writer))
    tell_race({*before.writer, *h.actor, true, writes, shadow, offset});
  History after{writes ? h.actor : before.writer, {}};
  if (writes) {
    for (const ActorPointer& reader : before.readers)
      if (!h.actor->comes_after(*reader))
        tell_race({*reader, *h.actor, false, true, shadow, offset});
  } else {
    for (const ActorPointer& reader : before.readers)
      if (!h.actor->comes_after(*reader))
        after.readers.push_back(reader);
    after.readers.push_back(h.actor);
  }
  // All that is only written is of one state.
  const std::uint32_t next =
      writes && !h.after_write.empty() ? h.after_write.begin()->second : new_state(std::move(after));
  known.emplace(state, next);
  return next;
}

// The state after the actor reads or writes; tells what is a race.
std::uint32_t next_state(std::uint32_t state, bool writes, const Shadow* shadow, std::size_t offset) {
  static Histories& h = histories();
  if (h.last[writes] != state) {
    h.after_last[writes] = find_next_state(state, writes, shadow, offset);
    h.last[writes] = state;
  }
  return h.after_last[writes];
}

// Of so many states the first that are `before`, at least one, become `after`: how many. A workspace of products has
// hundreds of thousands.
std::size_t replace_run(std::uint32_t* states, std::size_t count, std::uint32_t before, std::uint32_t after) {
  constexpr std::size_t step = 16;
  std::size_t done = 0;
  for (; done + step <= count; done += step) {
    std::uint32_t differences = 0;
    for (std::size_t i = 0; i < step; ++i)
      differences |= states[done + i] ^ before;
    if (differences != 0)
      break;
    std::fill_n(states + done, step, after);
  }
  for (; done < count && states[done] == before; ++done)
    states[done] = after;
  return done;
}

}  // namespace

Shadow::Shadow(std::size_t bytes)
    : num_words_((bytes + word_bytes - 1) / word_bytes),
      states_(zeros<State>(num_words_)),
      read_(zeros<std::uint64_t>(num_words_)),
      written_(zeros<std::uint64_t>(num_words_)),
      touched_(zeros<std::uint64_t>(num_words_ / 64 + 1)) {
  histories().shadows.insert(this);
}

Shadow::~Shadow() { histories().shadows.erase(this); }

void Shadow::apply(std::size_t word, std::uint64_t bits, bool writes) {
  if (bits == 0)
    return;
  State& whole = states_[word];
  if (whole != several && bits == ~std::uint64_t{0}) {
    whole = next_state(whole, writes, this, word * word_bytes);
    return;
  }
  if (whole != several) {
    std::fill_n(parts_[word].of, grains, whole);
    whole = several;
  }
  Parts& parts = parts_[word];
  for (std::uint64_t left = bits; left != 0; left &= left - 1) {
    const auto i = static_cast<std::size_t>(__builtin_ctzll(left));
    parts.of[i] = next_state(parts.of[i], writes, this, word * word_bytes + i * grain);
  }
  if (std::all_of(parts.of, parts.of + grains, [&](State state) { return state == parts.of[0]; })) {
    whole = parts.of[0];
    parts_.erase(word);
  }
}

void Shadow::settle(const ActorPointer& actor) {
  begin(actor);
  for (std::size_t i = 0; i <= num_words_ / 64; ++i)
    for (std::uint64_t& left = touched_[i]; left != 0; left &= left - 1) {
      const std::size_t word = i * 64 + static_cast<std::size_t>(__builtin_ctzll(left));
      apply(word, read_[word] & ~written_[word], false);
      apply(word, written_[word], true);
      read_[word] = written_[word] = 0;
    }
  has_touched_ = false;
  forget_unused_states();
}

void Shadow::touch_range(const ActorPointer& actor, std::size_t offset, std::size_t bytes, bool writes) {
  begin(actor);
  for (const std::size_t end = offset + bytes; offset < end;) {
    if (offset % word_bytes == 0 && end - offset >= word_bytes && states_[offset / word_bytes] != several) {
      const State before = states_[offset / word_bytes], after = next_state(before, writes, this, offset);
      offset += word_bytes * replace_run(&states_[offset / word_bytes], (end - offset) / word_bytes, before, after);
      continue;
    }
    const std::size_t word = offset / word_bytes, next = std::min(end, (word + 1) * word_bytes);
    const std::size_t first = offset / grain % grains, count = (next - 1) / grain - offset / grain + 1;
    apply(word, (count == grains ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1) << first, writes);
    offset = next;
  }
  forget_unused_states();
}

void Shadow::forget_unused_states() {
  Histories& h = histories();
  if (h.all.size() - h.unused.size() < h.enough)
    return;
  std::vector<bool> is_used(h.all.size());
  is_used[untouched] = true;
  for (const Shadow* const shadow : h.shadows)
    for (std::size_t word = 0; word < shadow->num_words_; ++word)
      if (shadow->states_[word] != several)
        is_used[shadow->states_[word]] = true;
      else
        for (const State state : shadow->parts_.at(word).of)
          is_used[state] = true;
  forget_steps();
  h.unused.clear();
  for (std::uint32_t state = 0; state < h.all.size(); ++state)
    if (!is_used[state]) {
      h.all[state] = {};
      h.unused.push_back(state);
    }
  h.enough = std::max(h.enough, 2 * (h.all.size() - h.unused.size()));
}

}  // namespace fake_cuda
