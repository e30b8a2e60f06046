// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives/rank_order.hpp"

namespace espalier {
namespace impl {

// A host thread adds block by block, so that the inner loop over i vectorises; a GPU thread adds one element.
inline constexpr Index combine_block = exec_is_host ? 1024 : 1;

template <class T>
struct Sum {
  KOKKOS_INLINE_FUNCTION T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct Max {
  KOKKOS_INLINE_FUNCTION T operator()(T a, T b) const { return (a > b || a != a) ? a : b; }
};
template <class T>
struct Min {
  KOKKOS_INLINE_FUNCTION T operator()(T a, T b) const { return (a < b || a != a) ? a : b; }
};

// What sums are formed in: 16-bit values are widened, and the result is rounded once.
template <class T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<bfloat16> {
  using type = float;
};
template <>
struct Accumulator<float16> {
  using type = float;
};

template <class T, class Op>
void combine(const ExecSpace& exec, const FlatTensor<T>& own, const FlatTensor<T>& received, Index stride, int rank,
             int size, Op op) {
  const Index count = static_cast<Index>(own.extent(0));
  using A = typename Accumulator<T>::type;
  const Index blocks = (count + combine_block - 1) / combine_block;
  T* const ours = own.data();
  const T* const theirs = received.data();
  Kokkos::parallel_for(
      "espalier::parallel::combine_in_rank_order", RangePolicy(exec, 0, blocks), KOKKOS_LAMBDA(const Index block) {
        const Index begin = block * combine_block;
        const Index length = begin + combine_block < count ? combine_block : count - begin;
        const auto values_of = [&](const int peer) {
          return begin + (peer == rank ? ours : theirs + (peer < rank ? peer : peer - 1) * stride);
        };
        A result[combine_block];
        const T* from = values_of(0);
        for (Index i = 0; i < length; ++i)
          result[i] = static_cast<A>(from[i]);
        for (int peer = 1; peer < size; ++peer) {
          from = values_of(peer);
          for (Index i = 0; i < length; ++i)
            result[i] = op(result[i], static_cast<A>(from[i]));
        }
        for (Index i = 0; i < length; ++i)
          ours[begin + i] = static_cast<T>(result[i]);
      });
}

}  // namespace impl

template <class T>
void combine_in_rank_order(const ExecSpace& exec, const FlatTensor<T>& own, const FlatTensor<T>& received, Index stride,
                           int rank, int size, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return impl::combine(exec, own, received, stride, rank, size, impl::Sum<typename impl::Accumulator<T>::type>{});
    case ReduceOp::max:
      return impl::combine(exec, own, received, stride, rank, size, impl::Max<typename impl::Accumulator<T>::type>{});
    case ReduceOp::min:
      return impl::combine(exec, own, received, stride, rank, size, impl::Min<typename impl::Accumulator<T>::type>{});
  }
}

std::vector<ByteRange> received_ranges(int rank, int size, std::size_t bytes, std::size_t stride) {
  std::vector<ByteRange> ranges(static_cast<std::size_t>(size));
  for (int peer = 0; peer < size; ++peer)
    if (peer != rank)
      ranges[static_cast<std::size_t>(peer)] = {static_cast<std::size_t>(received_slot(peer, rank)) * stride, bytes};
  return ranges;
}

#define ESPALIER_INSTANTIATE(T)                                                                                      \
  template void combine_in_rank_order(const ExecSpace&, const FlatTensor<T>&, const FlatTensor<T>&, Index, int, int, \
                                      ReduceOp);
ESPALIER_FOR_SUMMED_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
