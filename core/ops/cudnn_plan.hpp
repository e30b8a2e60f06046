// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

// Only attention_cudnn.cpp and cudnn_plan.cpp, in builds with cuDNN. No Kokkos here: nvcc need not read cuDNN's
// headers.

struct cudnnContext;  // cudnnHandle_t points to it
struct CUstream_st;   // cudaStream_t points to it

namespace espalier::impl {

/// Causal attention in 16 bits: what cuDNN makes a plan for. Letters as in attention.hpp.
struct CudnnShape {
  std::int64_t batch;            ///< B
  std::int64_t sequence_length;  ///< T
  std::int64_t num_heads;        ///< NH (local)
  std::int64_t num_kv_heads;     ///< NKV (local); divides NH
  std::int64_t head_size;        ///< HS
  std::int64_t window;           ///< W; 0: a query sees all keys up to itself
  bool is_bf16;                  ///< else fp16
  auto operator<=>(const CudnnShape&) const = default;
};

/// The handle of the library for the GPU that is in use. @throws Error (defect) with cuDNN's words.
class CudnnHandle {
 public:
  CudnnHandle();
  ~CudnnHandle();
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;
  cudnnContext* get() const { return handle_; }

 private:
  cudnnContext* handle_ = nullptr;
};

/// Where the arrays of a micro-batch lie, in device memory.
struct CudnnArrays {
  const void* qkv;     ///< (B*T, Ql)
  void* out;           ///< (B*T, Cl); written by forward, read by backward
  float* log_sum_exp;  ///< (B*NH*T); likewise
  const void* dout;    ///< (B*T, Cl); of backward alone
  void* dqkv;          ///< (B*T, Ql), =; of backward alone
  void* workspace;     ///< workspace_bytes(), at a multiple of 256
};

/// Forward and backward of one shape as cuDNN's fused kernels do them; backward sums in a fixed order, so that the same
/// step has the same bits.
class CudnnAttention {
 public:
  /// `device` describes a GPU that is not here, as cuDNN writes it (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION): then
  /// cuDNN is only asked whether it has kernels, and nothing can be run. `handle` is null then.
  CudnnAttention(const CudnnShape& shape, cudnnContext* handle, const std::string& device = {});
  ~CudnnAttention();

  /// Empty, or why cuDNN has no kernels for this shape on this GPU.
  const std::string& refusal() const { return refusal_; }
  std::size_t workspace_bytes() const { return workspace_bytes_; }

  /// On the stream; nothing waits. @throws Error (defect) with cuDNN's words.
  void forward(CUstream_st* stream, const CudnnArrays& arrays) const;
  void backward(CUstream_st* stream, const CudnnArrays& arrays) const;

 private:
  struct Graphs;
  CudnnShape shape_;
  cudnnContext* handle_;
  std::unique_ptr<Graphs> graphs_;
  std::string refusal_;
  std::size_t workspace_bytes_ = 0;
};

/// "9.19.0".
std::string cudnn_version();

}  // namespace espalier::impl
