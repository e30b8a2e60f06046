// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/finite.hpp"

#include <algorithm>
#include <cmath>

#include "core/parameter_spec.hpp"
#include "core/vector_math.hpp"

namespace espalier {
namespace {

constexpr Index values_of_a_piece = Index{1} << 16;

// nvcc wants types with names where a kernel's function is a template.
template <class S>
struct IsFinite {
  Tensor<S, 1> values;
  KOKKOS_INLINE_FUNCTION bool operator()(Index i) const { return compat::isfinite(values(i)); }
};

template <class S>
struct IsSoundMoment {
  Tensor<S, 1> exp_avg;
  Tensor<S, 1> exp_avg_sq;
  KOKKOS_INLINE_FUNCTION bool operator()(Index i) const { return is_sound(exp_avg(i), exp_avg_sq(i)); }
  KOKKOS_INLINE_FUNCTION static bool is_sound(S m, S v) {
    constexpr S limit = static_cast<S>(largest_moment_ratio);
    constexpr S underflow = static_cast<S>(1e-15);  // of gradients whose squares are too small for fp32
    return v >= 0 && (m < 0 ? -m : m) <= limit * compat::sqrt(v) + underflow;
  }
};

// The indices of the first piece in which `is_sound` does not hold for all; empty at `size` where it does.
template <class IsSound>
IndexRange first_unsound_piece(const ExecSpace& exec, Index size, const IsSound& is_sound) {
  const Index num_pieces = (size + values_of_a_piece - 1) / values_of_a_piece;
  const auto wrong = allocate<Index>(Category::workspace, "unsound", num_pieces);  // how many in each piece
  Kokkos::parallel_for(
      "espalier::core::first_unsound", row_policy(exec, num_pieces), KOKKOS_LAMBDA(const TeamMember& team) {
        const Index begin = team.league_rank() * values_of_a_piece;
        const auto count = row_sum<double>(team, smaller(values_of_a_piece, size - begin),
                                           [=](const Index i) { return is_sound(begin + i) ? 0.0 : 1.0; });
        Kokkos::single(Kokkos::PerTeam(team), [&]() { wrong(team.league_rank()) = static_cast<Index>(count); });
      });
  const auto host_wrong = Kokkos::create_mirror_view(wrong);
  Kokkos::deep_copy(exec, host_wrong, wrong);
  compat::fence(exec, "espalier::first_unsound: the host reads what was found");
  for (Index piece = 0; piece < num_pieces; ++piece)
    if (host_wrong(piece) > 0)
      return {piece * values_of_a_piece, std::min((piece + 1) * values_of_a_piece, size)};
  return {size, size};
}

// A part of a device array on the host.
template <class S>
HostTensor<S, 1> host_part(const ExecSpace& exec, const Tensor<S, 1>& values, IndexRange range) {
  const Tensor<S, 1> part(values.data() + range.begin, range.size());
  HostTensor<S, 1> host = Kokkos::create_mirror_view(part);
  Kokkos::deep_copy(exec, host, part);
  compat::fence(exec, "espalier::first_unsound: the host looks for the index");
  return host;
}

}  // namespace

template <class S>
Index first_not_finite(const ExecSpace& exec, Tensor<S, 1> values) {
  const IndexRange piece = first_unsound_piece(exec, static_cast<Index>(values.extent(0)), IsFinite<S>{values});
  const HostTensor<S, 1> host = host_part<S>(exec, values, piece);
  Index i = 0;
  while (i < piece.size() && std::isfinite(host(i)))
    ++i;
  return piece.begin + i;
}

template <class S>
Index first_unsound_moment(const ExecSpace& exec, Tensor<S, 1> exp_avg, Tensor<S, 1> exp_avg_sq) {
  const IndexRange piece =
      first_unsound_piece(exec, static_cast<Index>(exp_avg.extent(0)), IsSoundMoment<S>{exp_avg, exp_avg_sq});
  const HostTensor<S, 1> m = host_part<S>(exec, exp_avg, piece);
  const HostTensor<S, 1> v = host_part<S>(exec, exp_avg_sq, piece);
  Index i = 0;
  while (i < piece.size() && IsSoundMoment<S>::is_sound(m(i), v(i)))
    ++i;
  return piece.begin + i;
}

#define ESPALIER_INSTANTIATE(S)                                       \
  template Index first_not_finite<S>(const ExecSpace&, Tensor<S, 1>); \
  template Index first_unsound_moment<S>(const ExecSpace&, Tensor<S, 1>, Tensor<S, 1>);
ESPALIER_FOR_STATE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
