// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/memory_ledger.hpp"

namespace espalier::impl {

/// Memory that a library of NVIDIA may work in, one piece a stream, kept until released.
class StreamWorkspaces {
 public:
  explicit StreamWorkspaces(std::string name) : name_(std::move(name)) {}

  /// At least `bytes`, at a multiple of 256, as these libraries want it (Kokkos aligns to 128). A call that wants more
  /// than those before it gets a new piece; the old one stays, as a recorded graph may name it.
  void* get(cudaStream_t stream, std::size_t bytes) {
    Tensor<std::byte, 1>& memory = by_stream_[stream];
    if (memory.extent(0) < with_gap(bytes)) {
      if (memory.extent(0) > 0)
        outgrown_.push_back(memory);
      memory = allocate<std::byte>(Category::workspace, name_, static_cast<Index>(with_gap(bytes)));
    }
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    return reinterpret_cast<void*>((address + alignment - 1) / alignment * alignment);
  }
  void release() {
    by_stream_.clear();
    outgrown_.clear();
  }

  /// What get() allocates for as much.
  static constexpr std::size_t with_gap(std::size_t bytes) { return bytes == 0 ? 0 : bytes + alignment; }

 private:
  static constexpr std::size_t alignment = 256;
  std::string name_;
  std::map<cudaStream_t, Tensor<std::byte, 1>> by_stream_;
  std::vector<Tensor<std::byte, 1>> outgrown_;
};

}  // namespace espalier::impl
