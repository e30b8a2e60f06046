// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/call.hpp"

#include <algorithm>

#include "tests/support/fake_cuda/device.hpp"
#include "tests/support/fake_cuda/report.hpp"

namespace fake_cuda {
namespace {

bool used = false;
thread_local cudaError_t last_error = cudaSuccess;

struct Named {
  cudaError_t error;
  const char* name;
};
#define ESPALIER_NAMED(error) \
  { cudaError##error, "cudaError" #error }
constexpr Named named_errors[] = {ESPALIER_NAMED(InvalidValue),
                                  ESPALIER_NAMED(MemoryAllocation),
                                  ESPALIER_NAMED(InvalidConfiguration),
                                  ESPALIER_NAMED(InvalidSymbol),
                                  ESPALIER_NAMED(InvalidMemcpyDirection),
                                  ESPALIER_NAMED(InsufficientDriver),
                                  ESPALIER_NAMED(InvalidDeviceFunction),
                                  ESPALIER_NAMED(NoDevice),
                                  ESPALIER_NAMED(InvalidDevice),
                                  ESPALIER_NAMED(NoKernelImageForDevice),
                                  ESPALIER_NAMED(InvalidResourceHandle),
                                  ESPALIER_NAMED(IllegalState),
                                  ESPALIER_NAMED(NotReady),
                                  ESPALIER_NAMED(NotSupported),
                                  ESPALIER_NAMED(CapturedEvent),
                                  ESPALIER_NAMED(StreamCaptureUnsupported),
                                  ESPALIER_NAMED(StreamCaptureInvalidated),
                                  ESPALIER_NAMED(StreamCaptureMerge),
                                  ESPALIER_NAMED(StreamCaptureUnmatched),
                                  ESPALIER_NAMED(StreamCaptureUnjoined),
                                  ESPALIER_NAMED(StreamCaptureIsolation),
                                  ESPALIER_NAMED(StreamCaptureImplicit),
                                  ESPALIER_NAMED(StreamCaptureWrongThread)};

}  // namespace

Lock lock_all() {
  static std::mutex& mutex = *new std::mutex;
  return Lock(mutex);
}

bool was_used() { return used; }

void start_call() {
  used = true;
  if (setting("DRIVER", CUDART_VERSION) / 1000 < CUDART_VERSION / 1000)
    throw Refusal{cudaErrorInsufficientDriver};
  if (visible_devices().empty())
    throw Refusal{cudaErrorNoDevice};
}

void refuse(cudaError_t status, const std::string& text) {
  misuse(text + " (" + cudaGetErrorName(status) + ")");
  throw Refusal{status};
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

const char* cudaGetErrorName(cudaError_t error) {
  const auto* const found = std::find_if(std::begin(named_errors), std::end(named_errors),
                                         [error](const Named& named) { return named.error == error; });
  return found == std::end(named_errors) ? "no error of the CUDA mock" : found->name;
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorNoDevice ? "no CUDA-capable device is detected" : cudaGetErrorName(error);
}

}  // extern "C"
