// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention_cuda.hpp"

#ifdef KOKKOS_ENABLE_CUDA
#include <cmath>
#include <limits>

#include "core/cuda_check.hpp"
#include "core/ops/attention_tiles.hpp"
#include "core/ops/warp_cuda.hpp"
#include "core/region.hpp"
#endif

namespace espalier::impl {

#ifdef KOKKOS_ENABLE_CUDA
namespace {

using warp_tiles::block_rows;
using warp_tiles::Head;
using warp_tiles::Rows;
using warp_tiles::threads;

// The arrays of all heads.
template <class T>
struct Arrays {
  const T* qkv;        // (B*T, 3*Cl)
  const T* out;        // (B*T, Cl)
  const T* dout;       // (B*T, Cl)
  T* result;           // out in forward, dqkv in backward
  float* log_sum_exp;  // (B*NH*T)
  AttentionShape shape;
  float scale;

  // Head `head` of B*NH; part 0, 1, 2 of 3: Q, K, V.
  template <class Element>
  __device__ Rows<Element> rows(Element* first, Index head, Index part, Index parts) const {
    const Index stride = parts * shape.num_heads * shape.head_size;
    const Index b = head / shape.num_heads, h = head % shape.num_heads;
    return {first + b * shape.sequence_length * stride + (part * shape.num_heads + h) * shape.head_size, stride};
  }
  __device__ Head<T> head(Index head) const {
    return {rows(qkv, head, 0, 3),
            rows(qkv, head, 1, 3),
            rows(qkv, head, 2, 3),
            static_cast<int>(shape.sequence_length),
            static_cast<int>(shape.head_size),
            scale};
  }
  __device__ float* log_sums(Index head) const { return log_sum_exp + head * shape.sequence_length; }
};

// A block for each head (x) and tile (y). Of queries the last tiles see the most keys, and begin first.
__device__ int late_tile() { return static_cast<int>(gridDim.y - 1 - blockIdx.y) * block_rows; }
__device__ int early_tile() { return static_cast<int>(blockIdx.y) * block_rows; }

template <class T>
__device__ T* shared_memory() {
  extern __shared__ __align__(16) unsigned char memory[];
  return reinterpret_cast<T*>(memory);
}

template <class T, int columns>
__global__ void __launch_bounds__(threads) forward_kernel(const Arrays<T> arrays) {
  const Index head = blockIdx.x;
  warp_tiles::forward_block<columns>(CudaWarp(), shared_memory<T>(), arrays.head(head),
                                     arrays.rows(arrays.result, head, 0, 1), arrays.log_sums(head), late_tile());
}

template <class T>
__global__ void __launch_bounds__(threads) project_kernel(const Arrays<T> arrays) {
  const Index head = blockIdx.x;
  warp_tiles::project_block(CudaWarp(), arrays.rows(arrays.result, head, 0, 3), arrays.rows(arrays.dout, head, 0, 1),
                            arrays.rows(arrays.out, head, 0, 1), early_tile(),
                            static_cast<int>(arrays.shape.sequence_length), static_cast<int>(arrays.shape.head_size));
}

template <class T, int columns>
__global__ void __launch_bounds__(threads) key_gradient_kernel(const Arrays<T> arrays) {
  const Index head = blockIdx.x;
  warp_tiles::key_gradient_block<columns>(
      CudaWarp(), shared_memory<T>(), arrays.head(head), arrays.rows(arrays.dout, head, 0, 1), arrays.log_sums(head),
      arrays.rows(arrays.result, head, 0, 3), arrays.rows(arrays.result, head, 1, 3),
      arrays.rows(arrays.result, head, 2, 3), early_tile());
}

template <class T, int columns>
__global__ void __launch_bounds__(threads) query_gradient_kernel(const Arrays<T> arrays) {
  const Index head = blockIdx.x;
  warp_tiles::query_gradient_block<columns>(CudaWarp(), shared_memory<T>(), arrays.head(head),
                                            arrays.rows(arrays.dout, head, 0, 1), arrays.log_sums(head),
                                            arrays.rows(arrays.result, head, 0, 3), late_tile());
}

template <class T>
using Kernel = void (*)(const Arrays<T>);

// More than 48 KiB of shared memory must be asked for, once for each kernel.
template <class T>
void launch(const ExecSpace& exec, const char* name, Kernel<T> kernel, int shared_bytes, const Arrays<T>& arrays) {
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), name);
  const auto heads = static_cast<unsigned>(arrays.shape.batch * arrays.shape.num_heads);
  const auto tiles = static_cast<unsigned>((arrays.shape.sequence_length + block_rows - 1) / block_rows);
  kernel<<<dim3(heads, tiles), threads, static_cast<std::size_t>(shared_bytes), exec.cuda_stream()>>>(arrays);
  check_cuda(cudaGetLastError(), name);
}

bool is_aligned(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; }

template <class T>
bool is_fit(const ExecSpace& exec, const Arrays<T>& arrays) {
  const AttentionShape& shape = arrays.shape;
  constexpr Index most_tiles = 65535;  // CUDA's limit on a grid in y
  return exec.cuda_device_prop().major >= 8 && shape.head_size % warp_tiles::chunk == 0 && shape.head_size > 0 &&
         shape.head_size <= 128 && shape.sequence_length > 0 && shape.batch > 0 &&
         shape.sequence_length <= most_tiles * block_rows &&
         shape.batch * shape.num_heads <= std::numeric_limits<int>::max() && is_aligned(arrays.qkv) &&
         is_aligned(arrays.out) && is_aligned(arrays.dout) && is_aligned(arrays.result);
}

float scale_of(const AttentionShape& shape) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(shape.head_size)));
}

// f(columns), the least of the sizes that kernels are compiled for.
template <class F>
void with_columns(Index head_size, const F& f) {
  if (head_size <= 64)
    f(std::integral_constant<int, 64>());
  else if (head_size <= 80)
    f(std::integral_constant<int, 80>());
  else if (head_size <= 96)
    f(std::integral_constant<int, 96>());
  else
    f(std::integral_constant<int, 128>());
}

}  // namespace

template <class T>
bool attention_forward_cuda(const ExecSpace& exec, const Tensor<T, 2>& out, const Tensor<float, 1>& log_sum_exp,
                            const Tensor<T, 2>& qkv, const AttentionShape& shape) {
  const Arrays<T> arrays{qkv.data(), nullptr, nullptr, out.data(), log_sum_exp.data(), shape, scale_of(shape)};
  if (!is_fit(exec, arrays))
    return false;
  const Region region("espalier::core::attention_forward");
  with_columns(shape.head_size, [&](auto constant) {
    constexpr int columns = decltype(constant)::value;
    launch<T>(exec, "attention_forward", forward_kernel<T, columns>, warp_tiles::forward_bytes<columns>, arrays);
  });
  return true;
}

template <class T>
bool attention_backward_cuda(const ExecSpace& exec, const Tensor<T, 2>& dqkv, const Tensor<T, 2>& dout,
                             const Tensor<T, 2>& out, const Tensor<float, 1>& log_sum_exp, const Tensor<T, 2>& qkv,
                             const AttentionShape& shape) {
  const Arrays<T> arrays{qkv.data(), out.data(), dout.data(), dqkv.data(), log_sum_exp.data(), shape, scale_of(shape)};
  if (!is_fit(exec, arrays))
    return false;
  const Region region("espalier::core::attention_backward");
  launch<T>(exec, "attention_backward, projections", project_kernel<T>, 0, arrays);
  with_columns(shape.head_size, [&](auto constant) {
    constexpr int columns = decltype(constant)::value;
    launch<T>(exec, "attention_backward, dK and dV", key_gradient_kernel<T, columns>,
              warp_tiles::key_gradient_bytes<columns>, arrays);
    launch<T>(exec, "attention_backward, dQ", query_gradient_kernel<T, columns>,
              warp_tiles::query_gradient_bytes<columns>, arrays);
  });
  return true;
}

#else

template <class T>
bool attention_forward_cuda(const ExecSpace&, const Tensor<T, 2>&, const Tensor<float, 1>&, const Tensor<T, 2>&,
                            const AttentionShape&) {
  return false;
}

template <class T>
bool attention_backward_cuda(const ExecSpace&, const Tensor<T, 2>&, const Tensor<T, 2>&, const Tensor<T, 2>&,
                             const Tensor<float, 1>&, const Tensor<T, 2>&, const AttentionShape&) {
  return false;
}

#endif

#define ESPALIER_INSTANTIATE(T)                                                                               \
  template bool attention_forward_cuda<T>(const ExecSpace&, const Tensor<T, 2>&, const Tensor<float, 1>&,     \
                                          const Tensor<T, 2>&, const AttentionShape&);                        \
  template bool attention_backward_cuda<T>(const ExecSpace&, const Tensor<T, 2>&, const Tensor<T, 2>&,        \
                                           const Tensor<T, 2>&, const Tensor<float, 1>&, const Tensor<T, 2>&, \
                                           const AttentionShape&);
ESPALIER_INSTANTIATE(bfloat16)
ESPALIER_INSTANTIATE(float16)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier::impl
