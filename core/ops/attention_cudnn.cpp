// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention_cudnn.hpp"

#ifdef ESPALIER_HAVE_CUDNN
#include <map>
#include <optional>

#include "core/ops/cudnn_parts.hpp"
#include "core/ops/cudnn_plan.hpp"
#include "core/ops/stream_workspace.hpp"
#include "core/region.hpp"
#endif

namespace espalier::impl {

#ifdef ESPALIER_HAVE_CUDNN
namespace {

// The library's state in this process, given back before Kokkos ends.
struct Cudnn {
  CudnnHandle handle;
  std::map<CudnnShape, CudnnAttention> plans;
  StreamWorkspaces workspaces{"cudnn"};
};

std::optional<Cudnn>& cudnn() {
  static std::optional<Cudnn> state;
  static const bool hooked = [] {
    Kokkos::push_finalize_hook([] { state.reset(); });
    return true;
  }();
  static_cast<void>(hooked);
  return state;
}

// Why no plan is asked for; empty: one is.
std::string early_refusal(const AttentionShape& shape) {
  if (shape.batch <= 0 || shape.sequence_length <= 0 || shape.num_heads <= 0)
    return "there are no rows";
  return is_cudnn_head_size(shape.head_size) ? "" : "heads are not a multiple of 8 channels";
}

// Made at the first call.
const CudnnAttention& any_plan_of(ScalarType type, const AttentionShape& shape) {
  if (!cudnn())
    cudnn().emplace();
  const CudnnShape key{.batch = shape.batch,
                       .sequence_length = shape.sequence_length,
                       .num_heads = shape.num_heads,
                       .num_kv_heads = shape.num_kv_heads,
                       .head_size = shape.head_size,
                       .window = shape.window < shape.sequence_length ? shape.window : 0,
                       .is_bf16 = type == ScalarType::bf16};
  return cudnn()->plans.try_emplace(key, key, cudnn()->handle.get()).first->second;
}

// nullptr where cuDNN has none.
const CudnnAttention* plan_of(ScalarType type, const AttentionShape& shape) {
  if (!early_refusal(shape).empty())
    return nullptr;
  const CudnnAttention& plan = any_plan_of(type, shape);
  return plan.refusal().empty() ? &plan : nullptr;
}

void* workspace_of(const ExecSpace& exec, const CudnnAttention& plan) {
  return plan.workspace_bytes() == 0 ? nullptr : cudnn()->workspaces.get(exec.cuda_stream(), plan.workspace_bytes());
}

}  // namespace

bool attention_forward_cudnn(const ExecSpace& exec, ScalarType type, void* out, float* log_sum_exp, const void* qkv,
                             const AttentionShape& shape) {
  const CudnnAttention* const plan = plan_of(type, shape);
  if (plan == nullptr)
    return false;
  const Region region("espalier::core::attention_forward");
  plan->forward(exec.cuda_stream(), {.qkv = qkv,
                                     .out = out,
                                     .log_sum_exp = log_sum_exp,
                                     .dout = nullptr,
                                     .dqkv = nullptr,
                                     .workspace = workspace_of(exec, *plan)});
  return true;
}

bool attention_backward_cudnn(const ExecSpace& exec, ScalarType type, void* dqkv, const void* dout, void* out,
                              float* log_sum_exp, const void* qkv, const AttentionShape& shape) {
  const CudnnAttention* const plan = plan_of(type, shape);
  if (plan == nullptr)
    return false;
  const Region region("espalier::core::attention_backward");
  plan->backward(exec.cuda_stream(), {.qkv = qkv,
                                      .out = out,
                                      .log_sum_exp = log_sum_exp,
                                      .dout = dout,
                                      .dqkv = dqkv,
                                      .workspace = workspace_of(exec, *plan)});
  return true;
}

std::size_t cudnn_workspace_bytes(ScalarType type, const AttentionShape& shape) {
  const CudnnAttention* const plan = plan_of(type, shape);
  return plan == nullptr ? 0 : StreamWorkspaces::with_gap(plan->workspace_bytes());
}

std::string cudnn_refusal(ScalarType type, const AttentionShape& shape) {
  const std::string early = early_refusal(shape);
  return early.empty() ? any_plan_of(type, shape).refusal() : early;
}

void release_cudnn_workspaces() {
  if (cudnn())
    cudnn()->workspaces.release();
}

std::string cudnn_library_version() { return cudnn_version(); }

#else

bool attention_forward_cudnn(const ExecSpace&, ScalarType, void*, float*, const void*, const AttentionShape&) {
  return false;
}

bool attention_backward_cudnn(const ExecSpace&, ScalarType, void*, const void*, void*, float*, const void*,
                              const AttentionShape&) {
  return false;
}

std::size_t cudnn_workspace_bytes(ScalarType, const AttentionShape&) { return 0; }

std::string cudnn_refusal(ScalarType, const AttentionShape&) { return "not in this build"; }

void release_cudnn_workspaces() {}

std::string cudnn_library_version() { return {}; }

#endif

}  // namespace espalier::impl
