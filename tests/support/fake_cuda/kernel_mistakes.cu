// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Kernels with mistakes that the stand-in for CUDA must find, one at a time: kernel_mistakes NAME. "none" runs one
// without, and "list" names them all with a part of what is to be said.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr int threads = 64;  // two warps

// Sums by lanes, warps and blocks, with all that the mistakes below lack.
__global__ void sum_all(float* sums /* (blocks) */, const float* values /* (blocks, threads) */) {
  __shared__ float partial[2];
  float sum = values[blockIdx.x * threads + threadIdx.x];
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xffffffffU, sum, distance);
  if (threadIdx.x % 32 == 0)
    partial[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0)
    sums[blockIdx.x] = partial[0] + partial[1];
}

__global__ void leave_allocation(float* values) { values[threadIdx.x + 2] = 1; }
__global__ void leave_in_a_pack(float4* values) { values[threadIdx.x] = {}; }
__global__ void read(float* result, const float* from) { result[threadIdx.x] = *from; }
__global__ void read_two(double* result, const float* from) { *result = *reinterpret_cast<const double*>(from + 1); }

__global__ void leave_shared(float* result, int beyond) {
  __shared__ float own[threads];
  own[threadIdx.x] = 0;
  result[threadIdx.x] = own[threadIdx.x + beyond];
}
__global__ void read_unwritten(float* result) {
  __shared__ float own[threads];
  if (threadIdx.x < 32)
    own[threadIdx.x] = 0;
  __syncthreads();
  result[threadIdx.x] = own[threadIdx.x];
}
__global__ void no_barrier(float* result) {
  __shared__ float own[threads];
  own[threadIdx.x] = 1;
  result[threadIdx.x] = own[threads - 1 - threadIdx.x];
}
__global__ void no_second_barrier(float* result) {
  __shared__ float own[threads];
  own[threadIdx.x] = 1;
  __syncthreads();
  result[threadIdx.x] = own[threads - 1 - threadIdx.x];
  own[threadIdx.x] = 2;
}
__global__ void no_warp_barrier(float* result) {
  __shared__ float own[threads];
  own[threadIdx.x] = 1;
  result[threadIdx.x] = own[threadIdx.x ^ 1];
}
__global__ void two_write(float* result) {
  __shared__ float own;
  own = static_cast<float>(threadIdx.x);
  __syncthreads();
  result[threadIdx.x] = own;
}
__global__ void half_at_barrier(float* result) {
  if (threadIdx.x % 2 == 0)
    __syncthreads();
  else
    __syncwarp(0xffffffffU);
  result[threadIdx.x] = 0;
}
__global__ void shuffle_with_absent(float* result) {
  float value = 1;
  if (threadIdx.x % 32 < 16)
    value = __shfl_xor_sync(0x0000ffffU, value, 16);
  result[threadIdx.x] = value;
}

__device__ unsigned shared_address(const void* address) {
  return static_cast<unsigned>(__cvta_generic_to_shared(address));
}
template <bool waits>
__global__ void copy(float* result, const float* from) {
  __shared__ float4 own[threads];
  own[threadIdx.x] = float4{};
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&own[threadIdx.x])), "l"(from));
  if (waits)
    asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  result[threadIdx.x] = own[threadIdx.x].x;
}

__global__ void fill(float* result) { result[threadIdx.x] = 1; }

// Every other number is written by the first stream, and the rest or all by the second.
__global__ void fill_every_other(float* result, int first) { result[2 * threadIdx.x + first] = 1; }
void fill_in_two_streams(float* result, bool is_all) {
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams)
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  fill_every_other<<<1, threads / 2, 0, streams[0]>>>(result, 0);
  if (is_all)
    fill<<<1, threads, 0, streams[1]>>>(result);
  else
    fill_every_other<<<1, threads / 2, 0, streams[1]>>>(result, 1);
  for (const cudaStream_t stream : streams) {
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
  }
}

struct Memory {
  float *values, *results;
};

struct Mistake {
  const char* name;
  const char* says;
  void (*make)(const Memory&);
};

float on_host = 1;

constexpr Mistake mistakes[] = {
    {"leave_allocation", "not of device memory", [](const Memory& m) { leave_allocation<<<1, threads>>>(m.results); }},
    {"leave_in_a_pack", "leaves its allocation",
     [](const Memory& m) { leave_in_a_pack<<<1, threads / 4 + 1>>>(reinterpret_cast<float4*>(m.results)); }},
    {"host_memory", "not of device memory", [](const Memory& m) { read<<<1, threads>>>(m.results, &on_host); }},
    {"null", "not of device memory", [](const Memory& m) { read<<<1, threads>>>(m.results, nullptr); }},
    {"misaligned", "is no multiple of its 8 bytes",
     [](const Memory& m) { read_two<<<1, 1>>>(reinterpret_cast<double*>(m.results), m.values); }},
    {"leave_shared", "leaves shared memory", [](const Memory& m) { leave_shared<<<1, threads>>>(m.results, threads); }},
    {"unwritten", "that nobody has written", [](const Memory& m) { read_unwritten<<<1, threads>>>(m.results); }},
    {"no_barrier", "before the next barrier", [](const Memory& m) { no_barrier<<<1, threads>>>(m.results); }},
    {"no_second_barrier", "before the next barrier",
     [](const Memory& m) { no_second_barrier<<<1, threads>>>(m.results); }},
    {"no_warp_barrier", "that another thread writes",
     [](const Memory& m) { no_warp_barrier<<<1, threads>>>(m.results); }},
    {"two_write", "that another thread writes", [](const Memory& m) { two_write<<<1, threads>>>(m.results); }},
    {"half_at_barrier", "waits for threads of its warp",
     [](const Memory& m) { half_at_barrier<<<1, threads>>>(m.results); }},
    {"absent", "which does not take part", [](const Memory& m) { shuffle_with_absent<<<1, threads>>>(m.results); }},
    {"race", "a race: the kernel", [](const Memory& m) { fill_in_two_streams(m.results, true); }},
    {"no_wait", "does not wait for it", [](const Memory& m) { copy<false><<<1, threads>>>(m.results, m.values); }},
};

// What is allowed, and that it computes what it should.
bool is_right(const Memory& m) {
  constexpr int blocks = 3;
  std::vector<float> values(blocks * threads), sums(blocks), copied(threads);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i);
  cudaMemcpy(m.values, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice);
  sum_all<<<blocks, threads>>>(m.results, m.values);
  cudaMemcpy(sums.data(), m.results, sums.size() * sizeof(float), cudaMemcpyDeviceToHost);
  fill_in_two_streams(m.results, false);
  copy<true><<<1, threads>>>(m.results, m.values + 4);
  cudaMemcpy(copied.data(), m.results, copied.size() * sizeof(float), cudaMemcpyDeviceToHost);
  return sums == std::vector<float>{2016, 6112, 10208} && copied == std::vector<float>(threads, 4);
}

}  // namespace

int main(int argc, char** argv) {
  const char* const wanted = argc == 2 ? argv[1] : "list";
  if (std::strcmp(wanted, "list") == 0) {
    for (const Mistake& mistake : mistakes)
      std::printf("%s %s\n", mistake.name, mistake.says);
    return 0;
  }
  Memory memory{};
  cudaMalloc(&memory.values, 3 * threads * sizeof(float));
  cudaMalloc(&memory.results, (threads + 1) * sizeof(float));  // the last alone in its pack
  const bool makes_none = std::strcmp(wanted, "none") == 0;
  const bool right = !makes_none || is_right(memory);
  bool is_known = makes_none;
  for (const Mistake& mistake : mistakes)
    if (std::strcmp(wanted, mistake.name) == 0) {
      is_known = true;
      mistake.make(memory);
    }
  cudaDeviceSynchronize();
  cudaFree(memory.values);
  cudaFree(memory.results);
  if (!right || !is_known)
    std::printf("wrong: %s\n", is_known ? "sums" : "no mistake has this name");
  return right && is_known ? 0 : 1;
}
