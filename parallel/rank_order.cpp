// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/rank_order.hpp"

#include <cstdint>

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

template <class T, class Op>
void combine(const ExecSpace& exec, const FlatTensor<T>& own, const FlatTensor<T>& received, Index stride, int rank,
             int size, Op op) {
  const Index count = static_cast<Index>(own.extent(0));
  const Index blocks = (count + combine_block - 1) / combine_block;
  T* const ours = own.data();
  const T* const theirs = received.data();
  Kokkos::parallel_for(
      "espalier::parallel::combine_in_rank_order", Kokkos::RangePolicy<ExecSpace>(exec, 0, blocks),
      KOKKOS_LAMBDA(const Index block) {
        const Index begin = block * combine_block;
        const Index length = begin + combine_block < count ? combine_block : count - begin;
        T result[combine_block];
        for (int peer = 0; peer < size; ++peer) {
          const T* const from = peer == rank ? ours + begin : theirs + (peer < rank ? peer : peer - 1) * stride + begin;
          for (Index i = 0; i < length; ++i)
            result[i] = peer == 0 ? from[i] : op(result[i], from[i]);
        }
        for (Index i = 0; i < length; ++i)
          ours[begin + i] = result[i];
      });
}

}  // namespace impl

template <class T>
void combine_in_rank_order(const ExecSpace& exec, const FlatTensor<T>& own, const FlatTensor<T>& received, Index stride,
                           int rank, int size, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return impl::combine(exec, own, received, stride, rank, size, impl::Sum<T>{});
    case ReduceOp::max: return impl::combine(exec, own, received, stride, rank, size, impl::Max<T>{});
    case ReduceOp::min: return impl::combine(exec, own, received, stride, rank, size, impl::Min<T>{});
  }
}

template void combine_in_rank_order(const ExecSpace&, const FlatTensor<float>&, const FlatTensor<float>&, Index, int,
                                    int, ReduceOp);
template void combine_in_rank_order(const ExecSpace&, const FlatTensor<double>&, const FlatTensor<double>&, Index, int,
                                    int, ReduceOp);
template void combine_in_rank_order(const ExecSpace&, const FlatTensor<std::int32_t>&, const FlatTensor<std::int32_t>&,
                                    Index, int, int, ReduceOp);
template void combine_in_rank_order(const ExecSpace&, const FlatTensor<std::int64_t>&, const FlatTensor<std::int64_t>&,
                                    Index, int, int, ReduceOp);

}  // namespace espalier
