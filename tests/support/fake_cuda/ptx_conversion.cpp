// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// cvt.
#include <cmath>
#include <limits>
#include <type_traits>

#include "tests/support/fake_cuda/ptx_map.hpp"

namespace fake_cuda::ptx {
namespace {

struct Nearest {
  static double round(double x) { return std::nearbyint(x); }
};
struct TowardsZero {
  static double round(double x) { return std::trunc(x); }
};
struct Down {
  static double round(double x) { return std::floor(x); }
};
struct Up {
  static double round(double x) { return std::ceil(x); }
};

// To integers numbers are cut to the range. NaN becomes 0, but in 64 bits the highest bit alone.
template <class To, class From, class Rounding>
To converted(From value) {
  if constexpr (std::is_integral_v<To> && !std::is_integral_v<From>) {
    const double rounded = Rounding::round(static_cast<double>(value));
    if (std::isnan(rounded))
      return sizeof(From) == 8 || sizeof(To) == 8 ? static_cast<To>(std::uint64_t{1} << (8 * sizeof(To) - 1)) : To(0);
    if (rounded <= static_cast<double>(std::numeric_limits<To>::lowest()))
      return std::numeric_limits<To>::lowest();
    if (rounded >= static_cast<double>(std::numeric_limits<To>::max()))
      return std::numeric_limits<To>::max();
    return static_cast<To>(rounded);
  } else if constexpr (std::is_same_v<To, From> && !std::is_integral_v<To>) {
    return static_cast<To>(Rounding::round(static_cast<double>(value)));
  } else if constexpr (is_short<To> || is_short<From>) {
    return To(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

template <class To, class From, class Rounding>
void convert(Warp& w, const Instruction& i, Lanes lanes) {
  Register& to = w[i.operands[0]];
  const Register& from = w[i.operands[1]];
  for_lanes(lanes, [&](int lane) { put(to, lane, converted<To, From, Rounding>(get<From>(from, lane))); });
}

// cvt.sat.f32.f32: into [0, 1]; NaN becomes 0.
void saturate(Warp& w, const Instruction& i, Lanes lanes) {
  for_lanes(lanes, [&](int lane) {
    put(w[i.operands[0]], lane, std::fmin(std::fmax(get<float>(w[i.operands[1]], lane), 0.0F), 1.0F));
  });
}

// cvt.rn.bf16x2.f32 d, high, low
template <class To>
void convert_two(Warp& w, const Instruction& i, Lanes lanes) {
  for_lanes(lanes, [&](int lane) {
    const To high(get<float>(w[i.operands[1]], lane)), low(get<float>(w[i.operands[2]], lane));
    put(w[i.operands[0]], lane, static_cast<std::uint32_t>(high.bits) << 16 | low.bits);
  });
}

template <class To, class From>
Execute conversion(std::string_view rounding) {
  constexpr bool is_exact_or_nearest = !std::is_integral_v<To> || std::is_integral_v<From>;
  if constexpr (is_exact_or_nearest && !std::is_same_v<To, From>) {
    if (rounding.empty() || rounding == "rn")
      return convert<To, From, Nearest>;
  }
  if constexpr (std::is_same_v<To, From> && std::is_integral_v<To>) {
    if (rounding.empty())
      return convert<To, From, Nearest>;
  }
  if constexpr (!std::is_integral_v<From> && (std::is_integral_v<To> || std::is_same_v<To, From>)) {
    if (rounding == "rni")
      return convert<To, From, Nearest>;
    if (rounding == "rzi")
      return convert<To, From, TowardsZero>;
    if (rounding == "rmi")
      return convert<To, From, Down>;
    if (rounding == "rpi")
      return convert<To, From, Up>;
  }
  return nullptr;
}

}  // namespace

bool decode_conversion(const Parts& parts, Instruction& instruction) {
  if (parts[0] != "cvt" || parts.size() > 4)
    return false;
  const std::string_view to = parts[parts.size() - 2], from = parts.back();
  const std::string_view rounding = parts.size() == 4 ? parts[1] : "";
  if (to == "f16x2" || to == "bf16x2") {
    if (rounding == "rn" && from == "f32")
      instruction.execute = to == "f16x2" ? convert_two<Half> : convert_two<BFloat>;
  } else if (rounding == "sat") {
    instruction.execute = to == "f32" && from == "f32" ? saturate : nullptr;
  } else {
    instruction.execute = with_type(to, [&]<class To>(To) {
      return with_type(from, [&]<class From>(From) { return conversion<To, From>(rounding); });
    });
  }
  return instruction.execute != nullptr;
}

}  // namespace fake_cuda::ptx
