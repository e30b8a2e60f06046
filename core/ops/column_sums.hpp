// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/vector_math.hpp"

namespace espalier {
namespace impl {

/// On hosts: a strip of columns belongs to one thread, which walks the rows in order.
template <int Count, class S, class Term, class Store>
void column_sums_by_strips(const ExecSpace& exec, const char* label, Index rows, Index cols, const Term& term,
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
            S terms[Count];
            term(r, first + c, terms);
            for (int k = 0; k < Count; ++k)
              sum[k][c] += terms[k];
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

/// On GPUs: neighbouring columns belong to a team, whose threads walk every 64th row; their sums are added in order.
/// The widest teams there are, and some rows at a time: a matrix has few such teams, and memory wants many loads under
/// way.
template <int Count, class S, class Term, class Store>
void column_sums_by_teams(const ExecSpace& exec, const char* label, Index rows, Index cols, const Term& term,
                          const Store& store) {
  constexpr int lanes = 16;  // 32 bytes of 16-bit numbers, the least that memory is read in
  constexpr int threads = 64;
  constexpr Index rows_at_once = 4;
  using Partial = Kokkos::View<S[Count][threads][lanes], ExecSpace::scratch_memory_space, Kokkos::MemoryUnmanaged>;
  using Policy = Kokkos::TeamPolicy<ExecSpace, Kokkos::LaunchBounds<threads * lanes, 1>>;
  Policy policy(exec, team_count((cols + lanes - 1) / lanes), threads, lanes);
  policy.set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(Partial::shmem_size())));
  Kokkos::parallel_for(
      label, policy, KOKKOS_LAMBDA(const TeamMember& team) {
        const Partial partial(team.team_scratch(0));
        const Index first = team.league_rank() * Index{lanes};
        const Index width = smaller(lanes, cols - first);
        const int thread = team.team_rank();
        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, width), [&](const Index c) {
          S sum[Count] = {};
          const auto add_rows = [&](const Index r, const Index count) {
            S terms[rows_at_once][Count];
            for (Index i = 0; i < count; ++i)
              term(r + i * threads, first + c, terms[i]);
            for (Index i = 0; i < count; ++i)
              for (int k = 0; k < Count; ++k)
                sum[k] += terms[i][k];
          };
          Index r = thread;
          for (; r + (rows_at_once - 1) * threads < rows; r += rows_at_once * threads)
            add_rows(r, rows_at_once);  // a trip count known to the compiler
          for (; r < rows; r += threads)
            add_rows(r, 1);
          for (int k = 0; k < Count; ++k)
            partial(k, thread, c) = sum[k];
        });
        team.team_barrier();
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, width), [&](const Index c) {
          S total[Count] = {};
          for (int k = 0; k < Count; ++k)
            for (int t = 0; t < threads; ++t)
              total[k] += partial(k, t, c);
          store(first + c, total);
        });
      });
}

}  // namespace impl

/// sum_k(c) += sum over r < rows of term(r, c)[k], for k < Count: the gradients of biases and norms. The order of a sum
/// depends on nothing but the number of rows.
/// term(row, col, S out[Count]) fills the Count terms; store(col, S sum[Count]) adds them to the result.
template <int Count, class S, class Term, class Store>
void column_sums(const ExecSpace& exec, const char* label, Index rows, Index cols, const Term& term,
                 const Store& store) {
  if constexpr (exec_is_host)
    impl::column_sums_by_strips<Count, S>(exec, label, rows, cols, term, store);
  else
    impl::column_sums_by_teams<Count, S>(exec, label, rows, cols, term, store);
}

}  // namespace espalier
