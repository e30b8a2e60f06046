// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Arithmetic of integers, and their bits. Compiled with -fwrapv.
#include <algorithm>
#include <bit>
#include <type_traits>

#include "tests/support/fake_cuda/ptx_map.hpp"

namespace fake_cuda::ptx {
namespace {

template <class T>
struct Wider {
  using type = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
};
template <>
struct Wider<std::int64_t> {
  using type = __int128;
};
template <>
struct Wider<std::uint64_t> {
  using type = unsigned __int128;
};
template <>
struct Wider<std::int16_t> {
  using type = std::int32_t;
};
template <>
struct Wider<std::uint16_t> {
  using type = std::uint32_t;
};

template <class T>
T high_part(T a, T b) {
  using W = typename Wider<T>::type;
  return static_cast<T>((static_cast<W>(a) * static_cast<W>(b)) >> (8 * sizeof(T)));
}

// By 0 a GPU divides to something; here it is all ones. The least number by -1 is itself.
template <class T>
T quotient(T a, T b) {
  if (b == 0)
    return static_cast<T>(-1);
  return std::is_signed_v<T> && b == static_cast<T>(-1) ? static_cast<T>(0 - a) : static_cast<T>(a / b);
}

// By as much as there are bits, or more: the sign, or 0.
template <class T>
void shift_right(Warp& w, const Instruction& i, Lanes lanes) {
  for_lanes(lanes, [&](int lane) {
    const auto by = std::min<std::uint32_t>(get<std::uint32_t>(w[i.operands[2]], lane), 8 * sizeof(T) - 1);
    const T a = get<T>(w[i.operands[1]], lane);
    const bool is_nothing_left = !std::is_signed_v<T> && get<std::uint32_t>(w[i.operands[2]], lane) > by;
    put(w[i.operands[0]], lane, is_nothing_left ? T(0) : static_cast<T>(a >> by));
  });
}
template <class T>
void shift_left(Warp& w, const Instruction& i, Lanes lanes) {
  for_lanes(lanes, [&](int lane) {
    const auto by = get<std::uint32_t>(w[i.operands[2]], lane);
    const T a = get<T>(w[i.operands[1]], lane);
    put(w[i.operands[0]], lane, by >= 8 * sizeof(T) ? T(0) : static_cast<T>(a << by));
  });
}

template <class T>
Execute integer(std::string_view name) {
  using W = std::conditional_t<sizeof(T) == 8, T, typename Wider<T>::type>;  // .wide has no 64 bits
  if (name == "add")
    return map2<T>([](T a, T b) { return static_cast<T>(a + b); });
  if (name == "sub")
    return map2<T>([](T a, T b) { return static_cast<T>(a - b); });
  if (name == "mul.lo")
    return map2<T>([](T a, T b) { return static_cast<T>(static_cast<W>(a) * static_cast<W>(b)); });
  if (name == "mul.hi")
    return map2<T>([](T a, T b) { return high_part(a, b); });
  if (name == "mad.lo")
    return map3<T>(
        [](T a, T b, T c) { return static_cast<T>(static_cast<W>(a) * static_cast<W>(b) + static_cast<W>(c)); });
  if (name == "mad.hi")
    return map3<T>([](T a, T b, T c) { return static_cast<T>(high_part(a, b) + c); });
  if (name == "mul.wide")
    return map2<T, W>([](T a, T b) { return static_cast<W>(a) * static_cast<W>(b); });
  if (name == "div")
    return map2<T>([](T a, T b) { return quotient(a, b); });
  if (name == "rem")
    return map2<T>([](T a, T b) { return b == 0 ? a : static_cast<T>(a - quotient(a, b) * b); });
  if (name == "min")
    return map2<T>([](T a, T b) { return std::min(a, b); });
  if (name == "max")
    return map2<T>([](T a, T b) { return std::max(a, b); });
  if (name == "abs")
    return map1<T>([](T a) { return static_cast<T>(a < 0 ? 0 - a : a); });
  if (name == "neg")
    return map1<T>([](T a) { return static_cast<T>(0 - a); });
  if (name == "shr")
    return shift_right<T>;
  return nullptr;
}

// mad.wide: c is as wide as the result.
template <class T>
void mad_wide(Warp& w, const Instruction& i, Lanes lanes) {
  using W = typename Wider<T>::type;
  for_lanes(lanes, [&](int lane) {
    put<W>(w[i.operands[0]], lane,
           static_cast<W>(get<T>(w[i.operands[1]], lane)) * static_cast<W>(get<T>(w[i.operands[2]], lane)) +
               get<W>(w[i.operands[3]], lane));
  });
}

// add, sub, mad with the carry of the instruction before (c at the end of the name) and for the next (.cc).
template <bool is_product, bool high, bool subtracts, bool takes, bool gives>
void with_carry(Warp& w, const Instruction& i, Lanes lanes) {
  for_lanes(lanes, [&](int lane) {
    const auto a = get<std::uint32_t>(w[i.operands[1]], lane), b = get<std::uint32_t>(w[i.operands[2]], lane);
    std::uint64_t first = a, second = b;
    if constexpr (is_product) {
      const std::uint64_t product = first * second;
      first = high ? product >> 32 : product & 0xffffffffU;
      second = get<std::uint32_t>(w[i.operands[3]], lane);
    }
    const std::uint64_t carried = takes ? w.carry >> lane & 1 : 0;
    const std::uint64_t sum = subtracts ? first - second - carried : first + second + carried;
    put(w[i.operands[0]], lane, static_cast<std::uint32_t>(sum));
    if (gives)
      w.carry = (w.carry & ~(1U << lane)) | static_cast<Lanes>(sum >> 32 & 1) << lane;
  });
}

Execute carrying(std::string_view name) {
  if (name == "add.cc")
    return with_carry<false, false, false, false, true>;
  if (name == "addc")
    return with_carry<false, false, false, true, false>;
  if (name == "addc.cc")
    return with_carry<false, false, false, true, true>;
  if (name == "sub.cc")
    return with_carry<false, false, true, false, true>;
  if (name == "subc")
    return with_carry<false, false, true, true, false>;
  if (name == "subc.cc")
    return with_carry<false, false, true, true, true>;
  if (name == "mad.lo.cc")
    return with_carry<true, false, false, false, true>;
  if (name == "mad.hi.cc")
    return with_carry<true, true, false, false, true>;
  if (name == "madc.lo")
    return with_carry<true, false, false, true, false>;
  if (name == "madc.lo.cc")
    return with_carry<true, false, false, true, true>;
  if (name == "madc.hi")
    return with_carry<true, true, false, true, false>;
  if (name == "madc.hi.cc")
    return with_carry<true, true, false, true, true>;
  return nullptr;
}

// ---- Bits ----

// bfi f, a, b, position, length: b with the first bits of a at a position.
template <class T>
void insert_bits(Warp& w, const Instruction& i, Lanes lanes) {
  for_lanes(lanes, [&](int lane) {
    const T a = get<T>(w[i.operands[1]], lane), b = get<T>(w[i.operands[2]], lane);
    const auto position = get<std::uint32_t>(w[i.operands[3]], lane) & 0xff;
    const auto length = get<std::uint32_t>(w[i.operands[4]], lane) & 0xff;
    constexpr std::uint32_t bits = 8 * sizeof(T);
    T mask = length >= bits ? static_cast<T>(-1) : static_cast<T>((T(1) << length) - 1);
    mask = position >= bits ? T(0) : static_cast<T>(mask << position);
    put(w[i.operands[0]], lane, static_cast<T>((b & ~mask) | (position >= bits ? T(0) : (a << position) & mask)));
  });
}

// bfe d, a, position, length
template <class T>
void extract_bits(Warp& w, const Instruction& i, Lanes lanes) {
  for_lanes(lanes, [&](int lane) {
    constexpr std::uint32_t bits = 8 * sizeof(T);
    const auto position = std::min(get<std::uint32_t>(w[i.operands[2]], lane) & 0xff, bits);
    const auto length = std::min(get<std::uint32_t>(w[i.operands[3]], lane) & 0xff, bits);
    const T a = get<T>(w[i.operands[1]], lane);
    const std::uint32_t sign_at = std::min(position + length, bits) - 1;
    const bool sign = std::is_signed_v<T> && length > 0 && (a >> sign_at & 1) != 0;
    T result = sign ? static_cast<T>(-1) : T(0);
    for (std::uint32_t bit = 0; bit < length && position + bit < bits; ++bit)
      result = static_cast<T>((result & ~(T(1) << bit)) | ((a >> (position + bit) & 1) << bit));
    put(w[i.operands[0]], lane, result);
  });
}

// prmt: of the 8 bytes of b and a, the four that the digits of c name; a digit above 7 repeats the sign of its byte.
std::uint32_t permuted(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(b) << 32 | a;
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t digit = c >> (4 * i) & 15;
    auto byte = static_cast<std::uint32_t>(bytes >> (8 * (digit & 7)) & 0xff);
    if (digit > 7)
      byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}

// lop3 d, a, b, c, table
void logic_of_three(Warp& w, const Instruction& i, Lanes lanes) {
  for_lanes(lanes, [&](int lane) {
    const auto a = get<std::uint32_t>(w[i.operands[1]], lane), b = get<std::uint32_t>(w[i.operands[2]], lane),
               c = get<std::uint32_t>(w[i.operands[3]], lane), table = get<std::uint32_t>(w[i.operands[4]], lane);
    std::uint32_t result = 0;
    for (std::uint32_t k = 0; k < 8; ++k)
      if ((table >> k & 1) != 0)
        result |= ((k & 4) != 0 ? a : ~a) & ((k & 2) != 0 ? b : ~b) & ((k & 1) != 0 ? c : ~c);
    put(w[i.operands[0]], lane, result);
  });
}

template <class T>
Execute bitwise(std::string_view name) {
  if (name == "and")
    return map2<T>([](T a, T b) { return static_cast<T>(a & b); });
  if (name == "or")
    return map2<T>([](T a, T b) { return static_cast<T>(a | b); });
  if (name == "xor")
    return map2<T>([](T a, T b) { return static_cast<T>(a ^ b); });
  if (name == "not")
    return map1<T>([](T a) { return static_cast<T>(~a); });
  if (name == "shl")
    return shift_left<T>;
  if (name == "popc")
    return map1<T, std::uint32_t>([](T a) { return static_cast<std::uint32_t>(std::popcount(a)); });
  if (name == "clz")
    return map1<T, std::uint32_t>([](T a) { return static_cast<std::uint32_t>(std::countl_zero(a)); });
  if (name == "bfi")
    return insert_bits<T>;
  if constexpr (sizeof(T) == 4) {
    if (name == "prmt")
      return map3<T>([](T a, T b, T c) { return permuted(a, b, c); });
    if (name == "lop3")
      return logic_of_three;
    if (name == "shf.l.wrap")  // of b and a, as 64 bits, the upper half
      return map3<T>([](T a, T b, T c) { return (c & 31) == 0 ? b : (b << (c & 31)) | (a >> (32 - (c & 31))); });
    if (name == "shf.r.wrap")
      return map3<T>([](T a, T b, T c) { return (c & 31) == 0 ? a : (a >> (c & 31)) | (b << (32 - (c & 31))); });
  }
  return nullptr;
}

template <class Signed, class Unsigned>
Execute of_integers(std::string_view name, bool is_signed) {
  if (const Execute found = is_signed ? integer<Signed>(name) : integer<Unsigned>(name))
    return found;
  if (name == "bfe")
    return is_signed ? extract_bits<Signed> : extract_bits<Unsigned>;
  return bitwise<Unsigned>(name);
}

}  // namespace

Execute integer_arithmetic(std::string_view name, std::string_view type) {
  const bool is_signed = type[0] == 's';
  if (type == "u32" && carrying(name) != nullptr)
    return carrying(name);
  if (name == "mad.wide")
    return type == "s32" ? mad_wide<std::int32_t> : type == "u32" ? mad_wide<std::uint32_t> : nullptr;
  if (type == "s16" || type == "u16" || type == "b16")
    return of_integers<std::int16_t, std::uint16_t>(name, is_signed);
  if (type == "s32" || type == "u32" || type == "b32")
    return of_integers<std::int32_t, std::uint32_t>(name, is_signed);
  if (type == "s64" || type == "u64" || type == "b64")
    return of_integers<std::int64_t, std::uint64_t>(name, is_signed);
  return nullptr;
}

}  // namespace fake_cuda::ptx
