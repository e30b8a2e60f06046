// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/types.hpp"

// What warp_tiles.hpp asks of a warp, in the instructions of NVIDIA's GPUs from sm_80 on (PTX ISA: ldmatrix, mma,
// cp.async). A block is one row of threads.

namespace espalier {

class CudaWarp {
 public:
  using Word = std::uint32_t;
  struct Pair {
    float first, second;
  };

  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int index() const { return static_cast<int>(threadIdx.x / 32); }
  __device__ int lane() const { return static_cast<int>(threadIdx.x % 32); }
  __device__ void block_barrier() const { __syncthreads(); }

  /// Words and larger things where numbers of 16 bits lie.
  template <class Value, class T>
  __device__ Value load(const T* from) const {
    return *reinterpret_cast<const Value*>(from);
  }
  template <class Value, class T>
  __device__ void store(T* to, Value value) const {
    *reinterpret_cast<Value*>(to) = value;
  }

  /// 16 bytes from device to shared memory.
  template <class T>
  __device__ void copy_chunk(T* to, const T* from) const {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from));
  }
  /// The same, or 16 bytes of zeros.
  template <class T>
  __device__ void copy_chunk(T* to, const T* from, bool copies) const {
    const int bytes = copies ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes));
  }
  __device__ void end_copies() const { asm volatile("cp.async.commit_group;" ::); }
  /// For this thread's own copies; the block's are there after the next barrier.
  __device__ void wait_for_copies() const { asm volatile("cp.async.wait_all;" ::: "memory"); }

  /// Four 8x8 matrices; lanes 8i to 8i + 7 name the rows of matrix i. Lane l gets row l/4, columns 2(l%4) and +1 of
  /// each, or of its transpose.
  template <bool transposed, class T>
  __device__ void load_matrices(Word (&m)[4], const T* row) const {
    if constexpr (transposed)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                   : "r"(shared_address(row)));
    else
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                   : "r"(shared_address(row)));
  }

  /// c (16, 8) += a (16, 16) * b (16, 8)
  template <class T>
  __device__ void multiply_add(float (&c)[4], const Word (&a)[4], Word b0, Word b1) const {
    if constexpr (std::is_same_v<T, bfloat16>)
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }

  /// Two numbers as a word and back.
  template <class T>
  __device__ Word round(float first, float second) const {
    Word word;
    if constexpr (std::is_same_v<T, bfloat16>)
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    else
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
  }
  template <class T>
  __device__ Pair widen(Word word) const {
    T first, second;
    first.bits = static_cast<std::uint16_t>(word & 0xffffU);
    second.bits = static_cast<std::uint16_t>(word >> 16);
    return {static_cast<float>(first), static_cast<float>(second)};
  }

  __device__ float exp2(float x) const {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  __device__ float log(float x) const { return ::logf(x); }

  /// Over the four lanes that share the rows of a sum; NaN is passed over.
  __device__ float largest_of_row(float x) const {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 2));
  }
  __device__ float sum_of_row(float x) const {
    x += __shfl_xor_sync(0xffffffffU, x, 1);
    return x + __shfl_xor_sync(0xffffffffU, x, 2);
  }
  __device__ float sum_of_warp(float x) const {
    for (int distance = 16; distance > 0; distance /= 2)
      x += __shfl_xor_sync(0xffffffffU, x, distance);
    return x;
  }

 private:
  static __device__ unsigned shared_address(const void* address) {
    return static_cast<unsigned>(__cvta_generic_to_shared(address));
  }
};

}  // namespace espalier
