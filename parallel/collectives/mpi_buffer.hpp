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

/// How messages get at a tensor. Here alone is decided which way they go.
enum class MessageAccess {
  direct,  ///< MPI reaches it: kernels must be done before
  staged,  ///< MPI reaches a host twin only
  queued   ///< a device link moves it behind the kernels: there is nothing to wait for
};
MessageAccess message_access(const Communicator& communicator);
/// Of messages that go by MPI, whether or not the communicator has a device link.
MessageAccess mpi_access(const Communicator& communicator);

/// For memory that messages touch next: waits for the kernels on `exec`, where messages are not enqueued behind them.
void settle_before_messages(const Communicator& communicator, const ExecSpace& exec, const char* reason);

/// The memory that messages touch in place of a tensor: the tensor itself where they reach it, else a host twin. Copies
/// happen in load() and store() only; without a twin both are a fence, or nothing.
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
    twin_ = Twin(reinterpret_cast<T*>(block_->data()), tensor.extent(0));
  }

  T* data() const { return twin_.data() != nullptr ? twin_.data() : tensor_.data(); }

  /// Before something is received: MPI writes at once, and kernels on `exec` may still read what is overwritten.
  void vacate(const ExecSpace& exec) const {
    if (access_ == MessageAccess::direct)
      compat::fence(exec, "espalier::parallel: nobody reads what MPI overwrites");
  }

  /// Makes elements [begin, begin + count) ready to be sent.
  void load(const ExecSpace& exec, Index begin, Index count) const {
    if (twin_.data() != nullptr)
      Kokkos::deep_copy(exec, part(twin_, begin, count), part(tensor_, begin, count));
    if (access_ != MessageAccess::queued)
      compat::fence(exec, "espalier::parallel: the data is complete before MPI reads it");
  }

  /// Makes received elements [begin, begin + count) visible to kernels on `exec`.
  void store(const ExecSpace& exec, Index begin, Index count) const {
    if (twin_.data() == nullptr)
      return;
    Kokkos::deep_copy(exec, part(tensor_, begin, count), part(twin_, begin, count));
    compat::fence(exec, "espalier::parallel: the twin may be written again");
  }

 private:
  using Twin = Kokkos::View<T*, Kokkos::LayoutRight, compat::PinnedHostSpace, Kokkos::MemoryUnmanaged>;

  template <class View>
  static auto part(const View& view, Index begin, Index count) {
    return Kokkos::subview(view, Kokkos::make_pair(begin, begin + count));
  }

  Tensor<T, 1> tensor_;
  MessageAccess access_ = MessageAccess::direct;
  std::shared_ptr<const PinnedPool::Block> block_;
  Twin twin_;  // at the front of the block
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
