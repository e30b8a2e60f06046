// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "core/flat_storage.hpp"
#include "parallel/collectives/mpi_buffer.hpp"
#include "parallel/reduction/bucket_group.hpp"

namespace espalier {

/// The gradients of a rank, and the buffers that messages read and write.
template <class S>
struct GradientArrays {
  FlatStorage<S> storage;
  MpiBuffer<S> held;     ///< of storage.values()
  MpiBuffer<S> buffers;  ///< of storage.buffers()

  GradientArrays() = default;
  GradientArrays(const Communicator& communicator, const FlatStorage<S>& gradients)
      : storage(gradients), held(communicator, gradients.values()) {
    if (gradients.num_buffers() > 0)
      buffers = MpiBuffer<S>(communicator, gradients.buffers());
  }
};

/// The gradients of a bucket as messages carry them: themselves, or copies in a 16-bit wire type, in a buffer of this
/// object. Sums of 16-bit values are formed in fp32 and rounded once, with and without ZeRO.
template <class S>
class WireValues {
 public:
  /// For any bucket of the group. @param wire none: the type of the gradients. 16-bit types for fp32 gradients only.
  WireValues(const BucketGroup& group, const GradientArrays<S>& gradients, std::optional<ScalarType> wire,
             const std::string& name);

  static Index element_bytes(std::optional<ScalarType> wire) {
    return static_cast<Index>(wire ? size_of(*wire) : sizeof(S));
  }

  /// The first element of the bucket, where MPI reads and writes.
  unsigned char* data(const Bucket& bucket) const {
    return wire_ ? values_mpi_.data() : reinterpret_cast<unsigned char*>(mpi(bucket).data() + offset_of(bucket));
  }

  /// Makes the gradients of `range` ready to be sent.
  void pack(const Bucket& bucket, IndexRange range) const;
  /// Our slice becomes the sum over all ranks. `received` has the slices of the others, in rank order.
  void add(const Bucket& bucket, const Tensor<unsigned char, 1>& received) const;
  /// Makes the result of add() ready to be sent.
  void load_sums(const Bucket& bucket) const { load(bucket, own_slice(bucket)); }
  /// Writes the result of add() into the gradients.
  void unpack_own_sum(const Bucket& bucket) const { unpack(bucket, own_slice(bucket)); }
  /// After unpack_own_sum(), for a unit's bucket: our slice overwrites that of the shard, or is added to it.
  void add_to_shard(const Bucket& bucket, bool is_first) const;
  /// Writes what was received for the whole bucket into the gradients.
  void unpack_all_sums(const Bucket& bucket) const;

 private:
  void load(const Bucket& bucket, IndexRange range) const;
  void unpack(const Bucket& bucket, IndexRange range) const;
  IndexRange own_slice(const Bucket& bucket) const { return bucket.slice(group_->communicator.rank()); }
  // The bucket lies in the buffer of its unit, or where all is held.
  const MpiBuffer<S>& mpi(const Bucket& bucket) const { return bucket.unit < 0 ? gradients_.held : gradients_.buffers; }
  Index offset_of(const Bucket& bucket) const {
    return bucket.unit < 0 ? gradients_.storage.offset_of(bucket.offset)
                           : gradients_.storage.buffer_offset(bucket.offset);
  }
  FlatTensor<S> part(const Bucket& bucket, IndexRange range) const {
    const Tensor<S, 1>& array = bucket.unit < 0 ? gradients_.storage.values() : gradients_.storage.buffers();
    return FlatTensor<S>(array.data() + offset_of(bucket) + range.begin - bucket.offset, range.size());
  }

  const BucketGroup* group_;
  GradientArrays<S> gradients_;
  std::optional<ScalarType> wire_;
  Tensor<unsigned char, 1> values_;
  MpiBuffer<unsigned char> values_mpi_;
};

}  // namespace espalier
