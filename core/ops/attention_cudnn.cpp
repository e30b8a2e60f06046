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
template <class T>
const CudnnAttention& any_plan_of(const AttentionShape& shape) {
  if (!cudnn())
    cudnn().emplace();
  const CudnnShape key{.batch = shape.batch,
                       .sequence_length = shape.sequence_length,
                       .num_heads = shape.num_heads,
                       .num_kv_heads = shape.num_kv_heads,
                       .head_size = shape.head_size,
                       .window = shape.window < shape.sequence_length ? shape.window : 0,
                       .is_bf16 = std::is_same_v<T, bfloat16>};
  return cudnn()->plans.try_emplace(key, key, cudnn()->handle.get()).first->second;
}

// nullptr where cuDNN has none.
template <class T>
const CudnnAttention* plan_of(const AttentionShape& shape) {
  if (!early_refusal(shape).empty())
    return nullptr;
  const CudnnAttention& plan = any_plan_of<T>(shape);
  return plan.refusal().empty() ? &plan : nullptr;
}

void* workspace_of(const ExecSpace& exec, const CudnnAttention& plan) {
  return plan.workspace_bytes() == 0 ? nullptr : cudnn()->workspaces.get(exec.cuda_stream(), plan.workspace_bytes());
}

}  // namespace

template <class T>
bool attention_forward_cudnn(const ExecSpace& exec, const Tensor<T, 2>& out, const Tensor<float, 1>& log_sum_exp,
                             const Tensor<T, 2>& qkv, const AttentionShape& shape) {
  const CudnnAttention* const plan = plan_of<T>(shape);
  if (plan == nullptr)
    return false;
  const Region region("espalier::core::attention_forward");
  plan->forward(exec.cuda_stream(), {.qkv = qkv.data(),
                                     .out = out.data(),
                                     .log_sum_exp = log_sum_exp.data(),
                                     .dout = nullptr,
                                     .dqkv = nullptr,
                                     .workspace = workspace_of(exec, *plan)});
  return true;
}

template <class T>
bool attention_backward_cudnn(const ExecSpace& exec, const Tensor<T, 2>& dqkv, const Tensor<T, 2>& dout,
                              const Tensor<T, 2>& out, const Tensor<float, 1>& log_sum_exp, const Tensor<T, 2>& qkv,
                              const AttentionShape& shape) {
  const CudnnAttention* const plan = plan_of<T>(shape);
  if (plan == nullptr)
    return false;
  const Region region("espalier::core::attention_backward");
  plan->backward(exec.cuda_stream(), {.qkv = qkv.data(),
                                      .out = out.data(),
                                      .log_sum_exp = log_sum_exp.data(),
                                      .dout = dout.data(),
                                      .dqkv = dqkv.data(),
                                      .workspace = workspace_of(exec, *plan)});
  return true;
}

template <class T>
std::size_t cudnn_workspace_bytes(const AttentionShape& shape) {
  const CudnnAttention* const plan = plan_of<T>(shape);
  return plan == nullptr ? 0 : StreamWorkspaces::with_gap(plan->workspace_bytes());
}

template <class T>
std::string cudnn_refusal(const AttentionShape& shape) {
  const std::string early = early_refusal(shape);
  return early.empty() ? any_plan_of<T>(shape).refusal() : early;
}

void release_cudnn_workspaces() {
  if (cudnn())
    cudnn()->workspaces.release();
}

std::string cudnn_library_version() { return cudnn_version(); }

#else

template <class T>
bool attention_forward_cudnn(const ExecSpace&, const Tensor<T, 2>&, const Tensor<float, 1>&, const Tensor<T, 2>&,
                             const AttentionShape&) {
  return false;
}

template <class T>
bool attention_backward_cudnn(const ExecSpace&, const Tensor<T, 2>&, const Tensor<T, 2>&, const Tensor<T, 2>&,
                              const Tensor<float, 1>&, const Tensor<T, 2>&, const AttentionShape&) {
  return false;
}

template <class T>
std::size_t cudnn_workspace_bytes(const AttentionShape&) {
  return 0;
}

template <class T>
std::string cudnn_refusal(const AttentionShape&) {
  return "not in this build";
}

void release_cudnn_workspaces() {}

std::string cudnn_library_version() { return {}; }

#endif

#define ESPALIER_INSTANTIATE(T)                                                                                \
  template bool attention_forward_cudnn<T>(const ExecSpace&, const Tensor<T, 2>&, const Tensor<float, 1>&,     \
                                           const Tensor<T, 2>&, const AttentionShape&);                        \
  template bool attention_backward_cudnn<T>(const ExecSpace&, const Tensor<T, 2>&, const Tensor<T, 2>&,        \
                                            const Tensor<T, 2>&, const Tensor<float, 1>&, const Tensor<T, 2>&, \
                                            const AttentionShape&);                                            \
  template std::size_t cudnn_workspace_bytes<T>(const AttentionShape&);                                        \
  template std::string cudnn_refusal<T>(const AttentionShape&);
ESPALIER_INSTANTIATE(bfloat16)
ESPALIER_INSTANTIATE(float16)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier::impl
