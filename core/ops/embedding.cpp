// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/embedding.hpp"

#include "core/vector_math.hpp"

namespace espalier {
namespace {

// table(row_of(n), :) += dx(n, :) for all n in order; a negative row is left out. Columns of one thread, which walks
// all rows: for hosts.
template <class S, class T, class RowOf>
void scatter_rows(const ExecSpace& exec, const char* label, const Tensor<S, 2>& table, const Tensor<T, 2>& dx,
                  const RowOf& row_of) {
  constexpr Index strip = 32;
  const Index rows = dx.extent(0);
  const Index channels = dx.extent(1);
  Kokkos::parallel_for(
      label, RangePolicy(exec, 0, (channels + strip - 1) / strip), KOKKOS_LAMBDA(const Index s) {
        const Index first = s * strip;
        const Index last = first + strip < channels ? first + strip : channels;
        for (Index n = 0; n < rows; ++n) {
          const Index row = row_of(n);
          if (row < 0)
            continue;
          for (Index c = first; c < last; ++c)
            table(row, c) += static_cast<S>(dx(n, c));
        }
      });
}

// The same with a team for each n, for GPUs: the first row that goes to a place of the table adds all that go there, in
// order, from a list of some rows at a time.
template <class S, class T, class RowOf>
void scatter_rows_by_teams(const ExecSpace& exec, const char* label, const Tensor<S, 2>& table, const Tensor<T, 2>& dx,
                           const RowOf& row_of) {
  using List = Kokkos::View<Index*, ExecSpace::scratch_memory_space, Kokkos::MemoryUnmanaged>;
  constexpr Index window = 1024;
  constexpr int threads = 64;        // eight columns each
  constexpr Index rows_at_once = 8;  // of a frequent token, so that many loads are under way
  const Index rows = dx.extent(0);
  const Index channels = dx.extent(1);
  // Packs in each row, or in none, where rows begin at any multiple of T.
  const Index packs = channels % Pack<T>::size == 0 ? impl::packs_of(channels, table.data(), dx.data()) : 0;
  TeamPolicy policy(exec, team_count(rows), threads, 1);
  policy.set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(List::shmem_size(window))));
  Kokkos::parallel_for(
      label, policy, KOKKOS_LAMBDA(const TeamMember& team) {
        const List list(team.team_scratch(0), Index{window});
        const Index own = team.league_rank();
        const Index place = row_of(own);
        const auto count_same = [&](const Index first, const Index count) {
          Index same = 0;
          Kokkos::parallel_reduce(
              Kokkos::TeamThreadRange(team, count),
              [&](const Index i, Index& sum) { sum += row_of(first + i) == place ? 1 : 0; }, same);
          return same;
        };
        if (place < 0)
          return;
        for (Index first = 0; first < own; first += window)
          if (count_same(first, smaller(window, own - first)) > 0)
            return;
        for (Index first = own; first < rows; first += window) {
          const Index count = smaller(window, rows - first);
          const Index same = count_same(first, count);
          if (same == 0)
            continue;
          Kokkos::parallel_scan(Kokkos::TeamThreadRange(team, count), [&](const Index i, Index& at, const bool final) {
            if (row_of(first + i) != place)
              return;
            if (final)
              list(at) = first + i;
            ++at;
          });
          team.team_barrier();  // the list is complete
          Kokkos::parallel_for(Kokkos::TeamThreadRange(team, packs), [&](const Index p) {
            Pack<S> sum = impl::pack_at(&table(place, 0), p);
            const auto add = [&](const Index i, const Index some) {
              Pack<T> terms[rows_at_once];
              for (Index j = 0; j < some; ++j)
                terms[j] = impl::pack_at(&dx(list(i + j), 0), p);
              for (Index j = 0; j < some; ++j)
                for (int k = 0; k < Pack<S>::size; ++k)
                  sum.values[k] += static_cast<S>(terms[j].values[k]);
            };
            Index i = 0;
            for (; i + rows_at_once <= same; i += rows_at_once)
              add(i, rows_at_once);  // a trip count known to the compiler
            for (; i < same; ++i)
              add(i, 1);
            impl::put_pack(&table(place, 0), p, sum);
          });
          const Index done = packs * Pack<S>::size;
          Kokkos::parallel_for(Kokkos::TeamThreadRange(team, done, channels), [&](const Index c) {
            S sum = table(place, c);
            for (Index i = 0; i < same; ++i)
              sum += static_cast<S>(dx(list(i), c));
            table(place, c) = sum;
          });
          team.team_barrier();  // the list is no longer read
        }
      });
}

}  // namespace

template <class T>
void embedding_forward(const ExecSpace& exec, Tensor<T, 2> x, Tensor<TokenId, 1> tokens, Tensor<T, 2> token_table,
                       Index first_token) {
  const Index channels = x.extent(1);
  const Index vocabulary = token_table.extent(0);
  for_rows(
      exec, "espalier::core::embedding_forward", x.extent(0), KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        T* const out = &x(n, 0);
        const Index token = tokens(n) - first_token;
        if (token < 0 || token >= vocabulary) {
          row_for(thread, channels, [&](const Index c) { out[c] = T(0); });
        } else {
          const T* const row = &token_table(token, 0);
          copy_row(thread, out, row, channels);
        }
      });
}

template <class T>
void embedding_backward(const ExecSpace& exec, Tensor<State<T>, 2> dtoken_table, Tensor<T, 2> dx,
                        Tensor<TokenId, 1> tokens, Index first_token) {
  const Index vocabulary = dtoken_table.extent(0);
  const auto row_of = KOKKOS_LAMBDA(const Index n) {
    const Index token = tokens(n) - first_token;
    return token < vocabulary ? token : Index{-1};
  };
  if constexpr (exec_is_host)
    scatter_rows<State<T>, T>(exec, "espalier::core::embedding_backward", dtoken_table, dx, row_of);
  else
    scatter_rows_by_teams<State<T>, T>(exec, "espalier::core::embedding_backward", dtoken_table, dx, row_of);
}

template <class T, class Residual>
void add_positions(const ExecSpace& exec, Tensor<Residual, 2> x, Tensor<T, 2> embedded, Tensor<T, 2> position_table,
                   Index sequence_length, Index first_row) {
  using S = State<T>;
  const Index channels = x.extent(1);
  for_rows(
      exec, "espalier::core::add_positions", x.extent(0), KOKKOS_LAMBDA(const Index r, const TeamThread& thread) {
        Residual* const out = &x(r, 0);
        const T* const in = &embedded(r, 0);
        const T* const position = &position_table((first_row + r) % sequence_length, 0);
        const auto sum = [](const T value, const T add) {
          return static_cast<Residual>(static_cast<S>(value) + static_cast<S>(add));
        };
        map_row(thread, channels, out, sum, in, position);
      });
}

template <class T>
void add_positions_backward(const ExecSpace& exec, Tensor<State<T>, 2> dposition_table, Tensor<T, 2> dx,
                            Index sequence_length, Index first_row) {
  using S = State<T>;
  const char* const label = "espalier::core::add_positions_backward";
  const auto row_of = KOKKOS_LAMBDA(const Index r) { return (first_row + r) % sequence_length; };
  if constexpr (exec_is_host) {
    scatter_rows<S, T>(exec, label, dposition_table, dx, row_of);
  } else {
    const Index rows = dx.extent(0);
    const Index channels = dx.extent(1);
    Kokkos::parallel_for(
        label, row_policy(exec, smaller(rows, sequence_length)), KOKKOS_LAMBDA(const TeamMember& team) {
          const Index first = team.league_rank();
          S* const sums = &dposition_table(row_of(first), 0);
          row_for(team, channels, [&](const Index c) {
            S sum = sums[c];
            for (Index r = first; r < rows; r += sequence_length)
              sum += static_cast<S>(dx(r, c));
            sums[c] = sum;
          });
        });
  }
}

#define ESPALIER_INSTANTIATE(T)                                                                                        \
  template void embedding_forward<T>(const ExecSpace&, Tensor<T, 2>, Tensor<TokenId, 1>, Tensor<T, 2>, Index);         \
  template void embedding_backward<T>(const ExecSpace&, Tensor<State<T>, 2>, Tensor<T, 2>, Tensor<TokenId, 1>, Index); \
  template void add_positions_backward<T>(const ExecSpace&, Tensor<State<T>, 2>, Tensor<T, 2>, Index, Index);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

#define ESPALIER_INSTANTIATE(T, R) \
  template void add_positions<T, R>(const ExecSpace&, Tensor<R, 2>, Tensor<T, 2>, Tensor<T, 2>, Index, Index);
ESPALIER_FOR_RESIDUAL_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
