// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Mistakes that the CUDA mock must find, one at a time: misuse NAME. "none" makes none, and "list" names them
// all with a part of what is to be said.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t bytes = 1000;

void* device_memory() {
  void* address = nullptr;
  cudaMalloc(&address, bytes);
  return address;
}
char* pinned_memory() {
  void* address = nullptr;
  cudaMallocHost(&address, bytes);
  return static_cast<char*>(address);
}
cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  return stream;
}
cudaEvent_t new_event() {
  cudaEvent_t event = nullptr;
  cudaEventCreate(&event);
  return event;
}

void check(bool right, const char* what) {
  if (!right) {
    std::printf("wrong: %s\n", what);
    std::fflush(stdout);
    std::_Exit(1);
  }
}

cudaStream_t captured_stream(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
  const cudaStream_t stream = new_stream();
  check(cudaStreamBeginCapture(stream, mode) == cudaSuccess, "a capture begins");
  return stream;
}

// What is allowed, and that it does what it should.
void no_mistake() {
  std::vector<char> sent(bytes, 'x'), got(bytes);
  void* const device = device_memory();
  void* const other = device_memory();
  char* const pinned = pinned_memory();
  const cudaStream_t stream = new_stream(), second = new_stream();
  const cudaEvent_t event = new_event(), later = new_event();
  cudaMemcpyAsync(device, sent.data(), bytes, cudaMemcpyHostToDevice, stream);
  cudaMemcpyAsync(other, device, bytes, cudaMemcpyDeviceToDevice, stream);
  cudaEventRecord(event, stream);
  cudaStreamWaitEvent(second, event, 0);
  cudaMemcpyAsync(pinned, other, bytes, cudaMemcpyDeviceToHost, second);
  cudaEventRecord(later, second);
  check(pinned[5] != 'x', "what nobody waited for is not there");
  check(cudaEventQuery(later) == cudaErrorNotReady && cudaGetLastError() == cudaSuccess, "an event is not ready");
  check(cudaEventQuery(later) == cudaSuccess && pinned[5] == 'x', "and then it is");
  float ms = -1;
  check(cudaEventElapsedTime(&ms, event, later) == cudaSuccess && ms >= 0, "a time");

  // A fork and a join in a capture, and a question about another event that another thread may ask.
  const cudaEvent_t fork = new_event(), join = new_event();
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess, "a capture begins");
  cudaMemsetAsync(device, 'y', bytes, stream);
  cudaEventRecord(fork, stream);
  cudaStreamWaitEvent(second, fork, 0);
  cudaMemcpyAsync(other, device, bytes, cudaMemcpyDeviceToDevice, second);
  cudaEventRecord(join, second);
  cudaStreamWaitEvent(stream, join, 0);
  std::thread([&] {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    check(cudaEventQuery(later) == cudaSuccess, "a relaxed thread asks");
  }).join();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  check(cudaStreamEndCapture(stream, &graph) == cudaSuccess, "a capture ends");
  std::size_t num_nodes = 0;
  check(cudaGraphGetNodes(graph, nullptr, &num_nodes) == cudaSuccess && num_nodes == 2, "two nodes");
  check(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess, "an executable graph");
  cudaMemcpy(got.data(), other, bytes, cudaMemcpyDeviceToHost);
  check(got[5] == 'x', "a capture does nothing");
  for (int i = 0; i < 2; ++i) {
    cudaMemsetAsync(other, 0, bytes, stream);
    check(cudaGraphLaunch(exec, stream) == cudaSuccess, "a launch of a graph");
    cudaStreamSynchronize(stream);
    cudaMemcpy(got.data(), other, bytes, cudaMemcpyDeviceToHost);
    check(got[5] == 'y', "a graph does what was captured");
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  for (const cudaEvent_t used : {event, later, fork, join})
    cudaEventDestroy(used);
  cudaStreamDestroy(stream);
  cudaStreamDestroy(second);
  cudaFree(device);
  cudaFree(other);
  cudaFreeHost(pinned);
  void* large = nullptr;
  check(cudaMalloc(&large, std::size_t{1} << 42) == cudaErrorMemoryAllocation, "memory runs out");
  check(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess, "the last error");
}

struct Mistake {
  const char* name;
  const char* says;
  std::function<void()> make;
};

const std::vector<Mistake>& mistakes() {
  static const std::vector<Mistake> all = {
      {"touch", "the host touched device memory", [] { *static_cast<volatile char*>(device_memory()) = 1; }},
      {"leak", "1000 bytes of device memory", [] { device_memory(); }},
      {"pinned_leak", "bytes of pinned host memory", [] { pinned_memory(); }},
      {"stream_leak", "was never destroyed", [] { new_stream(); }},
      {"double_free", "for the second time",
       [] {
         void* const address = device_memory();
         cudaFree(address);
         cudaFree(address);
       }},
      {"use_after_free", "memory that was freed",
       [] {
         void* const address = device_memory();
         cudaFree(address);
         cudaMemset(address, 0, 1);
       }},
      {"overrun", "where 1000 are left",
       [] {
         void* const address = device_memory();
         cudaMemset(address, 0, bytes + 1);
         cudaFree(address);
       }},
      {"direction", "in another direction",
       [] {
         char host[10];
         void* const address = device_memory();
         cudaMemcpy(address, host, sizeof host, cudaMemcpyDeviceToHost);
         cudaFree(address);
       }},
      {"changed_source", "the host changed the pinned memory",
       [] {
         char* const pinned = pinned_memory();
         void* const address = device_memory();
         cudaMemcpyAsync(address, pinned, bytes, cudaMemcpyHostToDevice, nullptr);
         pinned[3] = 1;
         cudaStreamSynchronize(nullptr);
         cudaFree(address);
         cudaFreeHost(pinned);
       }},
      {"freed_source", "while a copy from or to it is queued",
       [] {
         char* const pinned = pinned_memory();
         void* const address = device_memory();
         cudaMemcpyAsync(address, pinned, bytes, cudaMemcpyHostToDevice, nullptr);
         cudaFreeHost(pinned);
       }},
      {"destroyed_stream", "which was destroyed",
       [] {
         const cudaStream_t stream = new_stream();
         cudaStreamDestroy(stream);
         cudaStreamSynchronize(stream);
       }},
      {"destroyed_event", "which was destroyed",
       [] {
         const cudaEvent_t event = new_event();
         cudaEventDestroy(event);
         cudaEventRecord(event, nullptr);
       }},
      {"early_time", "which nobody has waited for",
       [] {
         const cudaEvent_t first = new_event(), last = new_event();
         cudaEventRecord(first, nullptr);
         cudaEventRecord(last, nullptr);
         float ms = 0;
         check(cudaEventElapsedTime(&ms, first, last) == cudaErrorNotReady, "no time yet");
       }},
      {"captured_synchronize", "cudaErrorStreamCaptureUnsupported",
       [] {
         const cudaStream_t stream = captured_stream();
         cudaStreamSynchronize(stream);
         cudaGraph_t graph = nullptr;
         check(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated && graph == nullptr,
               "the capture is broken off");
       }},
      {"captured_malloc", "cudaMalloc while",
       [] {
         captured_stream();
         check(device_memory() == nullptr, "no memory in a capture");
       }},
      {"malloc_elsewhere", "is captured by another thread",
       [] {
         captured_stream();
         std::thread(device_memory).join();
       }},
      {"captured_legacy", "cudaErrorStreamCaptureImplicit",
       [] {
         void* const address = device_memory();
         cudaStream_t stream = nullptr;
         cudaStreamCreate(&stream);
         cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
         cudaMemsetAsync(address, 0, bytes, nullptr);
       }},
      {"captured_query", "cudaErrorCapturedEvent",
       [] {
         const cudaStream_t stream = captured_stream(cudaStreamCaptureModeRelaxed);
         const cudaEvent_t event = new_event();
         cudaEventRecord(event, stream);
         cudaEventQuery(event);
       }},
      {"outside_wait", "cudaErrorStreamCaptureIsolation",
       [] {
         const cudaEvent_t event = new_event();
         cudaEventRecord(event, nullptr);
         cudaStreamWaitEvent(captured_stream(), event, 0);
       }},
      {"unjoined", "cudaErrorStreamCaptureUnjoined",
       [] {
         void* const address = device_memory();
         const cudaStream_t second = new_stream(), stream = captured_stream();
         const cudaEvent_t event = new_event();
         cudaEventRecord(event, stream);
         cudaStreamWaitEvent(second, event, 0);
         cudaMemsetAsync(address, 0, bytes, second);
         cudaGraph_t graph = nullptr;
         cudaStreamEndCapture(stream, &graph);
       }},
      {"captured_pageable", "of pageable memory in a capture",
       [] {
         void* const address = device_memory();
         char host[10];
         cudaMemcpyAsync(address, host, sizeof host, cudaMemcpyHostToDevice, captured_stream());
       }},
      {"never_ended", "was never ended", [] { captured_stream(); }},
  };
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string wanted = argc == 2 ? argv[1] : "list";
  if (wanted == "none") {
    no_mistake();
    return 0;
  }
  for (const Mistake& mistake : mistakes()) {
    if (wanted == "list")
      std::printf("%s %s\n", mistake.name, mistake.says);
    if (wanted == mistake.name)
      mistake.make();
  }
  return 0;
}
