// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/error.hpp"
#include "core/kokkos_compat.hpp"
#include "core/tensor.hpp"

namespace espalier {

/// Tensor<T, 1> in a form from which compilers deduce T.
template <class T>
using FlatTensor = Kokkos::View<T*, Kokkos::LayoutRight, MemSpace>;

/// Whether MPI may read and write the memory of the default execution space: always on hosts, on GPUs if the user says
/// so (ESPALIER_GPU_AWARE_MPI=1). The one place where this is decided.
bool mpi_reaches_device_memory();

/// The memory that MPI touches in place of a tensor: the tensor itself where MPI reaches it, else a host twin. Copies
/// happen in load() and store() only; both are no more than a fence where there is no twin.
template <class T>
class MpiBuffer {
 public:
  MpiBuffer() = default;
  explicit MpiBuffer(const FlatTensor<T>& tensor) : tensor_(tensor) {
    if (!mpi_reaches_device_memory())
      twin_ = HostTwin(ledger_label(Category::communication, "host_twin"), tensor.extent(0));
  }

  T* data() const { return twin_.data() != nullptr ? twin_.data() : tensor_.data(); }

  /// Makes elements [begin, begin + count) ready to be sent.
  void load(const ExecSpace& exec, Index begin, Index count) const {
    if (twin_.data() != nullptr)
      Kokkos::deep_copy(exec, part(twin_, begin, count), part(tensor_, begin, count));
    compat::fence(exec, "espalier::parallel: the data is complete before MPI reads it");
  }

  /// Makes received elements [begin, begin + count) visible to kernels on `exec`.
  void store(const ExecSpace& exec, Index begin, Index count) const {
    if (twin_.data() != nullptr)
      Kokkos::deep_copy(exec, part(tensor_, begin, count), part(twin_, begin, count));
  }

 private:
  using HostTwin = Kokkos::View<T*, Kokkos::LayoutRight, Kokkos::HostSpace>;

  template <class View>
  static auto part(const View& view, Index begin, Index count) {
    return Kokkos::subview(view, Kokkos::make_pair(begin, begin + count));
  }

  Tensor<T, 1> tensor_;
  HostTwin twin_;
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
