// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"
#include "core/ops/matmul_kernels.hpp"
#include "core/vector_math.hpp"

namespace espalier::impl {
namespace {

// Three tiles fit the scratch memory of a GPU team, or the first-level caches of a core.
template <class S>
constexpr Index tile_size = exec_is_host && sizeof(S) == 4 ? 64 : 32;
constexpr int scratch_level = exec_is_host ? 1 : 0;

// What every GPU gives a team without being asked for more, less what aligns each tile.
constexpr Index device_scratch_bytes = (Index{48} << 10) - 3 * 16;

template <class T>
using ScratchTile = Kokkos::View<T**, Kokkos::LayoutRight, ExecSpace::scratch_memory_space, Kokkos::MemoryUnmanaged>;

// Copies the (rows x cols) corner at (row, col) of op(m) into a tile, the rest of the tile with zeros.
template <class T>
KOKKOS_INLINE_FUNCTION void load_tile(const TeamMember& team, const ScratchTile<State<T>>& to, const T* data,
                                      Index stride, bool transposed, Index row, Index col, Index rows, Index cols) {
  constexpr Index tile = tile_size<State<T>>;
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, tile), [&](const Index i) {
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, tile), [&](const Index j) {
      const Index at = transposed ? (col + j) * stride + row + i : (row + i) * stride + col + j;
      to(i, j) = i < rows && j < cols ? static_cast<State<T>>(data[at]) : State<T>(0);
    });
  });
}

}  // namespace

/// The textbook picture of tiling inside a device: a team owns one (tile x tile) piece of C and walks along the
/// inner dimension, one piece of A and one of B in fast memory at a time:
///
///     C(I, J) = sum over K of A(I, K) * B(K, J)
///
/// Each element of A and B is read from slow memory once a tile, not once a product: traffic falls by the tile size.
/// The sum is kept in the state type (fp32 for 16-bit inputs).
template <class T, class Out>
void matmul_tiled(const ExecSpace& exec, Matrix<Out> c, Transpose ta, Matrix<const T> a, Transpose tb,
                  Matrix<const T> b, State<T> alpha, State<T> beta) {
  using S = State<T>;
  constexpr Index tile = tile_size<S>;
  static_assert(exec_is_host || 3 * tile * tile * static_cast<Index>(sizeof(S)) <= device_scratch_bytes,
                "espalier::matmul_tiled: three tiles do not fit the scratch memory of a team");
  const Index inner = ta == Transpose::no ? a.cols : a.rows;
  const Index tile_rows = (c.rows + tile - 1) / tile;
  const Index tile_cols = (c.cols + tile - 1) / tile;
  const bool transposed_a = ta == Transpose::yes;
  const bool transposed_b = tb == Transpose::yes;
  Out* const c_data = c.data;
  const T* const a_data = a.data;
  const T* const b_data = b.data;
  const Index c_rows = c.rows, c_cols = c.cols, c_stride = c.stride, a_stride = a.stride, b_stride = b.stride;

  TeamPolicy policy = row_policy(exec, tile_rows * tile_cols);
  policy.set_scratch_size(scratch_level, Kokkos::PerTeam(3 * static_cast<int>(ScratchTile<S>::shmem_size(tile, tile))));
  Kokkos::parallel_for(
      "espalier::core::matmul_tiled", policy, KOKKOS_LAMBDA(const TeamMember& team) {
        const Index row = team.league_rank() / tile_cols * tile;
        const Index col = team.league_rank() % tile_cols * tile;
        const Index rows = smaller(tile, c_rows - row);
        const Index cols = smaller(tile, c_cols - col);
        const ScratchTile<S> tile_a(team.team_scratch(int{scratch_level}), tile, tile);
        const ScratchTile<S> tile_b(team.team_scratch(int{scratch_level}), tile, tile);
        const ScratchTile<S> sum(team.team_scratch(int{scratch_level}), tile, tile);
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, tile), [&](const Index i) {
          Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, tile), [&](const Index j) { sum(i, j) = 0; });
        });
        for (Index k0 = 0; k0 < inner; k0 += tile) {
          const Index depth = smaller(tile, inner - k0);
          team.team_barrier();  // the tiles of the last round are no longer read
          load_tile<T>(team, tile_a, a_data, a_stride, transposed_a, row, k0, rows, depth);
          load_tile<T>(team, tile_b, b_data, b_stride, transposed_b, k0, col, depth, cols);
          team.team_barrier();  // the tiles are complete
          Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](const Index i) {
            for (Index k = 0; k < depth; ++k) {
              const S factor = tile_a(i, k);
              Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, tile),
                                   [&](const Index j) { sum(i, j) += factor * tile_b(k, j); });
            }
          });
        }
        team.team_barrier();
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](const Index i) {
          Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, cols), [&](const Index j) {
            Out& out = c_data[(row + i) * c_stride + col + j];
            const S old = beta == S(0) ? S(0) : beta * static_cast<S>(out);
            out = static_cast<Out>(alpha * sum(i, j) + old);
          });
        });
      });
}

#define ESPALIER_INSTANTIATE(T, Out)                                                                       \
  template void matmul_tiled<T, Out>(const ExecSpace&, Matrix<Out>, Transpose, Matrix<const T>, Transpose, \
                                     Matrix<const T>, State<T>, State<T>);
ESPALIER_FOR_MATMUL_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier::impl
