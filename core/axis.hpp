// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <initializer_list>
#include <string>

namespace espalier {

/// The axes of the mesh of ranks: tensor, context, expert, data and pipeline parallelism. (An axis belongs to the mesh,
/// a dim to a tensor.)
enum class Axis { tp, cp, ep, dp, pp };
inline constexpr std::size_t num_axes = 5;
inline constexpr std::array<Axis, num_axes> all_axes{Axis::tp, Axis::cp, Axis::ep, Axis::dp, Axis::pp};
/// The axes that `train` supports, and whose order a config names. cp and ep exist in layouts only.
inline constexpr std::array<Axis, 3> trained_axes{Axis::tp, Axis::dp, Axis::pp};
const char* to_string(Axis axis);

/// Some of the axes.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes)
      bits_ |= bit(axis);
  }

  constexpr bool contains(Axis axis) const { return (bits_ & bit(axis)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr AxisSet without(AxisSet axes) const { return AxisSet(bits_ & ~axes.bits_); }
  constexpr bool contains(AxisSet axes) const { return axes.without(*this).empty(); }
  friend constexpr AxisSet operator|(AxisSet a, AxisSet b) { return AxisSet(a.bits_ | b.bits_); }
  constexpr auto operator<=>(const AxisSet&) const =
      default;  // NOLINT(modernize-use-nullptr): the 0 is in what = default makes

 private:
  constexpr explicit AxisSet(unsigned bits) : bits_(bits) {}
  static constexpr unsigned bit(Axis axis) { return 1U << static_cast<unsigned>(axis); }
  unsigned bits_ = 0;
};

/// Axes along which ranks process different tokens.
inline constexpr AxisSet token_axes{Axis::cp, Axis::ep, Axis::dp};

std::string to_string(AxisSet axes);  ///< "tp+dp"; "none"

}  // namespace espalier
