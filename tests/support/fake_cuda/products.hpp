// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

namespace fake_cuda {

/// A matrix whose columns lie one behind another.
struct Matrix {
  cudaDataType type;
  std::uint64_t rows, cols;
  std::int64_t stride;  ///< of a column
  char* data;
};

/// d (m, n) = epilogue(alpha op(a) (m, k) op(b) (k, n) + beta c (m, n)); see cublasLtEpilogue_t.
struct Product {
  Matrix a, b, c, d, second;  ///< second: of GELU_AUX and DGELU; as d
  bool transposes_a, transposes_b, rounds_to_tf32;
  double alpha, beta;
  std::uint64_t epilogue;
  char* bias;  ///< of the type of d: (m), or a gradient of it
  void* workspace;
  std::size_t workspace_bytes;
};

/// All data are in memory of the device. Nothing but that they are touched is noted where kernels do not run.
void perform(const Product& product);

}  // namespace fake_cuda
