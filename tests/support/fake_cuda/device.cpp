// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Devices, versions, and the three calls of the driver that Kokkos makes.
#include "tests/support/fake_cuda/device.hpp"

#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <vector>

#include "tests/support/fake_cuda/call.hpp"
#include "tests/support/fake_cuda/report.hpp"

namespace fake_cuda {
namespace {

constexpr int num_processors = 132;
thread_local int device = 0;

int visible_device(int index, const std::string& what) {
  const std::vector<int> devices = visible_devices();
  if (index < 0 || index >= static_cast<int>(devices.size()))
    refuse(cudaErrorInvalidDevice, what + " of device " + std::to_string(index));
  return devices[static_cast<std::size_t>(index)];
}

}  // namespace

// CUDA_VISIBLE_DEVICES: what is listed before the first that does not exist.
std::vector<int> visible_devices() {
  const int number = static_cast<int>(setting("DEVICES", 1));
  std::vector<int> devices;
  const char* const text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) {
    for (int i = 0; i < number; ++i)
      devices.push_back(i);
    return devices;
  }
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    const int index = part.empty() ? -1 : std::atoi(part.c_str());
    if (index < 0 || index >= number)
      break;
    devices.push_back(index);
  }
  return devices;
}

int current_device() { return device; }
int compute_capability() { return static_cast<int>(setting("ARCH", 90)); }

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) {
  *version = static_cast<int>(setting("DRIVER", CUDART_VERSION));
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* number) {
  *number = 0;
  return call([&] { *number = static_cast<int>(visible_devices().size()); });
}
cudaError_t cudaGetDevice(int* index) {
  return call([&] { *index = device; });
}
cudaError_t cudaSetDevice(int index) {
  return call([&] {
    visible_device(index, "cudaSetDevice");
    device = index;
  });
}

// What Kokkos and Espalier read.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int index) {
  return call([&] {
    std::memset(p, 0, sizeof *p);
    std::strcpy(p->name, "NVIDIA H200 (fake)");
    p->uuid.bytes[15] = static_cast<char>(visible_device(index, "cudaGetDeviceProperties"));
    p->major = compute_capability() / 10;
    p->minor = compute_capability() % 10;
    p->multiProcessorCount = num_processors;
    p->warpSize = 32;
    p->totalGlobalMem = total_memory;
    p->sharedMemPerBlock = shared_without_asking;
    p->sharedMemPerMultiprocessor = 228 * 1024;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->maxThreadsPerBlock = max_threads;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxBlocksPerMultiProcessor = 32;
    std::copy_n(std::begin({1024, 1024, 64}), 3, p->maxThreadsDim);
    std::copy_n(std::begin({2147483647, 65535, 65535}), 3, p->maxGridSize);
    p->concurrentManagedAccess = 1;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  return call([&] {
    switch (attribute) {
      case cudaDevAttrMultiProcessorCount: *value = num_processors; return;
      case cudaDevAttrComputeCapabilityMajor: *value = compute_capability() / 10; return;
      case cudaDevAttrComputeCapabilityMinor: *value = compute_capability() % 10; return;
      default: refuse(cudaErrorNotSupported, "the mock has no device attribute " + std::to_string(attribute));
    }
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  return call([&] {
    *lowest = 0;
    *highest = -5;
  });
}

// ---- The driver: a context stands for its device ----

CUresult cuStreamGetCtx(CUstream, CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(static_cast<std::intptr_t>(device) + 1);
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
  const auto index = static_cast<int>(reinterpret_cast<std::intptr_t>(context)) - 1;
  return cudaSetDevice(index) == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuCtxGetDevice(CUdevice* index) {
  *index = device;
  return CUDA_SUCCESS;
}

}  // extern "C"
