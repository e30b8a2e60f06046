// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/embedding.hpp"

#include "core/vector_math.hpp"

namespace espalier {
namespace {

// Which row of our part of the token embedding row n of dx belongs to; -1: to none.
struct TableRows {
  Tensor<TokenId, 1> tokens;  // (N)
  Index first_token;
  Index vocabulary;  // Vl
  KOKKOS_FUNCTION Index operator()(Index n) const {
    const Index token = tokens(n) - first_token;
    return token >= 0 && token < vocabulary ? token : Index{-1};
  }
};

// table(row_of(n), :) += dx(n, :) for all n in order. Columns of one thread, which walks all rows: for hosts.
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

// first_row(v): the row of dx that goes first to row v of the table; count(v): how many go there. Sums of integers: the
// same in any order.
void find_token_rows(const ExecSpace& exec, const TableRows& row_of, const Tensor<int, 1>& first_row,
                     const Tensor<int, 1>& count) {
  const auto rows = static_cast<int>(row_of.tokens.extent(0));
  Kokkos::parallel_for(
      "espalier::core::embedding_backward_clear", RangePolicy(exec, 0, row_of.vocabulary),
      KOKKOS_LAMBDA(const Index v) {
        first_row(v) = rows;
        count(v) = 0;
      });
  Kokkos::parallel_for(
      "espalier::core::embedding_backward_count", RangePolicy(exec, 0, rows), KOKKOS_LAMBDA(const Index n) {
        const Index row = row_of(n);
        if (row < 0)
          return;
        Kokkos::atomic_fetch_min(&first_row(row), static_cast<int>(n));
        Kokkos::atomic_add(&count(row), 1);
      });
}

// Adds a pack of each of `count` listed rows, in order; their loads are under way together.
template <int count, class T, class S, class Rows, class List>
KOKKOS_INLINE_FUNCTION void add_listed_rows(Pack<S>& sum, const Rows& dx, const List& list, int first, Index pack) {
  Pack<T> terms[count];
  for (int j = 0; j < count; ++j)
    terms[j] = impl::pack_at(&dx(list(first + j), 0), pack);
  for (int j = 0; j < count; ++j)
    for (int k = 0; k < Pack<S>::size; ++k)
      sum.values[k] += static_cast<S>(terms[j].values[k]);
}

// The same for GPUs: a team for each n. That of the first row of a token lists all rows of the token, in order, and
// adds them.
template <class S, class T>
void scatter_rows_by_teams(const ExecSpace& exec, const Tensor<S, 2>& table, const Tensor<T, 2>& dx,
                           const TableRows& row_of, const Tensor<int, 1>& first_row, const Tensor<int, 1>& count) {
  using List = Kokkos::View<int*, ExecSpace::scratch_memory_space, Kokkos::MemoryUnmanaged>;
  constexpr int threads = 64;  // eight columns each
  constexpr Index slice = 32;  // tokens that a thread searches before all agree on how many were found
  constexpr Index window = threads * slice;
  constexpr int capacity = 2 * static_cast<int>(window);
  const Index rows = dx.extent(0);
  const Index channels = dx.extent(1);
  // Packs in each row, or in none, where rows begin at any multiple of T.
  const Index packs = channels % Pack<T>::size == 0 ? impl::packs_of(channels, table.data(), dx.data()) : 0;
  TeamPolicy policy(exec, team_count(rows), threads, 1);
  policy.set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(List::shmem_size(capacity + 1))));
  Kokkos::parallel_for(
      "espalier::core::embedding_backward", policy, KOKKOS_LAMBDA(const TeamMember& team) {
        const List list(team.team_scratch(0), capacity + 1);  // its last: how many rows are listed
        const Index own = team.league_rank();
        const Index row = row_of(own);
        if (row < 0 || first_row(row) != own)
          return;
        Index searched = own;
        for (int left = count(row); left > 0;) {
          int listed = 0;
          while (listed < left && listed + window <= capacity) {
            const Index first = searched + team.team_rank() * slice;
            const Index last = smaller(first + slice, rows);
            int found = 0;
            for (Index n = first; n < last; ++n)
              found += row_of(n) == row ? 1 : 0;
            int at = listed + team.team_scan(found);
            for (Index n = first; n < last; ++n)
              if (row_of(n) == row)
                list(at++) = static_cast<int>(n);
            if (team.team_rank() == threads - 1)
              list(capacity) = at;
            team.team_barrier();  // the list is complete
            listed = list(capacity);
            team.team_barrier();  // all know how many
            searched += window;
          }
          Kokkos::parallel_for(Kokkos::TeamThreadRange(team, packs), [&](const Index p) {
            Pack<S> sum = impl::pack_at(&table(row, 0), p);
            int i = 0;
            for (; i + 16 <= listed; i += 16)
              add_listed_rows<16, T>(sum, dx, list, i, p);
            for (; i + 4 <= listed; i += 4)
              add_listed_rows<4, T>(sum, dx, list, i, p);
            for (; i < listed; ++i)
              add_listed_rows<1, T>(sum, dx, list, i, p);
            impl::put_pack(&table(row, 0), p, sum);
          });
          const Index done = packs * Pack<S>::size;
          Kokkos::parallel_for(Kokkos::TeamThreadRange(team, done, channels), [&](const Index c) {
            S sum = table(row, c);
            for (int i = 0; i < listed; ++i)
              sum += static_cast<S>(dx(list(i), c));
            table(row, c) = sum;
          });
          team.team_barrier();  // the list is no longer read
          left -= listed;
        }
      });
}

}  // namespace

template <class T>
void embedding_forward(const ExecSpace& exec, Tensor<T, 2> x, Tensor<TokenId, 1> tokens, Tensor<T, 2> token_embedding,
                       Index first_token) {
  const Index channels = x.extent(1);
  const Index vocabulary = token_embedding.extent(0);
  for_rows(
      exec, "espalier::core::embedding_forward", x.extent(0), KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        T* const out = &x(n, 0);
        const Index token = tokens(n) - first_token;
        if (token < 0 || token >= vocabulary) {
          row_for(thread, channels, [&](const Index c) { out[c] = T(0); });
        } else {
          const T* const row = &token_embedding(token, 0);
          copy_row(thread, out, row, channels);
        }
      });
}

template <class T>
void embedding_backward(const ExecSpace& exec, Tensor<State<T>, 2> dtoken_embedding, Tensor<T, 2> dx,
                        Tensor<TokenId, 1> tokens, Tensor<int, 1> scratch, Index first_token) {
  const Index vocabulary = dtoken_embedding.extent(0);
  const TableRows row_of{tokens, first_token, vocabulary};
  if constexpr (exec_is_host) {
    scatter_rows<State<T>, T>(exec, "espalier::core::embedding_backward", dtoken_embedding, dx, row_of);
  } else {
    ESPALIER_ASSERT(static_cast<Index>(scratch.extent(0)) >= embedding_scratch(vocabulary), "too little scratch");
    const Tensor<int, 1> first_row(scratch.data(), vocabulary), count(scratch.data() + vocabulary, vocabulary);
    find_token_rows(exec, row_of, first_row, count);
    scatter_rows_by_teams<State<T>, T>(exec, dtoken_embedding, dx, row_of, first_row, count);
  }
}

template <class T, class Residual>
void add_positions(const ExecSpace& exec, Tensor<Residual, 2> x, Tensor<T, 2> embedded, Tensor<T, 2> position_embedding,
                   Index sequence_length, Index first_row, Tensor<int, 1> of_rows) {
  using S = State<T>;
  const Index channels = x.extent(1);
  const bool are_given = of_rows.extent(0) > 0;
  for_rows(
      exec, "espalier::core::add_positions", x.extent(0), KOKKOS_LAMBDA(const Index r, const TeamThread& thread) {
        Residual* const out = &x(r, 0);
        const T* const in = &embedded(r, 0);
        const T* const position =
            &position_embedding(are_given ? static_cast<Index>(of_rows(r)) : (first_row + r) % sequence_length, 0);
        const auto sum = [](const T value, const T add) {
          return static_cast<Residual>(static_cast<S>(value) + static_cast<S>(add));
        };
        map_row(thread, channels, out, sum, in, position);
      });
}

template <class T>
void add_positions_backward(const ExecSpace& exec, Tensor<State<T>, 2> dposition_embedding, Tensor<T, 2> dx,
                            Index sequence_length, Index first_row) {
  using S = State<T>;
  const char* const label = "espalier::core::add_positions_backward";
  const auto row_of = KOKKOS_LAMBDA(const Index r) { return (first_row + r) % sequence_length; };
  if constexpr (exec_is_host) {
    scatter_rows<S, T>(exec, label, dposition_embedding, dx, row_of);
  } else {
    const Index rows = dx.extent(0);
    const Index channels = dx.extent(1);
    Kokkos::parallel_for(
        label, row_policy(exec, smaller(rows, sequence_length)), KOKKOS_LAMBDA(const TeamMember& team) {
          const Index first = team.league_rank();
          S* const sums = &dposition_embedding(row_of(first), 0);
          row_for(team, channels, [&](const Index c) {
            S sum = sums[c];
            for (Index r = first; r < rows; r += sequence_length)
              sum += static_cast<S>(dx(r, c));
            sums[c] = sum;
          });
        });
  }
}

#define ESPALIER_INSTANTIATE(T)                                                                                \
  template void embedding_forward<T>(const ExecSpace&, Tensor<T, 2>, Tensor<TokenId, 1>, Tensor<T, 2>, Index); \
  template void embedding_backward<T>(const ExecSpace&, Tensor<State<T>, 2>, Tensor<T, 2>, Tensor<TokenId, 1>, \
                                      Tensor<int, 1>, Index);                                                  \
  template void add_positions_backward<T>(const ExecSpace&, Tensor<State<T>, 2>, Tensor<T, 2>, Index, Index);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

#define ESPALIER_INSTANTIATE(T, R)                                                                            \
  template void add_positions<T, R>(const ExecSpace&, Tensor<R, 2>, Tensor<T, 2>, Tensor<T, 2>, Index, Index, \
                                    Tensor<int, 1>);
ESPALIER_FOR_RESIDUAL_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
