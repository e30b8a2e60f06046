// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
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

KOKKOS_INLINE_FUNCTION constexpr Index smaller(Index a, Index b) { return a < b ? a : b; }

/// One team a row: on hosts a team is one thread, whose vector lanes run along the row, on GPUs 128 of them.
inline TeamPolicy row_policy(const ExecSpace& exec, Index rows) {
  if constexpr (exec_is_host)
    return TeamPolicy(exec, team_count(rows), 1);
  else
    return TeamPolicy(exec, team_count(rows), 4, 32);
}

/// A thread of a team, in Kokkos' words, which takes a row by itself: on GPUs it is a warp, whose sums need no barrier.
struct TeamThread {
  const TeamMember& team;
};

/// f(n, thread) for each row n in [0, rows).
template <class F>
void for_rows(const ExecSpace& exec, const char* label, Index rows, const F& f) {
  constexpr int threads = exec_is_host ? 1 : 4;
  Kokkos::parallel_for(
      label, TeamPolicy(exec, team_count((rows + threads - 1) / threads), threads, exec_is_host ? 1 : 32),
      KOKKOS_LAMBDA(const TeamMember& team) {
        const Index n = team.league_rank() * Index{threads} + team.team_rank();
        if (n < rows)
          f(n, TeamThread{team});
      });
}

namespace impl {
KOKKOS_INLINE_FUNCTION auto range_of(const TeamMember& team, Index n) { return Kokkos::TeamVectorRange(team, n); }
KOKKOS_INLINE_FUNCTION auto range_of(const TeamThread& thread, Index n) {
  return Kokkos::ThreadVectorRange(thread.team, n);
}
}  // namespace impl

// What follows is done by a team or by one of its threads: Workers is TeamMember or TeamThread.

/// f(i) for i in [0, n), in any order.
template <class Workers, class F>
KOKKOS_INLINE_FUNCTION void row_for(const Workers& workers, Index n, const F& f) {
  if constexpr (exec_is_host) {
#pragma GCC ivdep
    for (Index i = 0; i < n; ++i)
      f(i);
  } else {
    Kokkos::parallel_for(impl::range_of(workers, n), f);
  }
}

namespace impl {
/// All f(i) over [0, n), combined: on a host, in independent lanes, which the compiler can vectorise although it may
/// not reorder by itself, and these by halves. The order depends on nothing but n. Combined with `identity` a number
/// stays what it is.
template <class S, class F, class Combine>
KOKKOS_INLINE_FUNCTION S reduce_in_lanes(Index n, S identity, const F& f, const Combine& combine) {
  constexpr int lanes = 32;
  S lane[lanes];
  for (int l = 0; l < lanes; ++l)
    lane[l] = identity;
  Index i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int l = 0; l < lanes; ++l)
      lane[l] = combine(lane[l], f(i + l));
  for (int l = 0; i + l < n; ++l)
    lane[l] = combine(lane[l], f(i + l));
#ifndef __CUDACC__  // which would warn of pragmas of GCC's
#pragma GCC unroll 8
#endif
  for (int half = lanes / 2; half > 0; half /= 2)
#ifndef __CUDACC__
#pragma GCC unroll 16
#endif
    for (int l = 0; l < half; ++l)
      lane[l] = combine(lane[l], lane[l + half]);
  return lane[0];
}
}  // namespace impl

/// Sum of f(i) over [0, n), on every worker; on hosts the order depends on nothing but n.
template <class S, class Workers, class F>
KOKKOS_INLINE_FUNCTION S row_sum(const Workers& workers, Index n, const F& f) {
  S sum{};
  if constexpr (exec_is_host) {
    sum = impl::reduce_in_lanes(n, sum, f, [](const S a, const S b) { return a + b; });
  } else {
    Kokkos::parallel_reduce(
        impl::range_of(workers, n), [&](const Index i, S& partial) { partial += f(i); }, sum);
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

/// The least finite number: unlike -infinity it can be subtracted from itself.
template <class S>
inline constexpr S lowest = std::numeric_limits<S>::lowest();

/// Largest f(i) over [0, n), on every worker; NaN is passed over.
template <class S, class Workers, class F>
KOKKOS_INLINE_FUNCTION S row_max(const Workers& workers, Index n, const F& f) {
  S largest = lowest<S>;
  if constexpr (exec_is_host) {
    largest = impl::reduce_in_lanes(n, largest, f, [](const S a, const S b) { return b > a ? b : a; });
  } else {
    Kokkos::parallel_reduce(
        impl::range_of(workers, n),
        [&](const Index i, S& partial) {
          const S value = f(i);
          partial = value > partial ? value : partial;
        },
        Kokkos::Max<S>(largest));
    largest = largest > lowest<S> ? largest : lowest<S>;  // Kokkos 5 begins with -infinity
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
/// Largest number of a pack; NaN is passed over.
template <class S, class T>
KOKKOS_INLINE_FUNCTION S largest_of(const Pack<T>& pack) {
  S largest = lowest<S>;
  for (int i = 0; i < Pack<T>::size; ++i) {
    const S value = static_cast<S>(pack.values[i]);
    largest = value > largest ? value : largest;
  }
  return largest;
}
}  // namespace impl

/// Whether rows of n numbers that follow each other at these addresses consist of packs.
template <class... T>
bool rows_are_packs(Index n, const T*... addresses) {
  return n % Pack<int>::size == 0 && impl::packs_of(n, addresses...) * Pack<int>::size == n;
}

/// out[i] = f(in[i]...) for i in [0, n), in any order; out may be one of in.
template <class Workers, class Out, class F, class... In>
KOKKOS_INLINE_FUNCTION void map_row(const Workers& workers, Index n, Out* out, const F& f, const In*... in) {
  if constexpr (exec_is_host) {
    row_for(workers, n, [&](const Index i) { out[i] = f(in[i]...); });
  } else {
    const Index packs = impl::packs_of(n, out, in...);
    const auto of_pack = [&](const Index p, const Pack<In>... operands) {
      Pack<Out> result;
      for (int i = 0; i < Pack<Out>::size; ++i)
        result.values[i] = f(operands.values[i]...);
      impl::put_pack(out, p, result);
    };
    row_for(workers, packs, [&](const Index p) { of_pack(p, impl::pack_at(in, p)...); });
    const Index done = packs * Pack<Out>::size;
    row_for(workers, n - done, [&](const Index i) { out[done + i] = f(in[done + i]...); });
  }
}

/// to[i] = from[i] for i in [0, n), without an overlap.
template <class T, class Workers>
KOKKOS_INLINE_FUNCTION void copy_row(const Workers& workers, T* to, const T* from, Index n) {
  if constexpr (exec_is_host)  // compilers copy 16-bit structs one at a time
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
  else
    map_row(
        workers, n, to, [](const T value) { return value; }, from);
}

/// Sum of f(in[i]...) over [0, n), as row_sum().
template <class S, class Workers, class F, class... In>
KOKKOS_INLINE_FUNCTION S sum_of_row(const Workers& workers, Index n, const F& f, const In*... in) {
  if constexpr (exec_is_host) {
    return row_sum<S>(workers, n, [&](const Index i) { return f(in[i]...); });
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
    return row_sum<S>(workers, packs + left, [&](const Index p) {
      return p < packs ? of_pack(impl::pack_at(in, p)...) : f(in[done + p - packs]...);
    });
  }
}

/// Largest of in[i], as row_max().
template <class S, class Workers, class T>
KOKKOS_INLINE_FUNCTION S max_of_row(const Workers& workers, Index n, const T* in) {
  if constexpr (exec_is_host) {
    return row_max<S>(workers, n, [=](const Index i) { return static_cast<S>(in[i]); });
  } else {
    const Index packs = impl::packs_of(n, in);
    const Index done = packs * Pack<T>::size;
    return row_max<S>(workers, packs + n - done, [=](const Index p) {
      if (p >= packs)
        return static_cast<S>(in[done + p - packs]);
      return impl::largest_of<S>(impl::pack_at(in, p));
    });
  }
}

/// a * b + c. On GPUs rounded once wherever it stands, so that two loops over the same numbers give the same bits; on
/// hosts, some of which have no instruction for that, as the compiler likes.
template <class S>
KOKKOS_INLINE_FUNCTION S multiply_add(S a, S b, S c) {
  if constexpr (exec_is_host)
    return a * b + c;
  else
    return std::fma(a, b, c);
}

/// e^x, within 2 ulp in fp32; NaN stays NaN. On hosts without branches so that loops over it vectorise, by range
/// reduction by multiples of ln 2 and a polynomial (Cephes expf); saturates below x = -64 and above 64, where a softmax
/// or a sigmoid has no digits left: e^-87 times something is subnormal, which takes CPUs of Intel 150 cycles, and
/// compilers multiply by the constant that saturation ends in for all lanes. On GPUs, which have an instruction for
/// powers of 2, Kokkos' function, which falls to 0 and overflows to infinity.
KOKKOS_INLINE_FUNCTION float vector_exp(float x) {
  if constexpr (!exec_is_host)
    return compat::exp(x);
  x = x < -64.0f ? -64.0f : x;
  x = x > 64.0f ? 64.0f : x;
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
