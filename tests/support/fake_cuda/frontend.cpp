// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// What the headers of cudnn-frontend name, for engines that Espalier does not ask for: nobody should come here.
#include <cuda_runtime_api.h>

#include "tests/support/fake_cuda/report.hpp"

using namespace fake_cuda;

namespace {

cudaError_t nobody_expects(const char* name) {
  const Lock lock = lock_all();
  return refuse(cudaErrorNotSupported, std::string("the mock has no ") + name);
}

}  // namespace

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void**, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult*) {
  return nobody_expects(symbol);
}
cudaError_t cudaGraphRetainUserObject(cudaGraph_t, cudaUserObject_t, unsigned, unsigned) {
  return nobody_expects("cudaGraphRetainUserObject");
}
cudaError_t cudaUserObjectCreate(cudaUserObject_t*, void*, cudaHostFn_t, unsigned, unsigned) {
  return nobody_expects("cudaUserObjectCreate");
}
cudaError_t cudaUserObjectRelease(cudaUserObject_t, unsigned) { return nobody_expects("cudaUserObjectRelease"); }
cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t, cudaFuncAttribute, int, int) {
  return nobody_expects("cudaKernelSetAttributeForDevice");
}
cudaError_t cudaLibraryLoadData(cudaLibrary_t*, const void*, cudaJitOption*, void**, unsigned, cudaLibraryOption*,
                                void**, unsigned) {
  return nobody_expects("cudaLibraryLoadData");
}
cudaError_t cudaLibraryGetKernel(cudaKernel_t*, cudaLibrary_t, const char*) {
  return nobody_expects("cudaLibraryGetKernel");
}
cudaError_t cudaLibraryUnload(cudaLibrary_t) { return nobody_expects("cudaLibraryUnload"); }

}  // extern "C"
