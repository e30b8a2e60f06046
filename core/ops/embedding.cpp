// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/embedding.hpp"

#include "core/vector_math.hpp"

namespace espalier {
namespace {

constexpr Index strip = exec_is_host ? 32 : 1;  // columns of one thread, which walks all rows in order

// table(row_of(n), :) += dx(n, :) for all n in order; a negative row is left out.
template <class S, class T, class RowOf>
void scatter_rows(const ExecSpace& exec, const char* label, const Tensor<S, 2>& table, const Tensor<T, 2>& dx,
                  const RowOf& row_of) {
  const Index rows = dx.extent(0);
  const Index channels = dx.extent(1);
  Kokkos::parallel_for(
      label, Kokkos::RangePolicy<ExecSpace>(exec, 0, (channels + strip - 1) / strip), KOKKOS_LAMBDA(const Index s) {
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

}  // namespace

template <class T>
void embedding_forward(const ExecSpace& exec, Tensor<T, 2> x, Tensor<TokenId, 1> tokens, Tensor<T, 2> token_table,
                       Index first_token) {
  const Index channels = x.extent(1);
  const Index vocabulary = token_table.extent(0);
  Kokkos::parallel_for(
      "espalier::core::embedding_forward", row_policy(exec, x.extent(0)), KOKKOS_LAMBDA(const TeamMember& team) {
        const Index n = team.league_rank();
        T* const out = &x(n, 0);
        const Index token = tokens(n) - first_token;
        if (token < 0 || token >= vocabulary) {
          row_for(team, channels, [&](const Index c) { out[c] = T(0); });
        } else {
          const T* const row = &token_table(token, 0);
          row_for(team, channels, [&](const Index c) { out[c] = row[c]; });
        }
      });
}

template <class T>
void embedding_backward(const ExecSpace& exec, Tensor<State<T>, 2> dtoken_table, Tensor<T, 2> dx,
                        Tensor<TokenId, 1> tokens, Index first_token) {
  const Index vocabulary = dtoken_table.extent(0);
  scatter_rows<State<T>, T>(
      exec, "espalier::core::embedding_backward", dtoken_table, dx, KOKKOS_LAMBDA(const Index n) {
        const Index token = tokens(n) - first_token;
        return token < vocabulary ? token : Index{-1};
      });
}

template <class T, class Residual>
void add_positions(const ExecSpace& exec, Tensor<Residual, 2> x, Tensor<T, 2> embedded, Tensor<T, 2> position_table,
                   Index sequence_length, Index first_row) {
  using S = State<T>;
  const Index channels = x.extent(1);
  Kokkos::parallel_for(
      "espalier::core::add_positions", row_policy(exec, x.extent(0)), KOKKOS_LAMBDA(const TeamMember& team) {
        const Index r = team.league_rank();
        Residual* const out = &x(r, 0);
        const T* const in = &embedded(r, 0);
        const T* const position = &position_table((first_row + r) % sequence_length, 0);
        row_for(team, channels, [&](const Index c) {
          out[c] = static_cast<Residual>(static_cast<S>(in[c]) + static_cast<S>(position[c]));
        });
      });
}

template <class T>
void add_positions_backward(const ExecSpace& exec, Tensor<State<T>, 2> dposition_table, Tensor<T, 2> dx,
                            Index sequence_length, Index first_row) {
  scatter_rows<State<T>, T>(
      exec, "espalier::core::add_positions_backward", dposition_table, dx,
      KOKKOS_LAMBDA(const Index r) { return (first_row + r) % sequence_length; });
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
