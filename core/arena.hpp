// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/error.hpp"
#include "core/tensor.hpp"

namespace espalier {

/// Hands out tensors from one block of memory, in order. Without memory it only counts, so that one function describes
/// a layout both to the planner and to the run:
///
///     Arena measure;              Saved::take(measure, shape);   allocate(..., measure.used_bytes());
///     Arena arena(memory, size);  Saved::take(arena, shape);
class Arena {
 public:
  Arena() = default;
  Arena(std::byte* memory, Index bytes) : memory_(memory), capacity_(bytes) {}

  /// A tensor of the given extents; its content is undefined.
  template <class T, class... Extents>
  Tensor<T, static_cast<int>(sizeof...(Extents))> take(Extents... extents) {
    const Index begin = used_;
    const Index count = (static_cast<Index>(extents) * ...);
    used_ += (count * static_cast<Index>(sizeof(T)) + alignment - 1) / alignment * alignment;
    if (memory_ == nullptr)
      return {};
    ESPALIER_ASSERT(used_ <= capacity_, "more is taken than was measured: " + std::to_string(used_) + " of " +
                                            std::to_string(capacity_) + " bytes");
    return Tensor<T, static_cast<int>(sizeof...(Extents))>(reinterpret_cast<T*>(memory_ + begin), extents...);
  }

  /// As many bytes as `measured` has used, for an arena of their own.
  Tensor<std::byte, 1> take_bytes_of(const Arena& measured) { return take<std::byte>(measured.used_bytes()); }

  Index used_bytes() const { return used_; }

 private:
  static constexpr Index alignment = 256;  // bytes; no two tensors share a cache line
  std::byte* memory_ = nullptr;
  Index capacity_ = 0;
  Index used_ = 0;
};

}  // namespace espalier
