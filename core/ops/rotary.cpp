// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/rotary.hpp"

#include <cmath>

#include "core/ops/map_row_to_pair.hpp"

namespace espalier {
namespace {

// By the angle, or back by it.
template <class T>
struct Rotation {
  using S = State<T>;
  S direction;  // 1 or -1

  KOKKOS_INLINE_FUNCTION RowPair<S> operator()(const T a, const T b, const S cosine, const S sine) const {
    const S x = static_cast<S>(a), y = static_cast<S>(b), s = direction * sine;
    return {x * cosine - y * s, y * cosine + x * s};
  }
};

// The pairs of all heads of a row. On GPUs a warp takes several heads at a time.
template <class T>
KOKKOS_INLINE_FUNCTION void rotate_row(const TeamThread& thread, T* row, Index heads, Index head_size,
                                       const State<T>* cosines, Index pairs, const Rotation<T>& rotate) {
  const State<T>* const sines = cosines + pairs;
  if constexpr (exec_is_host) {
    for (Index h = 0; h < heads; ++h) {
      T* const head = row + h * head_size;
      map_row_to_pair(thread, pairs, head, head + pairs, rotate, head, head + pairs, cosines, sines);
    }
  } else {
    constexpr Index size = Pack<T>::size;
    const bool packed = impl::packs_of(pairs, row, row + head_size, row + pairs, cosines, sines) * size == pairs;
    const Index packs = packed ? pairs / size : 0;
    row_for(thread, heads * packs, [&](const Index i) {
      T* const head = row + i / packs * head_size;
      const Index p = i % packs;
      Pack<T> a = impl::pack_at(head, p), b = impl::pack_at(head + pairs, p);
      const auto c = impl::pack_at(cosines, p), s = impl::pack_at(sines, p);
      for (Index k = 0; k < size; ++k) {
        const RowPair<State<T>> rotated = rotate(a.values[k], b.values[k], c.values[k], s.values[k]);
        a.values[k] = static_cast<T>(rotated.first);
        b.values[k] = static_cast<T>(rotated.second);
      }
      impl::put_pack(head, p, a);
      impl::put_pack(head + pairs, p, b);
    });
    row_for(thread, packed ? 0 : heads * pairs, [&](const Index i) {
      T* const a = row + i / pairs * head_size + i % pairs;
      const RowPair<State<T>> rotated = rotate(a[0], a[pairs], cosines[i % pairs], sines[i % pairs]);
      a[0] = static_cast<T>(rotated.first);
      a[pairs] = static_cast<T>(rotated.second);
    });
  }
}

template <class T>
void rotate_rows(const ExecSpace& exec, const char* label, const Tensor<T, 2>& rows, Index heads, Index head_size,
                 const Tensor<State<T>, 2>& table, const RowPositions& positions, const Rotation<T>& rotate) {
  const Index pairs = static_cast<Index>(table.extent(1)) / 2;
  for_rows(
      exec, label, rows.extent(0), KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        rotate_row<T>(thread, &rows(n, 0), heads, head_size, &table(positions(n), 0), pairs, rotate);
      });
}

}  // namespace

template <class S>
void make_rotary_table(const ExecSpace& exec, Tensor<S, 2> table, const RotaryFrequencies& frequencies) {
  const std::size_t pairs = frequencies.of_pairs.size();
  ESPALIER_ASSERT(table.extent(1) == 2 * pairs, "a cosine and a sine for each pair");
  const auto host = Kokkos::create_mirror_view(table);
  for (std::size_t p = 0; p < table.extent(0); ++p)
    for (std::size_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(p) * frequencies.of_pairs[i];
      host(p, i) = static_cast<S>(frequencies.attention_factor * std::cos(angle));
      host(p, pairs + i) = static_cast<S>(frequencies.attention_factor * std::sin(angle));
    }
  Kokkos::deep_copy(exec, table, host);
  compat::fence(exec, "espalier::core::make_rotary_table: the source on the host goes");
}

template <class T>
void rotary_forward(const ExecSpace& exec, Tensor<T, 2> rows, Index heads, Index head_size, Tensor<State<T>, 2> table,
                    const RowPositions& positions) {
  rotate_rows<T>(exec, "espalier::core::rotary_forward", rows, heads, head_size, table, positions, {State<T>(1)});
}

template <class T>
void rotary_backward(const ExecSpace& exec, Tensor<T, 2> drows, Index heads, Index head_size, Tensor<State<T>, 2> table,
                     const RowPositions& positions) {
  rotate_rows<T>(exec, "espalier::core::rotary_backward", drows, heads, head_size, table, positions, {State<T>(-1)});
}

#define ESPALIER_INSTANTIATE(T)                                                                       \
  template void rotary_forward<T>(const ExecSpace&, Tensor<T, 2>, Index, Index, Tensor<State<T>, 2>,  \
                                  const RowPositions&);                                               \
  template void rotary_backward<T>(const ExecSpace&, Tensor<T, 2>, Index, Index, Tensor<State<T>, 2>, \
                                   const RowPositions&);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

#define ESPALIER_INSTANTIATE(S) \
  template void make_rotary_table<S>(const ExecSpace&, Tensor<S, 2>, const RotaryFrequencies&);
ESPALIER_FOR_STATE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
