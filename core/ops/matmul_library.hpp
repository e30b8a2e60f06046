// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "core/scalars.hpp"

namespace espalier {

/// The libraries a matmul can go through. `tiled` is our own kernel and runs wherever Kokkos does. `cublaslt_tf32` is
/// cuBLASLt with fp32 operands rounded to 10 bits of fraction, for the tensor cores: never a default.
enum class MatmulLibrary { tiled, kokkos_kernels, openblas, onednn, cublaslt, cublaslt_tf32 };
const char* to_string(MatmulLibrary library);
constexpr bool is_cublaslt(MatmulLibrary library) {
  return library == MatmulLibrary::cublaslt || library == MatmulLibrary::cublaslt_tf32;
}

/// Those that some build has.
inline constexpr std::array all_matmul_libraries{MatmulLibrary::tiled,    MatmulLibrary::kokkos_kernels,
                                                 MatmulLibrary::openblas, MatmulLibrary::onednn,
                                                 MatmulLibrary::cublaslt, MatmulLibrary::cublaslt_tf32};

/// Those this build has, portable first.
std::vector<MatmulLibrary> matmul_libraries();

/// The library that matmul() uses from now on. A choice of the process, made once before training: bits depend on it.
/// Attention's tiles ask for it only in 16 bits (tile_matmul.hpp).
MatmulLibrary matmul_library();
void set_matmul_library(MatmulLibrary library);

/// Which library the name means. @throws Error (usage) naming those present.
MatmulLibrary parse_matmul_library(const std::string& name);

/// The library to prefer here. Follows from the CPU, the libraries present and the type alone, not from a measurement:
/// the bits of a run must not depend on what else the machine is doing when it starts.
MatmulLibrary default_matmul_library(ScalarType type);

/// Whether the library multiplies values of this type of 16 bits as they are, on units of this CPU. Else, on a CPU, it
/// multiplies copies in fp32.
bool multiplies_16_bits(ScalarType type, MatmulLibrary library);

/// Bytes that matmuls of this type through this library hold on to from their first call; one workspace for the
/// process, or, on a GPU, for each instance of the execution space.
std::size_t matmul_workspace_bytes(ScalarType type, MatmulLibrary library);

/// Gives it back, until the next matmul needs one.
void release_matmul_workspace();

/// Kernels of matmuls that were chosen by timing them, on which bits depend.
struct MatmulChoices {
  std::string made_with;                       ///< library, version and device; empty where nothing is chosen by time
  std::map<std::string, std::string> kernels;  ///< by matmul, in words of the library; empty: none, or none that pays
};

/// Those of this process so far, and those that it was given.
MatmulChoices matmul_choices();

/// From now on these are taken instead of timing, where the library accepts them. Changes nothing, and returns false,
/// where they were made with anything else than is here.
bool prefer_matmul_choices(const MatmulChoices& choices);

/// One line about the libraries and the kernels they chose for this CPU.
std::string describe_matmul_libraries();

}  // namespace espalier
