// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// What Kokkos and the headers of cudnn-frontend name for cases that Espalier does not meet: nobody should come here.
#include <cuda_runtime_api.h>

#include "tests/support/fake_cuda/call.hpp"

#define ESPALIER_NOBODY_CALLS(name, ...)                                                                     \
  cudaError_t name(__VA_ARGS__) {                                                                            \
    return fake_cuda::call([] { fake_cuda::refuse(cudaErrorNotSupported, "the CUDA mock has no " #name); }); \
  }

extern "C" {

ESPALIER_NOBODY_CALLS(cudaGetDriverEntryPointByVersion, const char*, void**, unsigned, unsigned long long,
                      cudaDriverEntryPointQueryResult*)
ESPALIER_NOBODY_CALLS(cudaGraphRetainUserObject, cudaGraph_t, cudaUserObject_t, unsigned, unsigned)
ESPALIER_NOBODY_CALLS(cudaUserObjectCreate, cudaUserObject_t*, void*, cudaHostFn_t, unsigned, unsigned)
ESPALIER_NOBODY_CALLS(cudaUserObjectRelease, cudaUserObject_t, unsigned)
ESPALIER_NOBODY_CALLS(cudaKernelSetAttributeForDevice, cudaKernel_t, cudaFuncAttribute, int, int)
ESPALIER_NOBODY_CALLS(cudaLibraryLoadData, cudaLibrary_t*, const void*, cudaJitOption*, void**, unsigned,
                      cudaLibraryOption*, void**, unsigned)
ESPALIER_NOBODY_CALLS(cudaLibraryGetKernel, cudaKernel_t*, cudaLibrary_t, const char*)
ESPALIER_NOBODY_CALLS(cudaLibraryUnload, cudaLibrary_t)
ESPALIER_NOBODY_CALLS(cudaMallocManaged, void**, size_t, unsigned)
ESPALIER_NOBODY_CALLS(cudaMemPrefetchAsync, const void*, size_t, cudaMemLocation, unsigned, cudaStream_t)

}  // extern "C"
