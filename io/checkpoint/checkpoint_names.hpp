// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/scalars.hpp"

// Names of checkpoints, of their files and of the tensors in them (docs/checkpoint_format.md).

namespace espalier {

inline constexpr const char* manifest_name = "manifest.json";
inline constexpr const char* index_name = "index.h5";

/// "rank-00003.h5"
std::string shard_name(Index rank);
/// No other name: so no path can leave the directory.
bool is_shard_name(std::string_view name);

/// "step-00000100"
std::string step_name(Index step);
/// The step of such a name.
std::optional<Index> step_in(std::string_view name);

/// Groups of tensors: the weights or master weights, and the moments of AdamW.
inline constexpr const char* weights_group = "weights";
inline constexpr const char* exp_avg_group = "exp_avg";
inline constexpr const char* exp_avg_sq_group = "exp_avg_sq";

/// "weights/h.3.mlp.up.weight"; without a parameter "weights/".
std::string tensor_name(std::string_view group, std::string_view parameter);

}  // namespace espalier
