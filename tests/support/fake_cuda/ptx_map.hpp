// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/support/fake_cuda/ptx_numbers.hpp"
#include "tests/support/fake_cuda/ptx_warp.hpp"

/// What each lane computes for itself: r = F(a, b, c), of one type but for the result.
namespace fake_cuda::ptx {

template <class R, class T, class F>
void one(Warp& w, const Instruction& i, Lanes lanes) {
  Register& r = w[i.operands[0]];
  const Register& a = w[i.operands[1]];
  for_lanes(lanes, [&](int lane) { put<R>(r, lane, F()(get<T>(a, lane))); });
}
template <class R, class T, class F>
void two(Warp& w, const Instruction& i, Lanes lanes) {
  Register& r = w[i.operands[0]];
  const Register &a = w[i.operands[1]], &b = w[i.operands[2]];
  for_lanes(lanes, [&](int lane) { put<R>(r, lane, F()(get<T>(a, lane), get<T>(b, lane))); });
}
template <class R, class T, class F>
void three(Warp& w, const Instruction& i, Lanes lanes) {
  Register& r = w[i.operands[0]];
  const Register &a = w[i.operands[1]], &b = w[i.operands[2]], &c = w[i.operands[3]];
  for_lanes(lanes, [&](int lane) { put<R>(r, lane, F()(get<T>(a, lane), get<T>(b, lane), get<T>(c, lane))); });
}
template <class T, class R = T, class F>
Execute map1(F) {
  return one<R, T, F>;
}
template <class T, class R = T, class F>
Execute map2(F) {
  return two<R, T, F>;
}
template <class T, class R = T, class F>
Execute map3(F) {
  return three<R, T, F>;
}

/// f(T()) for the type of that name; null: there is none.
template <class F>
Execute with_type(std::string_view type, const F& f) {
  if (type == "u8" || type == "b8")
    return f(std::uint8_t());
  if (type == "s8")
    return f(std::int8_t());
  if (type == "u16" || type == "b16")
    return f(std::uint16_t());
  if (type == "s16")
    return f(std::int16_t());
  if (type == "u32" || type == "b32")
    return f(std::uint32_t());
  if (type == "s32")
    return f(std::int32_t());
  if (type == "u64" || type == "b64")
    return f(std::uint64_t());
  if (type == "s64")
    return f(std::int64_t());
  if (type == "f32")
    return f(float());
  if (type == "f64")
    return f(double());
  if (type == "f16")
    return f(Half());
  if (type == "bf16")
    return f(BFloat());
  return nullptr;
}

/// Of "mul.lo" and "u32", say; null: not known.
Execute integer_arithmetic(std::string_view name, std::string_view type);
Execute floating_arithmetic(std::string_view name, std::string_view type);

}  // namespace fake_cuda::ptx
