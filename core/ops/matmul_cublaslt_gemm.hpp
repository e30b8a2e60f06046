// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "core/ops/matmul_cublaslt.hpp"

// Only matmul_cublaslt.cpp and matmul_cublaslt_gemm.cpp, in builds with cuBLASLt.

namespace espalier::impl {

/// What Hopper's kernels ask for; behind it the gradient of a bias lies until it is added.
inline constexpr std::size_t usable_workspace = std::size_t{32} << 20;
inline constexpr std::size_t max_bias_bytes = std::size_t{1} << 20;

/// Everything that the choice of an algorithm may depend on. Alignments are those of the addresses, in bytes.
struct CublasltShape {
  ScalarType type, result;
  bool tf32;
  Index rows, cols, inner;
  Transpose ta, tb;
  Index a_stride, b_stride, c_stride;
  bool has_addend;  ///< beta is not 0
  EpilogueKind epilogue;
  std::uint32_t a_alignment, b_alignment, addend_alignment, c_alignment, bias_alignment, before_gelu_alignment;
  auto operator<=>(const CublasltShape&) const = default;  // NOLINT(modernize-use-nullptr): sees a pointer in it
};

/// What differs between two matmuls of one shape.
struct Operands {
  const void *a, *b, *addend, *bias;
  void *c, *before_gelu;
  const void *alpha, *beta;
};

/// @throws Error (memory, else defect) naming the call and the matmul.
void check_cublaslt(cublasStatus_t status, const char* call, const CublasltShape& shape);

template <auto destroy>
struct Destroy {
  template <class Opaque>
  void operator()(Opaque* object) const {
    static_cast<void>(destroy(object));
  }
};

/// Milliseconds of what run() enqueues on `stream`, the best of some timings; infinite where it returns false. `what`
/// it is, for an error.
float time_ms(cudaStream_t stream, const std::string& what, const std::function<bool()>& run);

/// Whether one time is shorter than another by more than timings vary.
bool is_faster(float ms, float other_ms);

/// A matmul of one shape. cuBLASLt counts columns first: our row-major c = op(a) op(b) is its c' = op(b)' op(a)', and
/// each matrix as it lies is already the transposed one.
class CublasltMatmul {
 public:
  explicit CublasltMatmul(const CublasltShape& shape);

  /// Chooses an algorithm; none where there is none.
  void choose(cublasLtHandle_t handle, const Operands& operands, void* workspace, cudaStream_t stream);
  bool has_algorithm() const { return has_algorithm_; }
  /// Milliseconds that it took; infinite where it was not timed.
  float ms() const { return ms_; }
  void give_up() { has_algorithm_ = false; }

  /// Shape and all that the choice may depend on.
  std::string text() const;
  /// The algorithm in hexadecimal digits; empty where there is none.
  std::string choice() const;
  /// Takes a choice() of another process with the same library and device, if the library accepts it.
  bool take_choice(cublasLtHandle_t handle, const std::string& choice, const Operands& operands);

  /// @throws Error (memory, else defect).
  void run(cublasLtHandle_t handle, const Operands& operands, void* workspace, cudaStream_t stream);

 private:
  using Description = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy<cublasLtMatmulDescDestroy>>;
  using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy<cublasLtMatrixLayoutDestroy>>;
  using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroy<cublasLtMatmulPreferenceDestroy>>;
  struct Proposals;

  Layout layout_of(ScalarType type, Index rows, Index cols, Index stride) const;
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value);
  void point_to(const Operands& operands);
  Proposals proposals(cublasLtHandle_t handle, const Operands& operands);
  void choose_fastest(cublasLtHandle_t handle, const Proposals& found, Operands operands, void* workspace,
                      cudaStream_t stream);
  cublasStatus_t run_with(const cublasLtMatmulAlgo_t& algorithm, cublasLtHandle_t handle, const Operands& operands,
                          void* workspace, cudaStream_t stream);

  CublasltShape shape_;
  Layout left_, right_, result_;
  Description description_;
  bool has_algorithm_ = false;
  cublasLtMatmulAlgo_t algorithm_{};
  float ms_ = std::numeric_limits<float>::infinity();
};

}  // namespace espalier::impl
