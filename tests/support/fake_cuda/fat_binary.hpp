// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace fake_cuda {

/// Does what __cudaRegisterFatBinary was handed hold code for GPUs of this compute capability, as 90?
bool has_code_for(const void* binary, int capability);

/// Its PTX; empty where there is none, or where it is compressed (nvcc does without: --no-compress).
std::string ptx_of(const void* binary);

}  // namespace fake_cuda
