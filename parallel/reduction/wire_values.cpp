// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/reduction/wire_values.hpp"

#include <fmt/format.h>

#include <algorithm>

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

}  // namespace

template <class S>
WireValues<S>::WireValues(const BucketGroup& group, const GradientArrays<S>& gradients, std::optional<ScalarType> wire,
                          const std::string& name)
    : group_(&group), gradients_(gradients), wire_(wire) {
  if (!wire_)
    return;
  ESPALIER_ASSERT((std::is_same_v<S, float>), "only fp32 gradients travel in another type");
  Index largest = 0;
  for (const Bucket* bucket : group.buckets)
    largest = std::max(largest, bucket->size);
  values_ = allocate<unsigned char>(Category::communication, name, largest * element_bytes(wire_));
  values_mpi_ = MpiBuffer<unsigned char>(group.communicator, values_);
}

template <class S>
void WireValues<S>::pack(const Bucket& bucket, IndexRange range) const {
  if constexpr (std::is_same_v<S, float>)
    if (wire_)
      with_wire_type(*wire_, [&]<class W>() {
        convert<W, S>(group_->exec, elements<W>(values_, range.begin - bucket.offset, range.size()),
                      part(bucket, range));
      });
  load(bucket, range);
}

template <class S>
void WireValues<S>::load(const Bucket& bucket, IndexRange range) const {
  const Index bytes = element_bytes(wire_);
  if (wire_)
    values_mpi_.load(group_->exec, (range.begin - bucket.offset) * bytes, range.size() * bytes);
  else
    mpi(bucket).load(group_->exec, offset_of(bucket) + range.begin - bucket.offset, range.size());
}

template <class S>
void WireValues<S>::add(const Bucket& bucket, const Tensor<unsigned char, 1>& received) const {
  const IndexRange own = own_slice(bucket);
  const int rank = group_->communicator.rank();
  const int size = group_->communicator.size();
  const auto add_to = [&]<class E>(const FlatTensor<E>& sum) {
    combine_in_rank_order(group_->exec, sum, elements<E>(received, 0, own.size() * (size - 1)), own.size(), rank, size,
                          ReduceOp::sum);
  };
  if (!wire_)
    return add_to(part(bucket, own));
  with_wire_type(*wire_, [&]<class W>() { add_to(elements<W>(values_, own.begin - bucket.offset, own.size())); });
}

template <class S>
void WireValues<S>::unpack(const Bucket& bucket, IndexRange range) const {
  if constexpr (std::is_same_v<S, float>)
    if (wire_)
      with_wire_type(*wire_, [&]<class W>() {
        convert<S, W>(group_->exec, part(bucket, range),
                      elements<W>(values_, range.begin - bucket.offset, range.size()));
      });
}

template <class S>
void WireValues<S>::unpack_all_sums(const Bucket& bucket) const {
  if (!wire_)
    return mpi(bucket).store(group_->exec, offset_of(bucket), bucket.size);
  values_mpi_.store(group_->exec, 0, bucket.size * element_bytes(wire_));
  unpack(bucket, bucket.range());
}

template <class S>
void WireValues<S>::add_to_shard(const Bucket& bucket, bool is_first) const {
  const IndexRange own = own_slice(bucket);
  if (own.size() == 0)
    return;
  const FlatStorage<S>& storage = gradients_.storage;
  const FlatTensor<S> shard(storage.values().data() + storage.offset_of(own.begin), own.size());
  if (is_first)
    Kokkos::deep_copy(group_->exec, shard, part(bucket, own));
  else
    combine_in_rank_order(group_->exec, shard, part(bucket, own), own.size(), 0, 2, ReduceOp::sum);
}

#define ESPALIER_INSTANTIATE(S) template class WireValues<S>;
ESPALIER_FOR_STATE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
