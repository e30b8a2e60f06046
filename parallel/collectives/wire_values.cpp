// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives/wire_values.hpp"

#include <fmt/format.h>

#include "core/ops/elementwise.hpp"
#include "parallel/collectives/rank_order.hpp"

namespace espalier {
namespace {

// f.operator()<W>() for the wire type.
template <class F>
void with_wire_type(ScalarType wire, const F& f) {
  if (wire == ScalarType::bf16)
    return f.template operator()<bfloat16>();
  ESPALIER_ASSERT(wire == ScalarType::fp16, fmt::format("gradients cannot travel as {}", to_string(wire)));
  f.template operator()<float16>();
}

template <class E>
FlatTensor<E> elements(const Tensor<unsigned char, 1>& bytes, Index begin, Index count) {
  return FlatTensor<E>(reinterpret_cast<E*>(bytes.data()) + begin, count);
}

IndexRange whole(const Bucket& bucket) { return {bucket.offset, bucket.offset + bucket.size}; }

}  // namespace

template <class S>
WireValues<S>::WireValues(const Communicator& communicator, const GradientArrays<S>& gradients,
                          std::optional<ScalarType> wire, const std::string& name, Index largest)
    : gradients_(gradients), wire_(wire) {
  if (!wire_)
    return;
  ESPALIER_ASSERT((std::is_same_v<S, float>), "only fp32 gradients travel in another type");
  values_ = allocate<unsigned char>(Category::communication, name, largest * element_bytes(wire_));
  values_mpi_ = MpiBuffer<unsigned char>(communicator, values_);
}

template <class S>
void WireValues<S>::pack(const ExecSpace& exec, const Bucket& bucket, IndexRange range) const {
  if constexpr (std::is_same_v<S, float>)
    if (wire_)
      with_wire_type(*wire_, [&]<class W>() {
        convert<W, S>(exec, elements<W>(values_, range.begin - bucket.offset, range.size()), part(bucket, range));
      });
  load(exec, bucket, range);
}

template <class S>
void WireValues<S>::load(const ExecSpace& exec, const Bucket& bucket, IndexRange range) const {
  const Index bytes = element_bytes(wire_);
  if (wire_)
    values_mpi_.load(exec, (range.begin - bucket.offset) * bytes, range.size() * bytes);
  else
    mpi(bucket).load(exec, place(bucket) + range.begin - bucket.offset, range.size());
}

template <class S>
void WireValues<S>::add(const ExecSpace& exec, const Bucket& bucket, const Tensor<unsigned char, 1>& received, int rank,
                        int size) const {
  const IndexRange own = bucket.slice(rank);
  const Index others = own.size() * (size - 1);
  if (!wire_)
    return combine_in_rank_order(exec, part(bucket, own), elements<S>(received, 0, others), own.size(), rank, size,
                                 ReduceOp::sum);
  with_wire_type(*wire_, [&]<class W>() {
    combine_in_rank_order(exec, elements<W>(values_, own.begin - bucket.offset, own.size()),
                          elements<W>(received, 0, others), own.size(), rank, size, ReduceOp::sum);
  });
}

template <class S>
void WireValues<S>::settle(const ExecSpace& exec, const Bucket& bucket, IndexRange range) const {
  if constexpr (std::is_same_v<S, float>)
    if (wire_)
      with_wire_type(*wire_, [&]<class W>() {
        convert<S, W>(exec, part(bucket, range), elements<W>(values_, range.begin - bucket.offset, range.size()));
      });
}

template <class S>
void WireValues<S>::store(const ExecSpace& exec, const Bucket& bucket) const {
  if (!wire_)
    return mpi(bucket).store(exec, place(bucket), bucket.size);
  values_mpi_.store(exec, 0, bucket.size * element_bytes(wire_));
  settle(exec, bucket, whole(bucket));
}

template <class S>
void WireValues<S>::accumulate(const ExecSpace& exec, const Bucket& bucket, IndexRange range, bool is_first) const {
  if (range.size() == 0)
    return;
  const FlatStorage<S>& storage = gradients_.storage;
  const FlatTensor<S> shard(storage.values().data() + storage.place(range.begin), range.size());
  if (is_first)
    Kokkos::deep_copy(exec, shard, part(bucket, range));
  else
    combine_in_rank_order(exec, shard, part(bucket, range), range.size(), 0, 2, ReduceOp::sum);
}

template class WireValues<float>;
template class WireValues<double>;

}  // namespace espalier
