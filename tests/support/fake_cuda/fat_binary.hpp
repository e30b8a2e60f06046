// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace fake_cuda {

/// Does what __cudaRegisterFatBinary was handed hold code for GPUs of this compute capability, as 90?
bool has_code_for(const void* binary, int capability);

/// What the PTX of a kernel says of its launches.
struct KernelHeader {
  std::vector<std::size_t> parameter_bytes;
  unsigned max_threads = 1024;  ///< of a block
};

/// By its mangled name; null where the binary has no PTX, or compressed PTX (nvcc --no-compress leaves it readable).
const KernelHeader* header_of(const void* binary, const std::string& kernel);

}  // namespace fake_cuda
