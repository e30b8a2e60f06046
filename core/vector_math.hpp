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

/// One team a row: on hosts a team is one thread, whose vector lanes run along the row.
inline TeamPolicy row_policy(const ExecSpace& exec, Index rows) {
  ESPALIER_ASSERT(rows >= 0 && rows <= std::numeric_limits<int>::max(),
                  "Kokkos counts teams in an int, " + std::to_string(rows) + " are wanted");
  const int teams = static_cast<int>(rows);
  if constexpr (exec_is_host)
    return TeamPolicy(exec, teams, 1);
  else
    return TeamPolicy(exec, teams, Kokkos::AUTO);
}

KOKKOS_INLINE_FUNCTION Index smaller(Index a, Index b) { return a < b ? a : b; }

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

/// to[i] = from[i] for i in [0, n), without an overlap.
template <class T>
KOKKOS_INLINE_FUNCTION void copy_row(const TeamMember& team, T* to, const T* from, Index n) {
  if constexpr (exec_is_host)  // compilers copy 16-bit structs one at a time
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
  else
    row_for(team, n, [&](const Index i) { to[i] = from[i]; });
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
