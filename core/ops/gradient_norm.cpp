// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/gradient_norm.hpp"

#include <algorithm>

#include "core/vector_math.hpp"

namespace espalier {
namespace {
constexpr Index piece_length = Index{1} << 15;  // elements: a few microseconds of work
}

SquaredNorm::SquaredNorm(const ExecSpace& exec, const std::vector<Range>& ranges) {
  std::vector<Range> pieces;
  std::vector<Index> first_piece;
  for (const Range& range : ranges) {
    first_piece.push_back(static_cast<Index>(pieces.size()));
    for (Index done = 0; done < range.size; done += piece_length)
      pieces.push_back({range.offset + done, std::min(piece_length, range.size - done)});
  }
  first_piece.push_back(static_cast<Index>(pieces.size()));

  const auto num_pieces = static_cast<Index>(pieces.size());
  pieces_ = Tensor<Index, 2>("espalier::workspace::norm_pieces", num_pieces, 2);
  first_piece_ = allocate<Index>(Category::workspace, "norm_first_piece", static_cast<Index>(first_piece.size()));
  partial_ = allocate<double>(Category::workspace, "norm_partial", num_pieces);
  sums_ = allocate<double>(Category::workspace, "norm_sums", static_cast<Index>(ranges.size()));
  total_ = allocate<double>(Category::workspace, "norm_total", 1);
  const auto host_pieces = Kokkos::create_mirror_view(pieces_);
  for (Index i = 0; i < num_pieces; ++i) {
    host_pieces(i, 0) = pieces[static_cast<std::size_t>(i)].offset;
    host_pieces(i, 1) = pieces[static_cast<std::size_t>(i)].size;
  }
  const auto host_first = Kokkos::create_mirror_view(first_piece_);
  std::copy(first_piece.begin(), first_piece.end(), host_first.data());
  Kokkos::deep_copy(exec, pieces_, host_pieces);
  Kokkos::deep_copy(exec, first_piece_, host_first);
  compat::fence(exec, "espalier::SquaredNorm: any instance may read the pieces, and the host copies go away");
}

namespace {

// Of neighbours at a time on GPUs, which one load reads where they lie as it wants; the order is the same wherever.
template <class S>
KOKKOS_INLINE_FUNCTION double sum_of_squares(const TeamMember& team, Index n, const S* values) {
  const auto square = [](const S value) { return static_cast<double>(value) * static_cast<double>(value); };
  if constexpr (exec_is_host) {
    const Index quarter = n / 4;  // four places at a time: of one a core fetches less than memory gives
    const double sum = row_sum<double>(team, quarter, [=](const Index i) {
      return (square(values[i]) + square(values[quarter + i])) +
             (square(values[2 * quarter + i]) + square(values[3 * quarter + i]));
    });
    return sum + row_sum<double>(team, n - 4 * quarter, [=](const Index i) { return square(values[4 * quarter + i]); });
  } else {
    constexpr Index size = Pack<S>::size;
    const Index groups = n / size;
    const bool packed = impl::packs_of(n, values) > 0;
    return row_sum<double>(team, groups + n % size, [=](const Index g) {
      if (g >= groups)
        return square(values[groups * size + g - groups]);
      double sum = 0;
      if (packed) {
        const Pack<S> group = impl::pack_at(values, g);
        for (Index i = 0; i < size; ++i)
          sum += square(group.values[i]);
      } else {
        for (Index i = 0; i < size; ++i)
          sum += square(values[g * size + i]);
      }
      return sum;
    });
  }
}

}  // namespace

template <class S>
void SquaredNorm::compute(const ExecSpace& exec, Tensor<S, 1> values) const {
  const auto pieces = pieces_;
  const auto partial = partial_;
  const auto first_piece = first_piece_;
  const auto sums = sums_;
  const auto total = total_;
  Kokkos::parallel_for(
      "espalier::core::squared_norm::pieces", row_policy(exec, pieces.extent(0)),
      KOKKOS_LAMBDA(const TeamMember& team) {
        const Index p = team.league_rank();
        const S* const first = values.data() + pieces(p, 0);
        const double sum = sum_of_squares(team, pieces(p, 1), first);
        Kokkos::single(Kokkos::PerTeam(team), [&]() { partial(p) = sum; });
      });
  Kokkos::parallel_for(
      "espalier::core::squared_norm::ranges", row_policy(exec, sums.extent(0)), KOKKOS_LAMBDA(const TeamMember& team) {
        const Index i = team.league_rank();
        const Index first = first_piece(i);
        const double sum =
            sum_in_order<double>(team, first_piece(i + 1) - first, [=](const Index p) { return partial(first + p); });
        Kokkos::single(Kokkos::PerTeam(team), [&]() { sums(i) = sum; });
      });
  Kokkos::parallel_for(
      "espalier::core::squared_norm::total", row_policy(exec, 1), KOKKOS_LAMBDA(const TeamMember& team) {
        const double sum =
            sum_in_order<double>(team, static_cast<Index>(sums.extent(0)), [=](const Index i) { return sums(i); });
        Kokkos::single(Kokkos::PerTeam(team), [&]() { total(0) = sum; });
      });
}

void clip_factor(const ExecSpace& exec, Tensor<double, 0> norm, Tensor<double, 0> factor, Tensor<double, 1> sums,
                 double max_norm, double scale) {
  const Index ranges = sums.extent(0);
  Kokkos::parallel_for(
      "espalier::core::clip_factor", row_policy(exec, 1), KOKKOS_LAMBDA(const TeamMember& team) {
        const double total = sum_in_order<double>(team, ranges, [=](const Index i) { return sums(i); });
        Kokkos::single(Kokkos::PerTeam(team), [&]() {
          norm() = compat::sqrt(total) / scale;
          factor() = (max_norm > 0 && norm() > max_norm ? max_norm / norm() : 1.0) / scale;
        });
      });
}

void hold_update(const ExecSpace& exec, Tensor<double, 0> factor, Tensor<double, 0> loss, Tensor<double, 0> norm,
                 const UpdateLimits& limits) {
  Kokkos::parallel_for(
      "espalier::core::hold_update", row_policy(exec, 1), KOKKOS_LAMBDA(const TeamMember& team) {
        Kokkos::single(Kokkos::PerTeam(team), [&]() {
          if (!is_within(limits, loss(), norm()))
            factor() = 0;
        });
      });
}

#define ESPALIER_INSTANTIATE(S) template void SquaredNorm::compute<S>(const ExecSpace&, Tensor<S, 1>) const;
ESPALIER_FOR_STATE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
