// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "core/ops/attention.hpp"

namespace espalier {

/// Whose kernels compute attention: our own, or, on NVIDIA GPUs and in 16 bits, cuDNN's.
enum class AttentionLibrary { own, cudnn };
const char* to_string(AttentionLibrary library);

/// Those that some build has.
inline constexpr std::array all_attention_libraries{AttentionLibrary::own, AttentionLibrary::cudnn};

/// Those this build has, the one to prefer last.
std::vector<AttentionLibrary> attention_libraries();

/// The one that attention_forward() and attention_backward() use from now on, where it has kernels for the type and the
/// shape; our own kernels do the rest. A choice of the process, made once before training: bits depend on it.
AttentionLibrary attention_library();
void set_attention_library(AttentionLibrary library);

/// Which library the word means; "auto": the one to prefer. @throws Error (usage) naming those present.
AttentionLibrary parse_attention_library(const std::string& word);

/// Bytes of device memory that attention of this type and shape through this library holds on to from its first call.
/// Makes cuDNN's plans, which takes seconds the first time; where Kokkos, and with it the GPU, is not started, it is
/// unknown: 0.
std::size_t attention_workspace_bytes(ScalarType type, AttentionLibrary library, const AttentionShape& shape);

/// Whose kernels attention of this type and shape goes through in this process: "cuDNN", "own kernels", or why not
/// cuDNN. Once Kokkos is started.
std::string describe_attention(ScalarType type, const AttentionShape& shape);

/// Gives back what it holds on to, until the next call.
void release_attention_workspace();

/// One line about them: "own kernels, cuDNN 9.19.0".
std::string describe_attention_libraries();

}  // namespace espalier
