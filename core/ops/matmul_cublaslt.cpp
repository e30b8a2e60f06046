// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/matmul_cublaslt.hpp"

#ifdef ESPALIER_HAVE_CUBLASLT
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <optional>

#include "core/cuda_check.hpp"
#include "core/ops/matmul_cublaslt_gemm.hpp"
#include "core/ops/stream_workspace.hpp"
#endif

namespace espalier::impl {

#ifdef ESPALIER_HAVE_CUBLASLT
namespace {

static_assert(StreamWorkspaces::with_gap(usable_workspace + max_bias_bytes) == cublaslt_workspace_bytes);

std::uint32_t alignment_of(const void* address) {
  constexpr std::uintptr_t most =
      128;  // parameters begin at multiples of it; what differs in more would be timed apart
  const std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(address) | most;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

// The library's state in this process, given back before Kokkos ends.
struct Library {
  cublasLtHandle_t handle = nullptr;
  std::map<CublasltShape, CublasltMatmul> gemms;
  std::map<std::string, std::string> preferred;  // choices of an earlier process
  StreamWorkspaces workspaces{"cublaslt"};
  ~Library() {
    if (handle != nullptr)
      static_cast<void>(cublasLtDestroy(handle));
  }
};

std::optional<Library>& library() {
  static std::optional<Library> state;
  static const bool hooked = [] {
    Kokkos::push_finalize_hook([] { state.reset(); });
    return true;
  }();
  static_cast<void>(hooked);
  return state;
}

Library& opened_library() {
  if (!library()) {
    library().emplace();
    check_cublaslt(cublasLtCreate(&library()->handle), "cublasLtCreate", {});
  }
  return *library();
}

template <class S>
void add_bias_sums(const ExecSpace& exec, S* gradient, const S* sums, Index count, S beta) {
  Kokkos::parallel_for(
      "espalier::core::bias_backward", RangePolicy(exec, 0, count),
      KOKKOS_LAMBDA(const Index i) { gradient[i] = sums[i] + (beta == 0 ? 0 : gradient[i]); });
}

// The time of the matmul whose epilogue leaves the pass out.
float ms_without_pass(Library& state, CublasltShape shape, Operands operands, void* workspace, cudaStream_t stream) {
  if (shape.epilogue == EpilogueKind::bias_gradient) {
    operands.bias = nullptr;
    shape.bias_alignment = alignment_of(nullptr);
  }
  operands.before_gelu = nullptr;
  shape.before_gelu_alignment = alignment_of(nullptr);
  shape.epilogue = shape.epilogue == EpilogueKind::bias_gelu ? EpilogueKind::bias : EpilogueKind::none;
  const auto [entry, is_new] = state.gemms.try_emplace(shape, shape);
  if (is_new)
    entry->second.choose(state.handle, operands, workspace, stream);
  return entry->second.ms();
}

bool takes_preferred(const Library& state, CublasltMatmul& gemm, const Operands& operands) {
  if (state.preferred.empty())
    return false;
  const auto found = state.preferred.find(gemm.text());
  return found != state.preferred.end() && gemm.take_choice(state.handle, found->second, operands);
}

}  // namespace

template <class T, class Out>
bool matmul_cublaslt(const ExecSpace& exec, bool tf32, Matrix<Out> c, Transpose ta, Matrix<const T> a, Transpose tb,
                     Matrix<const T> b, State<T> alpha, State<T> beta, const Epilogue<Out>& epilogue,
                     const std::function<void(Out*)>& pass) {
  constexpr Index gelu_step = 8;  // what cuBLASLt wants the stride of the second matrix to be a multiple of
  if (epilogue.before_gelu != nullptr && c.stride % gelu_step != 0)
    return false;
  if (epilogue.bias_gradient != nullptr && static_cast<std::size_t>(c.rows) * sizeof(Out) > max_bias_bytes)
    return false;
  const Out* const addend = epilogue.addend != nullptr ? epilogue.addend : c.data;
  Library& state = opened_library();
  const cudaStream_t stream = exec.cuda_stream();
  auto* const workspace = static_cast<std::byte*>(state.workspaces.get(stream, usable_workspace + max_bias_bytes));
  Out* const bias_sums = reinterpret_cast<Out*>(workspace + usable_workspace);
  const Out* const bias = epilogue.bias_gradient != nullptr ? bias_sums : epilogue.bias;
  const CublasltShape shape{.type = scalar_type_of<T>(),
                            .result = scalar_type_of<Out>(),
                            .tf32 = tf32 && std::is_same_v<T, float>,
                            .rows = c.rows,
                            .cols = c.cols,
                            .inner = ta == Transpose::no ? a.cols : a.rows,
                            .ta = ta,
                            .tb = tb,
                            .a_stride = a.stride,
                            .b_stride = b.stride,
                            .c_stride = c.stride,
                            .has_addend = beta != State<T>(0),
                            .epilogue = epilogue.kind,
                            .a_alignment = alignment_of(a.data),
                            .b_alignment = alignment_of(b.data),
                            .addend_alignment = alignment_of(addend),
                            .c_alignment = alignment_of(c.data),
                            .bias_alignment = alignment_of(bias),
                            .before_gelu_alignment = alignment_of(epilogue.before_gelu)};
  const Operands operands{.a = a.data,
                          .b = b.data,
                          .addend = addend,
                          .bias = bias,
                          .c = c.data,
                          .before_gelu = epilogue.before_gelu,
                          .alpha = &alpha,
                          .beta = &beta};
  const auto [entry, is_new] = state.gemms.try_emplace(shape, shape);
  CublasltMatmul& gemm = entry->second;
  if (is_new && !takes_preferred(state, gemm, operands)) {
    gemm.choose(state.handle, operands, workspace, stream);
    if (pass && std::isfinite(gemm.ms())) {
      constexpr float margin = 0.93F;  // the pass rounds otherwise: few runs are to choose otherwise than others
      const auto ms_of = [&](const auto& work) {
        return time_ms(stream, "a pass beside a matmul", [&] { return work(), true; });
      };
      float with = gemm.ms();
      if constexpr (std::is_same_v<Out, State<T>>)
        if (epilogue.bias_gradient != nullptr)
          with += ms_of([&] { add_bias_sums<Out>(exec, bias_sums, bias_sums, c.rows, 0); });
      const float without =
          ms_without_pass(state, shape, operands, workspace, stream) + ms_of([&] { pass(bias_sums); });
      if (is_faster(without, margin * with))
        gemm.give_up();
    }
  }
  if (gemm.has_algorithm()) {
    gemm.run(state.handle, operands, workspace, stream);
    if constexpr (std::is_same_v<Out, State<T>>)
      if (epilogue.bias_gradient != nullptr)
        add_bias_sums<Out>(exec, epilogue.bias_gradient, bias_sums, c.rows, beta);
  }
  return gemm.has_algorithm();
}

void release_cublaslt_workspaces() {
  if (library())
    library()->workspaces.release();
}

MatmulChoices cublaslt_choices() {
  cudaDeviceProp device{};
  ESPALIER_CUDA(cudaGetDeviceProperties(&device, Kokkos::device_id()));
  MatmulChoices choices{.made_with = fmt::format("cuBLASLt {} on {}", cublaslt_version(), device.name), .kernels = {}};
  if (library()) {
    choices.kernels = library()->preferred;
    for (const auto& [shape, gemm] : library()->gemms)
      choices.kernels.insert_or_assign(gemm.text(), gemm.choice());
  }
  return choices;
}

// What was chosen before, to measure the machine say, is chosen anew.
void prefer_cublaslt_choices(const std::map<std::string, std::string>& kernels) {
  Library& state = opened_library();
  state.preferred = kernels;
  state.gemms.clear();
}

std::string cublaslt_version() {
  const std::size_t version = cublasLtGetVersion();  // major * 10000 + minor * 100 + patch
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

#else

template <class T, class Out>
bool matmul_cublaslt(const ExecSpace&, bool, Matrix<Out>, Transpose, Matrix<const T>, Transpose, Matrix<const T>,
                     State<T>, State<T>, const Epilogue<Out>&, const std::function<void(Out*)>&) {
  return false;
}

void release_cublaslt_workspaces() {}

MatmulChoices cublaslt_choices() { return {}; }
void prefer_cublaslt_choices(const std::map<std::string, std::string>&) {}

std::string cublaslt_version() { return {}; }

#endif

#define ESPALIER_INSTANTIATE(T, Out)                                                                                \
  template bool matmul_cublaslt<T, Out>(const ExecSpace&, bool, Matrix<Out>, Transpose, Matrix<const T>, Transpose, \
                                        Matrix<const T>, State<T>, State<T>, const Epilogue<Out>&,                  \
                                        const std::function<void(Out*)>&);
ESPALIER_FOR_MATMUL_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier::impl
