// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// cuDNN that has no kernel for anything: what it would compute goes another way.
#include <cudnn.h>

#include "tests/support/fake_cuda/handles.hpp"
#include "tests/support/fake_cuda/streams.hpp"

namespace fake_cuda {
namespace {

// Not destroyed before the end of the process is told.
auto& handles = *new Handles<cudnnHandle_t, char>("handle of cuDNN");

template <class F>
cudnnStatus_t cudnn_call(const F& f) {
  return library_call(CUDNN_STATUS_SUCCESS, CUDNN_STATUS_BAD_PARAM, f);
}

}  // namespace

void tell_leaked_cudnn() { handles.tell_leaked(); }

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
  return cudnn_call([&] {
    refuse_if_captured("cudnnCreate");
    *handle = handles.add(std::make_shared<char>(), "a handle of cuDNN");
  });
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  return cudnn_call([&] { handles.destroy(handle, "cudnnDestroy"); });
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return cudnn_call([&] {
    stream_of(stream, "cudnnSetStream");
    handles.find(handle, "cudnnSetStream");
  });
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  *stream = nullptr;
  return cudnn_call([&] { handles.find(handle, "cudnnGetStream"); });
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
