// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/finite.hpp"

#include <algorithm>
#include <cmath>

#include "core/vector_math.hpp"

namespace espalier {
namespace {
constexpr Index values_of_a_piece = Index{1} << 16;
}

template <class S>
Index first_not_finite(const ExecSpace& exec, Tensor<S, 1> values) {
  const auto size = static_cast<Index>(values.extent(0));
  const Index num_pieces = (size + values_of_a_piece - 1) / values_of_a_piece;
  const auto wrong = allocate<Index>(Category::workspace, "not_finite", num_pieces);  // how many in each piece
  Kokkos::parallel_for(
      "espalier::core::first_not_finite", row_policy(exec, num_pieces), KOKKOS_LAMBDA(const TeamMember& team) {
        const Index piece = team.league_rank();
        const S* const first = values.data() + piece * values_of_a_piece;
        const auto count = row_sum<double>(team, smaller(values_of_a_piece, size - piece * values_of_a_piece),
                                           [=](const Index i) { return compat::isfinite(first[i]) ? 0.0 : 1.0; });
        Kokkos::single(Kokkos::PerTeam(team), [&]() { wrong(piece) = static_cast<Index>(count); });
      });
  const auto host_wrong = Kokkos::create_mirror_view(wrong);
  Kokkos::deep_copy(exec, host_wrong, wrong);
  compat::fence(exec, "espalier::first_not_finite: the host reads what was found");
  for (Index piece = 0; piece < num_pieces; ++piece) {
    if (host_wrong(piece) == 0)
      continue;
    const Index begin = piece * values_of_a_piece;
    const auto part = Kokkos::subview(values, std::pair(begin, std::min(begin + values_of_a_piece, size)));
    const auto host_part = Kokkos::create_mirror_view(part);
    Kokkos::deep_copy(exec, host_part, part);
    compat::fence(exec, "espalier::first_not_finite: the host looks for the place");
    for (Index i = 0; i < static_cast<Index>(host_part.extent(0)); ++i)
      if (!std::isfinite(host_part(i)))
        return begin + i;
  }
  return size;
}

#define ESPALIER_INSTANTIATE(S) template Index first_not_finite<S>(const ExecSpace&, Tensor<S, 1>);
ESPALIER_INSTANTIATE(float)
ESPALIER_INSTANTIATE(double)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
