// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/error.hpp"
#include "core/kokkos_compat.hpp"
#include "core/tensor.hpp"
#include "parallel/collectives/communicator.hpp"

namespace espalier {

/// Tensor<T, 1> in a form from which compilers deduce T.
template <class T>
using FlatTensor = Kokkos::View<T*, Kokkos::LayoutRight, MemSpace>;

/// How messages reach a tensor. Only message_access() and mpi_access() decide it.
enum class MessageAccess {
  direct,   ///< MPI reaches it: kernels must be done before
  staged,   ///< MPI reaches a staging buffer on the host only
  enqueued  ///< a device link moves it behind the kernels: there is nothing to wait for
};
MessageAccess message_access(const Communicator& communicator);
/// Of messages that go by MPI, whether or not the communicator has a device link.
MessageAccess mpi_access(const Communicator& communicator);

/// Waits for the kernels on `exec` before messages read or write memory, unless these are enqueued behind the kernels.
void fence_before_messages(const Communicator& communicator, const ExecSpace& exec, const char* reason);

/// The memory that messages read and write for a tensor: the tensor itself where they reach it, else a staging buffer
/// on the host. Only load() and store() copy; without a staging buffer they are a fence, or nothing.
template <class T>
class MpiBuffer {
 public:
  MpiBuffer() = default;
  MpiBuffer(const Communicator& communicator, const FlatTensor<T>& tensor)
      : MpiBuffer(message_access(communicator), communicator, tensor) {}
  MpiBuffer(MessageAccess access, const Communicator& communicator, const FlatTensor<T>& tensor)
      : tensor_(tensor), access_(access) {
    if (access_ != MessageAccess::staged)
      return;
    block_ = communicator.state()->context->pinned.take(tensor.extent(0) * sizeof(T));
    staging_ = Staging(reinterpret_cast<T*>(block_->data()), tensor.extent(0));
  }

  T* data() const { return staging_.data() != nullptr ? staging_.data() : tensor_.data(); }

  /// Call before a receive: MPI writes at once, and kernels on `exec` may still read what is overwritten.
  void prepare_receive(const ExecSpace& exec) const {
    if (access_ == MessageAccess::direct)
      compat::fence(exec, "espalier::parallel: nobody reads what MPI overwrites");
  }

  /// Makes elements [begin, begin + count) ready to be sent.
  void load(const ExecSpace& exec, Index begin, Index count) const {
    if (staging_.data() != nullptr)
      Kokkos::deep_copy(exec, part(staging_, begin, count), part(tensor_, begin, count));
    if (access_ != MessageAccess::enqueued)
      compat::fence(exec, "espalier::parallel: the data is complete before MPI reads it");
  }

  /// Makes received elements [begin, begin + count) visible to kernels on `exec`.
  void store(const ExecSpace& exec, Index begin, Index count) const {
    if (staging_.data() == nullptr)
      return;
    Kokkos::deep_copy(exec, part(tensor_, begin, count), part(staging_, begin, count));
    compat::fence(exec, "espalier::parallel: the staging buffer may be written again");
  }

 private:
  using Staging = Kokkos::View<T*, Kokkos::LayoutRight, compat::PinnedHostSpace, Kokkos::MemoryUnmanaged>;

  template <class View>
  static auto part(const View& view, Index begin, Index count) {
    return Kokkos::subview(view, Kokkos::make_pair(begin, begin + count));
  }

  Tensor<T, 1> tensor_;
  MessageAccess access_ = MessageAccess::direct;
  std::shared_ptr<const PinnedPool::Block> block_;
  Staging staging_;  // at the front of the block
};

/// A contiguous tensor of any rank as a window of rank 1.
template <class View>
auto flatten(const View& tensor) {
  using T = typename View::non_const_value_type;
  static_assert(Kokkos::is_view<View>::value, "espalier::flatten: needs a tensor");
  static_assert(Kokkos::SpaceAccessibility<ExecSpace, typename View::memory_space>::accessible,
                "espalier::flatten: the tensor must lie where the default execution space computes");
  ESPALIER_ASSERT(tensor.span_is_contiguous(), "only contiguous tensors can be communicated");
  return Tensor<T, 1>(const_cast<T*>(tensor.data()), tensor.size());
}

}  // namespace espalier
