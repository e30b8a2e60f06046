// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Devices, versions, errors, and the three calls of the driver that Kokkos makes.
//   ESPALIER_FAKE_CUDA_DEVICES=1    how many
//   ESPALIER_FAKE_CUDA_ARCH=90      their compute capability
//   ESPALIER_FAKE_CUDA_DRIVER=13000 what the driver supports
#include "tests/support/fake_cuda/device.hpp"

#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <vector>

#include "tests/support/fake_cuda/report.hpp"

namespace fake_cuda {
namespace {

bool used = false;
thread_local int device = 0;
thread_local cudaError_t last_error = cudaSuccess;

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

cudaError_t require_driver() {
  used = true;
  return setting("DRIVER", CUDART_VERSION) / 1000 < CUDART_VERSION / 1000 ? cudaErrorInsufficientDriver : cudaSuccess;
}

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};
constexpr ErrorText error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidSymbol, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const ErrorText& text_of(cudaError_t error) {
  for (const ErrorText& candidate : error_texts)
    if (candidate.error == error)
      return candidate;
  return *std::rbegin(error_texts);
}

}  // namespace

bool was_used() { return used; }
int current_device() { return device; }
int compute_capability() { return static_cast<int>(setting("ARCH", 90)); }

cudaError_t start_call() {
  const cudaError_t driver = require_driver();
  if (driver != cudaSuccess)
    return answer(driver);
  return visible_devices().empty() ? answer(cudaErrorNoDevice) : cudaSuccess;
}

cudaError_t answer(cudaError_t status) {
  if (status != cudaSuccess && status != cudaErrorNotReady)
    last_error = status;
  return status;
}

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) { return text_of(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return text_of(error).text; }

cudaError_t cudaDriverGetVersion(int* version) {
  *version = static_cast<int>(setting("DRIVER", CUDART_VERSION));
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  const cudaError_t driver = require_driver();
  *count = driver == cudaSuccess ? static_cast<int>(visible_devices().size()) : 0;
  return answer(driver != cudaSuccess ? driver : *count == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaGetDevice(int* index) {
  *index = device;
  return start_call();
}

cudaError_t cudaSetDevice(int index) {
  if (const cudaError_t started = start_call(); started != cudaSuccess)
    return started;
  if (index < 0 || index >= static_cast<int>(visible_devices().size()))
    return refuse(cudaErrorInvalidDevice, "cudaSetDevice(" + std::to_string(index) + ")");
  device = index;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int index) {
  if (const cudaError_t started = start_call(); started != cudaSuccess)
    return started;
  const std::vector<int> devices = visible_devices();
  if (index < 0 || index >= static_cast<int>(devices.size()))
    return refuse(cudaErrorInvalidDevice, "cudaGetDeviceProperties of " + std::to_string(index));
  std::memset(p, 0, sizeof *p);
  std::strcpy(p->name, "NVIDIA H200 (fake)");
  p->uuid.bytes[0] = static_cast<char>(0xfa);
  p->uuid.bytes[15] = static_cast<char>(devices[static_cast<std::size_t>(index)]);
  p->totalGlobalMem = total_memory;
  p->sharedMemPerBlock = shared_without_asking;
  p->sharedMemPerBlockOptin = shared_at_most;
  p->reservedSharedMemPerBlock = 1024;
  p->sharedMemPerMultiprocessor = 228 * 1024;
  p->regsPerBlock = p->regsPerMultiprocessor = registers;
  p->warpSize = 32;
  p->memPitch = 2147483647;
  p->maxThreadsPerBlock = most_threads;
  p->maxThreadsPerMultiProcessor = 2048;
  p->maxBlocksPerMultiProcessor = 32;
  const int threads[] = {1024, 1024, 64};
  const int grid[] = {2147483647, 65535, 65535};
  std::copy_n(threads, 3, p->maxThreadsDim);
  std::copy_n(grid, 3, p->maxGridSize);
  p->totalConstMem = 65536;
  p->major = compute_capability() / 10;
  p->minor = compute_capability() % 10;
  p->textureAlignment = 512;
  p->multiProcessorCount = 132;
  p->canMapHostMemory = p->concurrentKernels = p->ECCEnabled = p->unifiedAddressing = 1;
  p->streamPrioritiesSupported = p->managedMemory = p->concurrentManagedAccess = p->cooperativeLaunch = 1;
  p->memoryPoolsSupported = p->hostRegisterSupported = p->canUseHostPointerForRegisteredMem = 1;
  p->asyncEngineCount = 3;
  p->memoryBusWidth = 6144;
  p->l2CacheSize = 60 * 1024 * 1024;
  p->pciBusID = devices[static_cast<std::size_t>(index)] + 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int index) {
  cudaDeviceProp properties;
  if (const cudaError_t got = cudaGetDeviceProperties(&properties, index); got != cudaSuccess)
    return got;
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = properties.major; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = properties.minor; return cudaSuccess;
    case cudaDevAttrMultiProcessorCount: *value = properties.multiProcessorCount; return cudaSuccess;
    case cudaDevAttrMaxThreadsPerBlock: *value = properties.maxThreadsPerBlock; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = shared_at_most; return cudaSuccess;
    default: return refuse(cudaErrorNotSupported, "the mock has no device attribute " + std::to_string(attribute));
  }
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return start_call();
}

// ---- The driver: a context stands for its device ----

CUresult cuStreamGetCtx(CUstream, CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(static_cast<std::intptr_t>(device) + 1);
  return start_call() == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
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
