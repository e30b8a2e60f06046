// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// ld, st, atom, red, cvta, fences, and cp.async.
#include <algorithm>
#include <cstring>

#include "tests/support/fake_cuda/ptx_warp.hpp"

namespace fake_cuda::ptx {
namespace {

// Sizes that are known to the compiler: most of the time goes here.
void copy_element(void* to, const void* from, int bytes) {
  switch (bytes) {
    case 1: std::memcpy(to, from, 1); break;
    case 2: std::memcpy(to, from, 2); break;
    case 4: std::memcpy(to, from, 4); break;
    default: std::memcpy(to, from, 8);
  }
}

std::uint64_t read_bits(const char* from, const Instruction& i) {
  std::uint64_t bits = 0;
  copy_element(&bits, from, i.bytes);
  if (i.is_signed) {
    const int shift = 64 - 8 * i.bytes;
    bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(bits << shift) >> shift);
  }
  return bits;
}

std::uint64_t address_of(Warp& w, const Instruction& i, int r, int lane) {
  return w[r].of[static_cast<std::size_t>(lane)] + static_cast<std::uint64_t>(i.offset);
}

void load(Warp& w, const Instruction& i, Lanes lanes) {
  const auto bytes = static_cast<std::size_t>(i.bytes * i.count);
  for_lanes(lanes, [&](int lane) {
    const char* const from =
        w.reach(i, lane, i.space, address_of(w, i, i.operands.back(), lane), bytes, Warp::Use::read);
    for (int part = 0; from != nullptr && part < i.count; ++part)
      put(w[i.operands[static_cast<std::size_t>(part)]], lane, read_bits(from + part * i.bytes, i));
  });
  w.end_request(bytes);
}

void store(Warp& w, const Instruction& i, Lanes lanes) {
  const auto bytes = static_cast<std::size_t>(i.bytes * i.count);
  for_lanes(lanes, [&](int lane) {
    char value[16];
    for (int part = 0; part < i.count; ++part)
      std::memcpy(value + part * i.bytes,
                  &w[i.operands[static_cast<std::size_t>(part) + 1]].of[static_cast<std::size_t>(lane)],
                  static_cast<std::size_t>(i.bytes));
    char* const to = w.reach(i, lane, i.space, address_of(w, i, i.operands[0], lane), bytes, Warp::Use::write, value);
    if (to != nullptr)
      std::memcpy(to, value, bytes);
  });
  w.end_request(bytes);
}

// [result,] [address], b [, c]: what is there becomes F(what is there, b, c).
template <class T, class F>
void update(Warp& w, const Instruction& i, Lanes lanes) {
  const auto address = static_cast<std::size_t>(i.num_results);
  for_lanes(lanes, [&](int lane) {
    char* const at =
        w.reach(i, lane, i.space, address_of(w, i, i.operands[address], lane), sizeof(T), Warp::Use::update);
    if (at == nullptr)
      return;
    T before;
    std::memcpy(&before, at, sizeof before);
    const T after = F()(before, get<T>(w[i.operands[address + 1]], lane), get<T>(w[i.operands.back()], lane));
    std::memcpy(at, &after, sizeof after);
    if (address == 1)
      put(w[i.operands[0]], lane, before);
  });
  w.end_request(sizeof(T));
}

template <class T>
Execute update_of(std::string_view operation) {
  const auto as = []<class F>(F) -> Execute { return update<T, F>; };
  if (operation == "add")
    return as([](T a, T b, T) { return static_cast<T>(a + b); });
  if (operation == "exch")
    return as([](T, T b, T) { return b; });
  if (operation == "cas")
    return as([](T a, T b, T c) { return a == b ? c : a; });
  if (operation == "min")
    return as([](T a, T b, T) { return std::min(a, b); });
  if (operation == "max")
    return as([](T a, T b, T) { return std::max(a, b); });
  if constexpr (std::is_integral_v<T>) {
    if (operation == "and")
      return as([](T a, T b, T) { return a & b; });
    if (operation == "or")
      return as([](T a, T b, T) { return a | b; });
    if (operation == "xor")
      return as([](T a, T b, T) { return a ^ b; });
    if (operation == "inc")
      return as([](T a, T b, T) { return a >= b ? T(0) : T(a + 1); });
    if (operation == "dec")
      return as([](T a, T b, T) { return a == 0 || a > b ? b : T(a - 1); });
  }
  return nullptr;
}

Execute update_of(std::string_view operation, std::string_view type) {
  if (type == "u32" || type == "b32")
    return update_of<std::uint32_t>(operation);
  if (type == "u64" || type == "b64")
    return update_of<std::uint64_t>(operation);
  if (type == "s32")
    return update_of<std::int32_t>(operation);
  if (type == "s64")
    return update_of<std::int64_t>(operation);
  if (type == "f32" && operation == "add")
    return update_of<float>(operation);
  if (type == "f64" && operation == "add")
    return update_of<double>(operation);
  return nullptr;
}

// Between generic addresses and those of a space.
template <std::uint64_t window, bool is_to_space>
void convert_address(Warp& w, const Instruction& i, Lanes lanes) {
  for_lanes(lanes, [&](int lane) {
    const std::uint64_t address = w[i.operands[1]].of[static_cast<std::size_t>(lane)];
    put(w[i.operands[0]], lane, is_to_space ? address - window : address + window);
  });
}

void nothing(Warp&, const Instruction&, Lanes) {}

// [to], [from], 16 [, bytes that are copied; the others become 0]
void copy_later(Warp& w, const Instruction& i, Lanes lanes) {
  for_lanes(lanes, [&](int lane) {
    const auto bytes = get<std::uint32_t>(w[i.operands[2]], lane);
    const auto copied = get<std::uint32_t>(w[i.operands.back()], lane);
    if (copied != bytes && copied != 0)
      w.complain(i, lane, "copies a part, which the stand-in does not know");
    const std::uint64_t to = w[i.operands[0]].of[static_cast<std::size_t>(lane)];
    // From now on nobody else may use what is copied to.
    if (w.reach(i, lane, Space::shared, to, bytes, Warp::Use::write) != nullptr)
      w.copies.push_back({&i, lane, to, w[i.operands[1]].of[static_cast<std::size_t>(lane)], bytes, copied});
  });
}

void wait_for_copies(Warp& w, const Instruction&, Lanes lanes) {
  const auto is_waiting = [&](const Warp::Copy& copy) { return (lanes >> copy.lane & 1) != 0; };
  for (const Warp::Copy& copy : w.copies) {
    if (!is_waiting(copy))
      continue;
    char value[16] = {};  // the most that cp.async copies
    if (copy.copied > 0)
      if (const char* const from =
              w.reach(*copy.instruction, copy.lane, Space::global, copy.from, copy.bytes, Warp::Use::read))
        std::memcpy(value, from, copy.bytes);
    if (char* const to = w.reach(*copy.instruction, copy.lane, Space::shared, copy.to, copy.bytes, Warp::Use::write))
      std::memcpy(to, value, copy.bytes);
  }
  w.end_request(w.copies.empty() ? 0 : w.copies.front().bytes);
  w.copies.erase(std::remove_if(w.copies.begin(), w.copies.end(), is_waiting), w.copies.end());
}

bool has(const Parts& parts, std::string_view part) {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

void set_space(const Parts& parts, Instruction& instruction) {
  if (has(parts, "shared"))
    instruction.space = Space::shared;
  else if (has(parts, "local"))
    instruction.space = Space::local;
  else if (has(parts, "global") || has(parts, "const"))
    instruction.space = Space::global;
  else if (has(parts, "param"))  // those of calls are in local memory
    instruction.space = instruction.space == Space::local ? Space::local : Space::parameter;
  else
    instruction.space = Space::generic;
}

// What changes nothing here: caches, and the order of accesses, which is that of the text.
bool is_known(std::string_view part) {
  for (const char* const known : {"ld", "st", "global", "shared", "local", "const", "param", "nc", "v2", "v4",
                                  "volatile", "relaxed", "acquire", "release", "weak", "cta", "gpu", "sys"})
    if (part == known)
      return true;
  return false;
}

bool set_type(const Parts& parts, Instruction& instruction) {
  const std::string_view type = parts.back();
  const int bits = type.size() > 1 ? std::atoi(std::string(type.substr(1)).c_str()) : 0;
  if (bits < 8)
    return false;
  instruction.bytes = bits / 8;
  instruction.is_signed = type[0] == 's';
  instruction.count = has(parts, "v2") ? 2 : has(parts, "v4") ? 4 : 1;
  return std::all_of(parts.begin(), parts.end() - 1, is_known) && instruction.bytes <= 8 &&
         instruction.bytes * instruction.count <= 16;
}

Execute address_conversion(const Parts& parts) {
  const bool is_to_space = parts[1] == "to";
  const std::string_view space = parts[is_to_space ? 2 : 1];
  if (space == "shared")
    return is_to_space ? convert_address<shared_window, true> : convert_address<shared_window, false>;
  if (space == "local")
    return is_to_space ? convert_address<local_window, true> : convert_address<local_window, false>;
  return space == "global" || space == "const" ? convert_address<0, true> : nullptr;
}

}  // namespace

bool decode_memory(const Parts& parts, Instruction& instruction) {
  const std::string_view name = parts[0];
  const std::size_t operands = instruction.operands.size();
  if (name == "ld" || name == "st") {
    set_space(parts, instruction);
    if (set_type(parts, instruction) && operands == static_cast<std::size_t>(instruction.count) + 1)
      instruction.execute = name == "ld" ? load : store;
  } else if (name == "atom" || name == "red") {
    set_space(parts, instruction);
    instruction.num_results = name == "atom" ? 1 : 0;
    instruction.execute = update_of(parts[parts.size() - 2], parts.back());
  } else if (name == "cvta") {
    instruction.execute = address_conversion(parts);
  } else if (name == "membar" || name == "fence") {
    instruction.execute = nothing;
  } else if (name == "cp" && parts[1] == "async") {
    if (parts[2] == "commit_group")
      instruction.execute = nothing;
    else if (parts[2] == "wait_all")
      instruction.execute = wait_for_copies;
    else if ((parts[2] == "cg" || parts[2] == "ca") && (operands == 3 || operands == 4) && instruction.offset == 0)
      instruction.execute = copy_later;
  }
  return instruction.execute != nullptr;
}

}  // namespace fake_cuda::ptx
