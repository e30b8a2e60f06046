// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "core/error.hpp"
#include "core/ops/matmul_kernels.hpp"
#include "core/vector_math.hpp"

namespace espalier {
namespace {

constexpr Index edge = impl::widened_edge;
constexpr Index depth = impl::widened_depth;

struct Workspace {
  Tensor<float, 1> a = allocate<float>(Category::workspace, "widened_a", edge* depth);
  Tensor<float, 1> b = allocate<float>(Category::workspace, "widened_b", edge* depth);
  Tensor<float, 1> c = allocate<float>(Category::workspace, "widened_c", edge* edge);
};

// One for the process, as Kokkos lives once; given back before it ends.
std::optional<Workspace>& workspace() {
  static std::optional<Workspace> memory;
  static const bool hooked = [] {
    Kokkos::push_finalize_hook([] { memory.reset(); });
    return true;
  }();
  static_cast<void>(hooked);
  return memory;
}

// The block of op(m) at (row, col), as it lies in m.
template <class T>
Matrix<T> block_of(const Matrix<T>& m, Transpose t, Index row, Index col, Index rows, Index cols) {
  if (t == Transpose::yes)
    return {m.data + col * m.stride + row, cols, rows, m.stride};
  return {m.data + row * m.stride + col, rows, cols, m.stride};
}

template <class T>
Matrix<const float> widened(const ExecSpace& exec, const Matrix<const T>& from, const Tensor<float, 1>& memory) {
  const T* const data = from.data;
  const Index cols = from.cols, stride = from.stride;
  Kokkos::parallel_for(
      "espalier::core::matmul_widened::widen", row_policy(exec, from.rows), KOKKOS_LAMBDA(const TeamMember& team) {
        const T* const in = data + team.league_rank() * stride;
        float* const out = memory.data() + team.league_rank() * cols;
        row_for(team, cols, [&](const Index i) { out[i] = static_cast<float>(in[i]); });
      });
  return {memory.data(), from.rows, cols, cols};
}

// c = sum + beta * c, rounded once.
template <class T>
void narrow(const ExecSpace& exec, const Matrix<T>& c, const Tensor<float, 1>& sum, float beta) {
  T* const data = c.data;
  const Index cols = c.cols, stride = c.stride;
  Kokkos::parallel_for(
      "espalier::core::matmul_widened::narrow", row_policy(exec, c.rows), KOKKOS_LAMBDA(const TeamMember& team) {
        const float* const in = sum.data() + team.league_rank() * cols;
        T* const out = data + team.league_rank() * stride;
        if (beta == 0.0f)
          row_for(team, cols, [&](const Index i) { out[i] = static_cast<T>(in[i]); });
        else
          row_for(team, cols,
                  [&](const Index i) { out[i] = static_cast<T>(in[i] + beta * static_cast<float>(out[i])); });
      });
}

}  // namespace

namespace impl {

void release_widened_workspace() { workspace().reset(); }

template <class T, class Out>
void matmul_widened(MatmulLibrary library, const ExecSpace& exec, Matrix<Out> c, Transpose ta, Matrix<const T> a,
                    Transpose tb, Matrix<const T> b, float alpha, float beta) {
  if (!workspace())
    workspace().emplace();
  const Workspace& memory = *workspace();
  const Index inner = ta == Transpose::no ? a.cols : a.rows;
  for (Index col = 0; col < c.cols; col += edge) {
    const Index cols = smaller(edge, c.cols - col);
    for (Index row = 0; row < c.rows; row += edge) {
      const Index rows = smaller(edge, c.rows - row);
      const Matrix<Out> target = block_of(c, Transpose::no, row, col, rows, cols);
      for (Index k = 0; k < inner; k += depth) {
        const Index length = smaller(depth, inner - k);
        const Matrix<const float> left = widened(exec, block_of(a, ta, row, k, rows, length), memory.a);
        const Matrix<const float> right = widened(exec, block_of(b, tb, k, col, length, cols), memory.b);
        bool done = false;
        if constexpr (std::is_same_v<Out, float>)
          done = matmul_by_library<float>(library, exec, target, ta, left, tb, right, alpha, k == 0 ? beta : 1.0f);
        else
          done = matmul_by_library<float>(library, exec, {memory.c.data(), rows, cols, cols}, ta, left, tb, right,
                                          alpha, k == 0 ? 0.0f : 1.0f);
        ESPALIER_ASSERT(done, "a GEMM library has no fp32 matmul");
      }
      if constexpr (!std::is_same_v<Out, float>)
        narrow(exec, target, memory.c, beta);
    }
  }
}

#define ESPALIER_INSTANTIATE(T, Out)                                                                             \
  template void matmul_widened<T, Out>(MatmulLibrary, const ExecSpace&, Matrix<Out>, Transpose, Matrix<const T>, \
                                       Transpose, Matrix<const T>, float, float);
ESPALIER_FOR_16_BIT_MATMUL_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace impl
}  // namespace espalier
