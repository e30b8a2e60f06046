// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/embedding.hpp"

#include "core/vector_math.hpp"

namespace espalier {

template <class T>
void embedding_forward(const ExecSpace& exec, Tensor<T, 2> x, Tensor<TokenId, 1> tokens, Tensor<T, 2> token_table,
                       Tensor<T, 2> position_table, Index sequence_length) {
  using S = State<T>;
  const Index channels = x.extent(1);
  Kokkos::parallel_for(
      "espalier::core::embedding_forward", row_policy(exec, x.extent(0)), KOKKOS_LAMBDA(const TeamMember& team) {
        const Index n = team.league_rank();
        T* const out = &x(n, 0);
        const T* const token = &token_table(tokens(n), 0);
        const T* const position = &position_table(n % sequence_length, 0);
        row_for(team, channels, [&](const Index c) {
          out[c] = static_cast<T>(static_cast<S>(token[c]) + static_cast<S>(position[c]));
        });
      });
}

template <class T>
void embedding_backward(const ExecSpace& exec, Tensor<State<T>, 2> dtoken_table, Tensor<State<T>, 2> dposition_table,
                        Tensor<T, 2> dx, Tensor<TokenId, 1> tokens, Index sequence_length) {
  using S = State<T>;
  const Index rows = dx.extent(0);
  const Index channels = dx.extent(1);
  constexpr Index strip = exec_is_host ? 32 : 1;  // columns of one thread, which walks all rows in order
  Kokkos::parallel_for(
      "espalier::core::embedding_backward", Kokkos::RangePolicy<ExecSpace>(exec, 0, (channels + strip - 1) / strip),
      KOKKOS_LAMBDA(const Index s) {
        const Index first = s * strip;
        const Index last = first + strip < channels ? first + strip : channels;
        for (Index n = 0; n < rows; ++n) {
          const Index token = tokens(n);
          const Index position = n % sequence_length;
          for (Index c = first; c < last; ++c) {
            const S gradient = static_cast<S>(dx(n, c));
            dtoken_table(token, c) += gradient;
            dposition_table(position, c) += gradient;
          }
        }
      });
}

#define ESPALIER_INSTANTIATE(T)                                                                                      \
  template void embedding_forward<T>(const ExecSpace&, Tensor<T, 2>, Tensor<TokenId, 1>, Tensor<T, 2>, Tensor<T, 2>, \
                                     Index);                                                                         \
  template void embedding_backward<T>(const ExecSpace&, Tensor<State<T>, 2>, Tensor<State<T>, 2>, Tensor<T, 2>,      \
                                      Tensor<TokenId, 1>, Index);
ESPALIER_INSTANTIATE(float)
ESPALIER_INSTANTIATE(double)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
