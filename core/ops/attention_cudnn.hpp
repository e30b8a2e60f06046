// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/ops/attention.hpp"

namespace espalier::impl {

/// attention_forward() and attention_backward() through cuDNN's fused kernels, with the same log_sum_exp, so that one
/// may follow the other's. The first call for a shape makes the plans (seconds) and allocates the workspace.
/// @param type of the arrays but log_sum_exp, of 16 bits
/// @returns false, and does nothing, where this build or cuDNN has no kernels for the type, the shape or the GPU.
bool attention_forward_cudnn(const ExecSpace& exec, ScalarType type, void* out, float* log_sum_exp, const void* qkv,
                             const AttentionShape& shape);
bool attention_backward_cudnn(const ExecSpace& exec, ScalarType type, void* dqkv, const void* dout, void* out,
                              float* log_sum_exp, const void* qkv, const AttentionShape& shape);

/// What both want to work in; 0 where cuDNN does not do it.
std::size_t cudnn_workspace_bytes(ScalarType type, const AttentionShape& shape);

/// Why cuDNN does not compute attention of this type and shape on this GPU, once Kokkos is started; empty: it does.
std::string cudnn_refusal(ScalarType type, const AttentionShape& shape);

/// Gives the workspaces back, until the next call needs one.
void release_cudnn_workspaces();

/// Version of the library, "9.19.0"; empty in a build without it.
std::string cudnn_library_version();

}  // namespace espalier::impl
