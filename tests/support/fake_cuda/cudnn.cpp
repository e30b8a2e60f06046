// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// cuDNN that has no kernel for anything: what it would compute goes another way.
#include <cudnn.h>

#include <set>

#include "tests/support/fake_cuda/device.hpp"
#include "tests/support/fake_cuda/streams.hpp"

namespace fake_cuda {
namespace {

std::set<cudnnHandle_t>& handles() {
  static auto& all = *new std::set<cudnnHandle_t>;
  return all;
}

cudnnStatus_t require_handle(cudnnHandle_t handle, const char* what) {
  if (handles().count(handle) > 0)
    return CUDNN_STATUS_SUCCESS;
  misuse(std::string(what) + " with a handle of cuDNN that is none or was destroyed");
  return CUDNN_STATUS_BAD_PARAM;
}

}  // namespace

void tell_leaked_cudnn() {
  for (std::size_t i = 0; i < handles().size(); ++i)
    misuse("a handle of cuDNN was never destroyed");
}

}  // namespace fake_cuda

using namespace fake_cuda;

#define ESPALIER_REFUSES(name, ...) \
  cudnnStatus_t name(__VA_ARGS__) { return CUDNN_STATUS_NOT_SUPPORTED; }

extern "C" {

size_t cudnnGetVersion() { return CUDNN_VERSION; }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_NOT_SUPPORTED";
}
void cudnnGetLastErrorString(char* text, size_t bytes) {
  if (bytes > 0)
    text[0] = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  const Lock lock = lock_all();
  if (start_call() != cudaSuccess)
    return CUDNN_STATUS_NOT_INITIALIZED;
  if (unsafe_call("cudnnCreate") != cudaSuccess)
    return CUDNN_STATUS_EXECUTION_FAILED;
  *handle = reinterpret_cast<cudnnHandle_t>(new char);
  handles().insert(*handle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  const Lock lock = lock_all();
  const cudnnStatus_t status = require_handle(handle, "cudnnDestroy");
  handles().erase(handle);
  return status;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  const Lock lock = lock_all();
  return stream_of(stream, "cudnnSetStream") == nullptr ? CUDNN_STATUS_BAD_PARAM
                                                        : require_handle(handle, "cudnnSetStream");
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  const Lock lock = lock_all();
  *stream = nullptr;
  return require_handle(handle, "cudnnGetStream");
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t) {
  misuse("cudnnBackendExecute of a plan that was refused");
  return CUDNN_STATUS_NOT_SUPPORTED;
}
ESPALIER_REFUSES(cudnnBackendCreateDescriptor, cudnnBackendDescriptorType_t, cudnnBackendDescriptor_t*)
ESPALIER_REFUSES(cudnnBackendFinalize, cudnnBackendDescriptor_t)
ESPALIER_REFUSES(cudnnBackendSetAttribute, cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
                 cudnnBackendAttributeType_t, int64_t, const void*)
ESPALIER_REFUSES(cudnnBackendGetAttribute, cudnnBackendDescriptor_t const, cudnnBackendAttributeName_t,
                 cudnnBackendAttributeType_t, int64_t, int64_t*, void*)
ESPALIER_REFUSES(cudnnCreateFilterDescriptor, cudnnFilterDescriptor_t*)
ESPALIER_REFUSES(cudnnDestroyFilterDescriptor, cudnnFilterDescriptor_t)
ESPALIER_REFUSES(cudnnSetFilterNdDescriptor, cudnnFilterDescriptor_t, cudnnDataType_t, cudnnTensorFormat_t, int,
                 const int*)
ESPALIER_REFUSES(cudnnReorderFilterAndBias, cudnnHandle_t, const cudnnFilterDescriptor_t, cudnnReorderType_t,
                 const void*, void*, int, const void*, void*)

}  // extern "C"
