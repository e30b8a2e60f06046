// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>
#include <vector>

// The arrays that a block's forward saves for its backward, and which of them are recomputed instead of kept.

namespace espalier {

enum class ReadBy { backward_input, backward_weight, both_parts };
enum class MadeBy { elementwise, matmul, attention };

/// One line of the list of saved arrays. A layer lists its arrays in one function,
/// `Saved::each(visit, extents...)`, which calls visit(array, SavedArray, extents...) for each of them. Allocation,
/// recomputation and memory prediction go through that list.
struct SavedArray {
  const char* name;
  MadeBy made_by;
  ReadBy read_by;
};

/// Activation checkpointing (Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016; Korthikanti et al.,
/// 2022): which saved arrays a block computes again instead of keeping them. All modes give the same bits, but not in
/// 16 bits on a GPU: there our own kernel recomputes a GELU that is part of a matmul of cuBLASLt. docs/memory.md has
/// the bytes.
enum class Recompute {
  none,
  selective,  ///< what is cheap to compute: the outputs of the norms and of GELU, when weight gradients need them
  full        ///< all but the block's input and output, at the start of its backward
};

/// Whether the array is kept from forward to the end of backward.
constexpr bool is_kept(const SavedArray& array, Recompute mode) {
  switch (mode) {
    case Recompute::none: return true;
    case Recompute::selective: return array.made_by != MadeBy::elementwise || array.read_by != ReadBy::backward_weight;
    case Recompute::full: return false;
  }
  return true;
}

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

}  // namespace espalier
