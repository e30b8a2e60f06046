// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <limits>
#include <string>

#include "core/error.hpp"
#include "core/kokkos_compat.hpp"
#include "core/types.hpp"

/// Loops over a row that vectorise on CPUs without -ffast-math and spread over a team on GPUs.
namespace espalier {

using TeamPolicy = Kokkos::TeamPolicy<ExecSpace>;
using TeamMember = TeamPolicy::member_type;

/// Kokkos counts teams in an int.
inline int team_count(Index teams) {
  ESPALIER_ASSERT(teams >= 0 && teams <= std::numeric_limits<int>::max(),
                  "Kokkos counts teams in an int, " + std::to_string(teams) + " are wanted");
  return static_cast<int>(teams);
}

/// One team a row: on hosts a team is one thread, whose vector lanes run along the row. On GPUs 128 of them, as the
/// shortest rows of real models are 96 packs of 8 numbers; for rows of `length` numbers that are read several times and
/// are too long for the first-level cache 512, so that the rows in flight stay in the second-level one.
inline TeamPolicy row_policy(const ExecSpace& exec, Index rows, [[maybe_unused]] Index length = 0) {
  const int teams = team_count(rows);
  if constexpr (exec_is_host)
    return TeamPolicy(exec, teams, 1);
  else
    return TeamPolicy(exec, teams, length > 8192 ? 16 : 4, 32);
}

KOKKOS_INLINE_FUNCTION constexpr Index smaller(Index a, Index b) { return a < b ? a : b; }

/// f(i) for i in [0, n), in any order.
template <class F>
KOKKOS_INLINE_FUNCTION void row_for(const TeamMember& team, Index n, const F& f) {
  if constexpr (exec_is_host) {
#pragma GCC ivdep
    for (Index i = 0; i < n; ++i)
      f(i);
  } else {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, n), f);
  }
}

/// Sum of f(i) over [0, n), on every member of the team. On hosts in independent lanes, which the compiler can
/// vectorise although it may not reorder a sum by itself; the order depends on nothing but n.
template <class S, class F>
KOKKOS_INLINE_FUNCTION S row_sum(const TeamMember& team, Index n, const F& f) {
  S sum = 0;
  if constexpr (exec_is_host) {
    constexpr int lanes = 32;
    S lane[lanes] = {};
    Index i = 0;
    for (; i + lanes <= n; i += lanes)
      for (int l = 0; l < lanes; ++l)
        lane[l] += f(i + l);
    for (; i < n; ++i)
      sum += f(i);
    for (int l = 0; l < lanes; ++l)
      sum += lane[l];
  } else {
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(team, n), [&](const Index i, S& partial) { partial += f(i); }, sum);
  }
  return sum;
}

/// The same, on hosts in the order of i: for sums over what was summed before.
template <class S, class F>
KOKKOS_INLINE_FUNCTION S sum_in_order(const TeamMember& team, Index n, const F& f) {
  if constexpr (exec_is_host) {
    S sum = 0;
    for (Index i = 0; i < n; ++i)
      sum += f(i);
    return sum;
  } else {
    return row_sum<S>(team, n, f);
  }
}

/// Largest f(i) over [0, n), on every member of the team; NaN is passed over.
template <class S, class F>
KOKKOS_INLINE_FUNCTION S row_max(const TeamMember& team, Index n, const F& f) {
  S largest = -Kokkos::reduction_identity<S>::min();
  if constexpr (exec_is_host) {
    constexpr int lanes = 32;
    S lane[lanes];
    for (int l = 0; l < lanes; ++l)
      lane[l] = largest;
    Index i = 0;
    for (; i + lanes <= n; i += lanes)
      for (int l = 0; l < lanes; ++l) {
        const S value = f(i + l);
        lane[l] = value > lane[l] ? value : lane[l];
      }
    for (; i < n; ++i)
      largest = f(i) > largest ? f(i) : largest;
    for (int l = 0; l < lanes; ++l)
      largest = lane[l] > largest ? lane[l] : largest;
  } else {
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(team, n),
        [&](const Index i, S& partial) {
          const S value = f(i);
          partial = value > partial ? value : partial;
        },
        Kokkos::Max<S>(largest));
  }
  return largest;
}

/// Numbers that a GPU thread reads and writes at once, 16 bytes at a time where they have as many.
template <class T, Index count = 8>
struct alignas(smaller(16, count* static_cast<Index>(sizeof(T)))) Pack {
  static constexpr Index size = count;
  T values[size];
};

namespace impl {
/// Packs that n numbers at these addresses can be taken as; what is left over is taken singly.
template <Index count = 8, class... T>
KOKKOS_INLINE_FUNCTION Index packs_of(Index n, const T*... addresses) {
  const bool are_aligned = ((reinterpret_cast<std::uintptr_t>(addresses) % alignof(Pack<T, count>) == 0) && ...);
  return are_aligned ? n / count : 0;
}

template <Index count = 8, class T>
KOKKOS_INLINE_FUNCTION Pack<T, count> pack_at(const T* first, Index pack) {
  return reinterpret_cast<const Pack<T, count>*>(first)[pack];
}

template <class T, Index count>
KOKKOS_INLINE_FUNCTION void put_pack(T* first, Index pack, const Pack<T, count>& values) {
  reinterpret_cast<Pack<T, count>*>(first)[pack] = values;
}
}  // namespace impl

/// out[i] = f(in[i]...) for i in [0, n), in any order; out may be one of in.
template <class Out, class F, class... In>
KOKKOS_INLINE_FUNCTION void map_row(const TeamMember& team, Index n, Out* out, const F& f, const In*... in) {
  if constexpr (exec_is_host) {
    row_for(team, n, [&](const Index i) { out[i] = f(in[i]...); });
  } else {
    const Index packs = impl::packs_of(n, out, in...);
    const auto of_pack = [&](const Index p, const Pack<In>... operands) {
      Pack<Out> result;
      for (int i = 0; i < Pack<Out>::size; ++i)
        result.values[i] = f(operands.values[i]...);
      impl::put_pack(out, p, result);
    };
    row_for(team, packs, [&](const Index p) { of_pack(p, impl::pack_at(in, p)...); });
    const Index done = packs * Pack<Out>::size;
    row_for(team, n - done, [&](const Index i) { out[done + i] = f(in[done + i]...); });
  }
}

/// to[i] = from[i] for i in [0, n), without an overlap.
template <class T>
KOKKOS_INLINE_FUNCTION void copy_row(const TeamMember& team, T* to, const T* from, Index n) {
  if constexpr (exec_is_host)  // compilers copy 16-bit structs one at a time
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
  else
    map_row(
        team, n, to, [](const T value) { return value; }, from);
}

/// Sum of f(in[i]...) over [0, n), as row_sum().
template <class S, class F, class... In>
KOKKOS_INLINE_FUNCTION S sum_of_row(const TeamMember& team, Index n, const F& f, const In*... in) {
  if constexpr (exec_is_host) {
    return row_sum<S>(team, n, [&](const Index i) { return f(in[i]...); });
  } else {
    const Index packs = impl::packs_of(n, in...);
    const auto of_pack = [&](const Pack<In>... operands) {
      S sum = 0;
      for (int i = 0; i < Pack<S>::size; ++i)
        sum += f(operands.values[i]...);
      return sum;
    };
    const Index done = packs * Pack<S>::size;
    const Index left = n - done;  // one more term each
    return row_sum<S>(team, packs + left, [&](const Index p) {
      return p < packs ? of_pack(impl::pack_at(in, p)...) : f(in[done + p - packs]...);
    });
  }
}

/// e^x, within 2 ulp in fp32, without branches so that loops over it vectorise; saturates instead of overflowing
/// below x = -87 and above 88; NaN stays NaN. Range reduction by multiples of ln 2 and a polynomial (Cephes expf).
KOKKOS_INLINE_FUNCTION float vector_exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const float shifted = x * 1.44269504088896341f + 12582912.0f;  // 1.5 * 2^23: the integer lands in the low bits
  const float n = shifted - 12582912.0f;
  float r = x - n * 0.693359375f;
  r -= n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  std::uint32_t bits;
  std::memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits + 127u) << 23;  // 2^n; the shift drops the bits of 1.5 * 2^23
  float scale;
  std::memcpy(&scale, &bits, sizeof(scale));
  return p * scale;
}
KOKKOS_INLINE_FUNCTION double vector_exp(double x) { return compat::exp(x); }

}  // namespace espalier
