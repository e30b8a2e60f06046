// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Comparisons, choices and copies; and which function computes what. An instruction is known by all that stands before
// its type, so that a rounding or a modifier that is not written here is not passed over.
#include <algorithm>
#include <type_traits>

#include "tests/support/fake_cuda/ptx_map.hpp"

namespace fake_cuda::ptx {
namespace {

template <class T, class F>
void compare(Warp& w, const Instruction& i, Lanes lanes) {
  const Register &a = w[i.operands[1]], &b = w[i.operands[2]];
  Lanes result = 0;
  for_lanes(lanes, [&](int lane) { result |= static_cast<Lanes>(F()(get<T>(a, lane), get<T>(b, lane))) << lane; });
  Lanes& predicate = w.predicate(i.operands[0]);
  predicate = (predicate & ~lanes) | result;
}

template <class T>
Execute comparison(std::string_view name) {
  const auto as = []<class F>(F) -> Execute { return compare<T, F>; };
  if (name == "eq")
    return as([](T a, T b) { return a == b; });
  if (name == "ne")  // false where one is no number, as all but those that end with u
    return as([](T a, T b) { return a < b || a > b; });
  if (name == "lt" || name == "lo")
    return as([](T a, T b) { return a < b; });
  if (name == "le" || name == "ls")
    return as([](T a, T b) { return a <= b; });
  if (name == "gt" || name == "hi")
    return as([](T a, T b) { return a > b; });
  if (name == "ge" || name == "hs")
    return as([](T a, T b) { return a >= b; });
  if constexpr (std::is_floating_point_v<T>) {
    if (name == "equ")
      return as([](T a, T b) { return !(a < b || a > b); });
    if (name == "neu")
      return as([](T a, T b) { return a != b; });
    if (name == "ltu")
      return as([](T a, T b) { return !(a >= b); });
    if (name == "leu")
      return as([](T a, T b) { return !(a > b); });
    if (name == "gtu")
      return as([](T a, T b) { return !(a <= b); });
    if (name == "geu")
      return as([](T a, T b) { return !(a < b); });
    if (name == "num")
      return as([](T a, T b) { return a == a && b == b; });
    if (name == "nan")
      return as([](T a, T b) { return a != a || b != b; });
  }
  return nullptr;
}

template <class F>
void combine_predicates(Warp& w, const Instruction& i, Lanes lanes) {
  Lanes& result = w.predicate(i.operands[0]);
  result = (result & ~lanes) | (F()(w.predicate(i.operands[1]), w.predicate(i.operands.back())) & lanes);
}

Execute of_predicates(std::string_view name) {
  const auto as = []<class F>(F) -> Execute { return combine_predicates<F>; };
  if (name == "and")
    return as([](Lanes a, Lanes b) { return a & b; });
  if (name == "or")
    return as([](Lanes a, Lanes b) { return a | b; });
  if (name == "xor")
    return as([](Lanes a, Lanes b) { return a ^ b; });
  if (name == "not")
    return as([](Lanes a, Lanes) { return ~a; });
  return name == "mov" ? as([](Lanes a, Lanes) { return a; }) : nullptr;
}

void select(Warp& w, const Instruction& i, Lanes lanes) {
  const Register &a = w[i.operands[1]], &b = w[i.operands[2]];
  const Lanes chosen = w.predicate(i.operands[3]);
  for_lanes(lanes, [&](int lane) {
    put(w[i.operands[0]], lane, get<std::uint64_t>((chosen >> lane & 1) != 0 ? a : b, lane));
  });
}

// Also {%lo, %hi} from one register, or into one.
template <class T>
void move(Warp& w, const Instruction& i, Lanes lanes) {
  using Whole = std::conditional_t<sizeof(T) == 8, std::uint64_t,
                                   std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;
  const auto results = static_cast<std::size_t>(i.num_results), sources = i.operands.size() - results;
  const auto part_bits = 8 * sizeof(Whole) / std::max(results, sources);
  for_lanes(lanes, [&](int lane) {
    std::uint64_t whole = 0;
    for (std::size_t s = sources; s-- > 0;)
      whole = sources == 1 ? get<Whole>(w[i.operands[results]], lane)
                           : whole << part_bits | (w[i.operands[results + s]].of[static_cast<std::size_t>(lane)] &
                                                   ((std::uint64_t{1} << part_bits) - 1));
    for (std::size_t r = 0; r < results; ++r)
      put(w[i.operands[r]], lane,
          results == 1 ? whole : whole >> (r * part_bits) & ((std::uint64_t{1} << part_bits) - 1));
  });
}

Execute executor(std::string_view name, std::string_view type, bool is_comparison) {
  if (type == "pred")
    return of_predicates(name);
  if (is_comparison)
    return with_type(type, [&]<class T>(T) { return comparison<T>(name); });
  if (name == "mov")
    return with_type(type, []<class T>(T) -> Execute { return move<T>; });
  if (name == "selp")
    return select;
  return type[0] == 'f' ? floating_arithmetic(name, type) : integer_arithmetic(name, type);
}

}  // namespace

bool decode_arithmetic(const Parts& parts, Instruction& instruction) {
  if (parts.size() < 2 || instruction.operands.empty())
    return false;
  const bool is_comparison = parts[0] == "setp" && parts.size() == 3 && instruction.operands.size() == 3;
  instruction.execute =
      executor(joined(parts.begin() + (is_comparison ? 1 : 0), parts.end() - 1), parts.back(), is_comparison);
  return instruction.execute != nullptr;
}

}  // namespace fake_cuda::ptx
