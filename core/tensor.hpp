// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <array>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/kokkos_compat.hpp"
#include "core/memory_ledger.hpp"
#include "core/types.hpp"

namespace espalier {

namespace impl {
template <class T, int Rank>
struct AddPointers {
  using type = typename AddPointers<T, Rank - 1>::type*;
};
template <class T>
struct AddPointers<T, 0> {
  using type = T;
};
}  // namespace impl

/// Row-major array in the memory of the default execution space. A Tensor made from a pointer is a window that
/// owns nothing (a slice of a flat segment or of an arena); one made by allocate() owns its memory.
template <class T, int Rank>
using Tensor = Kokkos::View<typename impl::AddPointers<T, Rank>::type, Kokkos::LayoutRight, MemSpace>;

/// Tensor<T, 2> in a form from which compilers deduce T.
template <class T>
using Tensor2 = Kokkos::View<T**, Kokkos::LayoutRight, MemSpace>;

/// Host copy of the same shape; the same memory where the device is the host.
template <class T, int Rank>
using HostTensor = decltype(Kokkos::create_mirror_view(std::declval<Tensor<T, Rank>>()));

/// Allocates a zeroed flat array of `count` elements, entered in the memory ledger under `category`. Each thread
/// touches its own part first, so that pages lie near the thread that works on them.
/// @throws Error (ExitCode::memory) when the budget of the ledger would be exceeded.
template <class T>
Tensor<T, 1> allocate(Category category, const std::string& name, Index count) {
  MemoryLedger& ledger = MemoryLedger::instance();
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  if (ledger.shapes_only()) {
    ledger.record_shape(category, bytes);
    return Tensor<T, 1>(static_cast<T*>(nullptr), count);
  }
  ledger.require_budget(category, name, bytes);
  Tensor<T, 1> data(Kokkos::view_alloc(ledger_label(category, name), Kokkos::WithoutInitializing), count);
  Kokkos::parallel_for(
      "espalier::core::allocate::first_touch", RangePolicy(0, count), KOKKOS_LAMBDA(const Index i) { data(i) = T{}; });
  compat::fence(ExecSpace(), "espalier::allocate: the caller may use any instance next");
  return data;
}

/// Of a tensor of these extents.
inline Index num_elements(const std::vector<Index>& extents) {
  return std::accumulate(extents.begin(), extents.end(), Index{1}, std::multiplies<>());
}

/// Extents as text, "(4, 256, 768)", for messages.
template <class Extents>
std::string shape_text(const Extents& extents) {
  std::string text = "(";
  for (std::size_t i = 0; i < extents.size(); ++i)
    text += (i ? ", " : "") + std::to_string(extents[i]);
  return text + ")";
}

}  // namespace espalier
