// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/vector_math.hpp"

namespace espalier {

/// Whether runs of `columns` columns consist of packs in every row of the array, whose rows may lie apart.
template <class T>
bool columns_are_packs(Index columns, const Tensor2<T>& array) {
  return rows_are_packs(columns, array.data()) && static_cast<Index>(array.stride(0)) % Pack<int>::size == 0;
}

namespace impl {

/// On hosts: a strip of columns belongs to one thread, which walks the rows in order.
template <int Count, class S, class Terms, class Store>
void column_sums_by_strips(const ExecSpace& exec, const char* label, Index rows, Index cols, const Terms& terms,
                           const Store& store) {
  constexpr Index strip = 32;
  const Index strips = (cols + strip - 1) / strip;
  Kokkos::parallel_for(
      label, RangePolicy(exec, 0, strips), KOKKOS_LAMBDA(const Index s) {
        const Index first = s * strip;
        const Index width = first + strip <= cols ? strip : cols - first;
        S sum[Count][strip] = {};
        const auto add_row = [&](const Index r, const Index columns) {
          for (Index c = 0; c < columns; ++c) {
            S of_column[Count][1];
            terms(of_column, r, first + c);
            for (int k = 0; k < Count; ++k)
              sum[k][c] += of_column[k][0];
          }
        };
        for (Index r = 0; r < rows; ++r) {
          if (width == strip)
            add_row(r, strip);  // a trip count known to the compiler
          else
            add_row(r, width);
        }
        for (Index c = 0; c < width; ++c) {
          S total[Count];
          for (int k = 0; k < Count; ++k)
            total[k] = sum[k][c];
          store(first + c, total);
        }
      });
}

/// On GPUs: 16 neighbouring columns, 32 bytes of 16-bit numbers, belong to a team. Each of its lanes takes `size` of
/// them, a pack, of every so many rows, some rows at a time: a matrix has few such teams, and memory wants many loads
/// under way. Then the sums of the lanes are added in pairs.
template <int size, int Count, class S, class Terms, class Store>
void column_sums_by_teams(const ExecSpace& exec, const char* label, Index rows, Index cols, const Terms& terms,
                          const Store& store) {
  constexpr int threads = 128 / sizeof(S), lanes = 16, columns = 16;
  constexpr int lanes_a_row = columns / size, rows_a_thread = lanes / lanes_a_row;
  constexpr int rows_a_team = threads * rows_a_thread;
  constexpr int rows_at_once = 4;
  constexpr int sums = Count * columns;  // of a row; one number more keeps rows in different banks
  using Partial = Kokkos::View<S[rows_a_team][sums + 1], Kokkos::LayoutRight, ExecSpace::scratch_memory_space,
                               Kokkos::MemoryUnmanaged>;
  static_assert(sizeof(S) * rows_a_team * (sums + 1) <= std::size_t{40} << 10);
  using Policy = Kokkos::TeamPolicy<ExecSpace, Kokkos::LaunchBounds<threads * lanes, 1>>;
  Policy policy(exec, team_count((cols + columns - 1) / columns), threads, lanes);
  policy.set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(Partial::shmem_size())));
  Kokkos::parallel_for(
      label, policy, KOKKOS_LAMBDA(const TeamMember& team) {
        const Partial partial(team.team_scratch(0));
        const Index first = team.league_rank() * Index{columns};
        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, lanes), [&](const int lane) {
          const int row = team.team_rank() * rows_a_thread + lane / lanes_a_row;
          const int column = lane % lanes_a_row * size;
          S sum[Count][size] = {};
          const auto add_rows = [&](const Index r, const int count) {
            S of_row[rows_at_once][Count][size];
            for (int i = 0; i < count; ++i)
              terms(of_row[i], r + Index{i} * rows_a_team, first + column);
            for (int i = 0; i < count; ++i)
              for (int k = 0; k < Count; ++k)
                for (int c = 0; c < size; ++c)
                  sum[k][c] += of_row[i][k][c];
          };
          Index r = first + column < cols ? row : rows;
          for (; r + Index{rows_at_once - 1} * rows_a_team < rows; r += Index{rows_at_once} * rows_a_team)
            add_rows(r, rows_at_once);  // a trip count known to the compiler
          for (; r < rows; r += rows_a_team)
            add_rows(r, 1);
          for (int k = 0; k < Count; ++k)
            for (int c = 0; c < size; ++c)
              partial(row, k * columns + column + c) = sum[k][c];
        });
        team.team_barrier();
        for (int half = rows_a_team / 2; half > 0; half /= 2) {
          Kokkos::parallel_for(Kokkos::TeamVectorRange(team, half * sums),
                               [&](const int i) { partial(i / sums, i % sums) += partial(i / sums + half, i % sums); });
          team.team_barrier();
        }
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, smaller(columns, cols - first)), [&](const Index c) {
          S total[Count];
          for (int k = 0; k < Count; ++k)
            total[k] = partial(0, k * columns + c);
          store(first + c, total);
        });
      });
}

}  // namespace impl

/// sum_k(c) += sum over r < rows of the k-th term of (r, c), for k < Count: the gradients of biases and norms. The
/// order of a sum depends on nothing but the number of rows and whether columns can be taken in packs. terms(S
/// (&out)[Count][size], row, col), for any size, gives the terms of `size` columns, which are read as a pack; `packed`:
/// those of any column that is a multiple of 8 can be. store(col, S sum[Count]) adds the sums to the result.
template <int Count, class S, class Terms, class Store>
void column_sums(const ExecSpace& exec, const char* label, Index rows, Index cols, [[maybe_unused]] bool packed,
                 const Terms& terms, const Store& store) {
  if constexpr (exec_is_host)
    impl::column_sums_by_strips<Count, S>(exec, label, rows, cols, terms, store);
  else if (packed)
    impl::column_sums_by_teams<8, Count, S>(exec, label, rows, cols, terms, store);
  else
    impl::column_sums_by_teams<1, Count, S>(exec, label, rows, cols, terms, store);
}

}  // namespace espalier
