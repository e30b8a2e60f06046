// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace espalier {

/// What a block does not keep from forward to backward but computes again (Chen et al., Training Deep Nets with
/// Sublinear Memory Cost, 2016; Korthikanti et al., 2022). The same bits in all modes where the same kernels see the
/// same inputs twice; not in 16 bits on a GPU, where a GELU that is part of a product of cuBLASLt is computed again by
/// our own kernel. docs/memory.md has the bytes of each.
enum class Recompute {
  none,
  selective,  ///< what is cheap to compute: the outputs of the norms and of GELU, when weight gradients need them
  full        ///< all but the block's input and output, at the start of its backward
};

inline const std::vector<Recompute>& all_recompute_modes() {
  static const std::vector<Recompute> modes{Recompute::none, Recompute::selective, Recompute::full};
  return modes;
}

constexpr const char* to_string(Recompute mode) {
  switch (mode) {
    case Recompute::none: return "none";
    case Recompute::selective: return "selective";
    case Recompute::full: return "full";
  }
  return "unknown";
}

inline std::optional<Recompute> parse_recompute(std::string_view name) {
  for (const Recompute mode : all_recompute_modes())
    if (name == to_string(mode))
      return mode;
  return std::nullopt;
}

/// Some of the arrays that a forward leaves for backward, by which part of backward reads them.
struct SavedParts {
  bool for_input = false;   ///< backward_input alone
  bool for_both = false;    ///< both parts
  bool for_weight = false;  ///< backward_weight alone

  static constexpr SavedParts all() { return {true, true, true}; }
};

/// Kept from forward to the end of backward, in the slot of the micro-batch.
constexpr SavedParts parts_in_slot(Recompute mode) {
  return {mode != Recompute::full, mode != Recompute::full, mode == Recompute::none};
}

/// Where one block after the other leaves what no slot keeps, in forward and again in backward.
constexpr SavedParts parts_in_scratch(Recompute mode) {
  return {mode == Recompute::full, mode == Recompute::full, mode != Recompute::none};
}

/// Kept with the gradients between a backward_input that computes all again and a backward_weight that comes later.
constexpr SavedParts parts_with_gradients(Recompute mode, bool split) {
  return {false, split && mode == Recompute::full, split && mode == Recompute::full};
}

/// Lets `mine` be `theirs` where it has no memory of its own.
template <class View>
void borrow(View& mine, const View& theirs) {
  if (mine.data() == nullptr)
    mine = theirs;
}

}  // namespace espalier
