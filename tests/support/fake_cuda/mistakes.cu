// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Mistakes that the CUDA mock must find, one at a time: mistakes NAME. "none" makes none, in as many ways as there are
// to order two streams, and "list" names them all with a part of what is to be said.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t bytes = 1000;

// As Kokkos hands arrays to kernels.
struct Functor {
  int number;
  char* array;
};
__global__ void __launch_bounds__(256) kernel(const Functor functor) { functor.array[0] = 1; }

void check(bool right, const char* what) {
  if (!right) {
    std::printf("wrong: %s\n", what);
    std::fflush(stdout);
    std::_Exit(1);
  }
}

template <class Handle>
Handle take(Handle& handle) {
  return std::exchange(handle, nullptr);
}

cudaError_t allocate() {
  void* address = nullptr;
  return cudaMalloc(&address, bytes);
}

// Memory, and the legacy stream, two that nothing orders, and a blocking one, by number; an event of each. Calls can be
// written one behind another. What is taken out of it is not freed at its end.
struct Scene {
  cudaStream_t streams[4] = {};
  cudaEvent_t events[4] = {};
  char *device = nullptr, *other = nullptr, *pinned = nullptr;
  char host[bytes] = {};
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;

  Scene() {
    for (int i : {1, 2, 3})
      cudaStreamCreateWithFlags(&streams[i], i == 3 ? cudaStreamDefault : cudaStreamNonBlocking);
    for (cudaEvent_t& event : events)
      cudaEventCreate(&event);
    cudaMalloc(reinterpret_cast<void**>(&device), bytes);
    cudaMalloc(reinterpret_cast<void**>(&other), bytes);
    cudaMallocHost(reinterpret_cast<void**>(&pinned), bytes);
  }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;
  ~Scene() {
    cudaDeviceSynchronize();
    for (const cudaStream_t stream : streams)
      if (stream != nullptr)
        cudaStreamDestroy(stream);
    for (const cudaEvent_t event : events)
      if (event != nullptr)
        cudaEventDestroy(event);
    if (graph != nullptr)
      cudaGraphDestroy(graph);
    if (exec != nullptr)
      cudaGraphExecDestroy(exec);
    cudaFree(device);
    cudaFree(other);
    cudaFreeHost(pinned);
  }

  Scene& then(cudaError_t) { return *this; }
  Scene& write(int stream, std::size_t offset = 0, std::size_t count = bytes) {
    return then(cudaMemsetAsync(device + offset, 1, count, streams[stream]));
  }
  Scene& copy(void* to, const void* from, cudaMemcpyKind kind, int stream) {
    return then(cudaMemcpyAsync(to, from, bytes, kind, streams[stream]));
  }
  Scene& read(int stream) { return copy(other, device, cudaMemcpyDeviceToDevice, stream); }
  Scene& download(int stream) { return copy(pinned, device, cudaMemcpyDeviceToHost, stream); }
  Scene& upload(int stream) { return copy(other, pinned, cudaMemcpyHostToDevice, stream); }
  Scene& use(int stream, char* address, unsigned threads = 1, std::size_t shared = 0) {
    kernel<<<1, threads, shared, streams[stream]>>>(Functor{1, address});
    return *this;
  }
  Scene& use(int stream) { return use(stream, device); }
  char read_other() {
    cudaMemcpy(host, other, bytes, cudaMemcpyDeviceToHost);
    return host[5];
  }
  char* freed() {
    cudaFree(device);
    return take(device);
  }

  Scene& record(int stream) { return then(cudaEventRecord(events[stream], streams[stream])); }
  Scene& wait(int stream, int other_stream) {
    return then(cudaStreamWaitEvent(streams[stream], events[other_stream], 0));
  }
  // The second stream goes on when the first has done what it holds now.
  Scene& order(int first, int second) { return record(first).wait(second, first); }
  Scene& synchronize(int stream) { return then(cudaStreamSynchronize(streams[stream])); }
  cudaError_t query(int stream) const { return cudaEventQuery(events[stream]); }
  cudaError_t elapsed(float& ms) const { return cudaEventElapsedTime(&ms, events[1], events[2]); }

  Scene& capture(int stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    check(cudaStreamBeginCapture(streams[stream], mode) == cudaSuccess, "a capture begins");
    return *this;
  }
  cudaError_t end(int stream) { return cudaStreamEndCapture(streams[stream], &graph); }
  // A graph in which the second stream reads what the first writes, with or without an edge between the two.
  Scene& make_graph(bool is_ordered) {
    capture(1);
    if (is_ordered)
      write(1);
    order(1, 2);
    if (!is_ordered)
      write(1);
    check(read(2).order(2, 1).end(1) == cudaSuccess, "a capture ends");
    check(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess, "an executable graph");
    return *this;
  }
  Scene& launch() { return then(cudaGraphLaunch(exec, streams[1])); }
};

template <class Query>
cudaError_t poll(const Query& query) {
  while (query() != cudaSuccess) {
  }
  return cudaSuccess;
}

// What is allowed, and that it does what it should.
void check_results(Scene& s) {
  std::fill_n(s.host, bytes, 'x');
  s.copy(s.device, s.host, cudaMemcpyHostToDevice, 1)
      .read(1)
      .order(1, 2)
      .copy(s.pinned, s.other, cudaMemcpyDeviceToHost, 2)
      .record(2);
  check(s.pinned[5] != 'x', "what nobody waited for is not there");
  check(s.query(2) == cudaErrorNotReady && cudaGetLastError() == cudaSuccess, "an event is not ready");
  check(s.query(2) == cudaSuccess && s.pinned[5] == 'x', "and then it is");
  float ms = -1;
  check(s.elapsed(ms) == cudaSuccess && ms >= 0, "a time");
  void* large = nullptr;
  check(cudaMalloc(&large, std::size_t{1} << 42) == cudaErrorMemoryAllocation, "memory runs out");
  check(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess, "the last error");
}

void check_graph(Scene& s) {
  s.make_graph(true);
  std::size_t num_nodes = 0;
  check(cudaGraphGetNodes(s.graph, nullptr, &num_nodes) == cudaSuccess && num_nodes == 2, "two nodes");
  check(s.read_other() == 0, "a capture does nothing");
  for (int i = 0; i < 2; ++i) {
    cudaMemsetAsync(s.other, 0, bytes, s.streams[1]);
    check(cudaGraphLaunch(s.exec, s.streams[1]) == cudaSuccess, "a launch of a graph");
    check(s.synchronize(1).read_other() == 1, "a graph does what was captured");
  }
}

// In a capture, a question about an event outside of it.
void check_relaxed_thread(Scene& s) {
  s.record(3).synchronize(3).capture(1);
  std::thread([&] {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    check(s.query(3) == cudaSuccess, "a relaxed thread asks");
  }).join();
  check(s.end(1) == cudaSuccess, "a capture ends");
}

using Making = std::function<void(Scene&)>;

const std::vector<Making> no_mistakes = {
    check_results,
    check_graph,
    check_relaxed_thread,
    [](Scene& s) { s.write(1).order(1, 2).read(2).order(2, 1).write(1); },
    [](Scene& s) { s.write(1).order(1, 2).order(2, 3).read(3); },
    [](Scene& s) { s.write(1).synchronize(1).read(2); },
    [](Scene& s) { s.write(1).record(1).then(cudaEventSynchronize(s.events[1])).read(2); },
    [](Scene& s) { s.write(1).record(1).then(poll([&] { return s.query(1); })).read(2); },
    [](Scene& s) { s.write(1).then(poll([&] { return cudaStreamQuery(s.streams[1]); })).read(2); },
    [](Scene& s) { s.write(1).then(cudaDeviceSynchronize()).read(2); },
    [](Scene& s) { s.write(3).read(0).write(3); },                    // a blocking stream and the legacy one
    [](Scene& s) { s.write(1, 0, 502).write(2, 502, bytes - 502); },  // neighbours
    [](Scene& s) { s.write(1).use(1).order(1, 2).use(2).read(2); },   // a kernel
    [](Scene& s) { s.use(1).use(2); },                                // two that may both read
    [](Scene& s) { s.read(1).download(2); },                          // two readers
    [](Scene& s) { s.make_graph(true).launch().launch().read(1).order(1, 2).write(2); },
};

struct Mistake {
  const char* name;
  const char* says;
  Making make;
};

const std::vector<Mistake> mistakes = {
    // ---- Memory ----
    {"touch", "the host touched device memory", [](Scene& s) { *static_cast<volatile char*>(s.device) = 1; }},
    {"leak", "1000 bytes of device memory", [](Scene& s) { take(s.device); }},
    {"pinned_leak", "bytes of pinned host memory", [](Scene& s) { take(s.pinned); }},
    {"double_free", "for the second time", [](Scene& s) { cudaFree(s.freed()); }},
    {"use_after_free", "memory that was freed", [](Scene& s) { cudaMemset(s.freed(), 0, 1); }},
    {"freed_argument", "100 bytes into memory that was freed", [](Scene& s) { s.use(1, s.freed() + 100); }},
    {"overrun", "where 1000 are left", [](Scene& s) { s.write(1, 0, bytes + 1); }},
    {"direction", "in another direction", [](Scene& s) { s.copy(s.device, s.host, cudaMemcpyDeviceToHost, 1); }},
    {"changed_source", "the host changed the pinned memory", [](Scene& s) { s.upload(0).pinned[3] = 1; }},
    {"freed_source", "while a copy from or to it is queued", [](Scene& s) { cudaFreeHost(take(s.upload(0).pinned)); }},

    // ---- Streams, events, launches ----
    {"stream_leak", "was never destroyed", [](Scene& s) { take(s.streams[1]); }},
    {"destroyed_stream", "cudaStreamSynchronize with stream 1, which was destroyed",
     [](Scene& s) {
       const cudaStream_t stream = take(s.streams[1]);
       cudaStreamDestroy(stream);
       cudaStreamSynchronize(stream);
     }},
    {"destroyed_event", "cudaEventRecord with event 1, which was destroyed",
     [](Scene& s) {
       const cudaEvent_t event = take(s.events[0]);
       cudaEventDestroy(event);
       cudaEventRecord(event, nullptr);
     }},
    {"early_time", "which nobody has waited for",
     [](Scene& s) {
       float ms = 0;
       check(s.record(1).record(2).elapsed(ms) == cudaErrorNotReady, "no time yet");
     }},
    {"large_block", "compiled for 256 threads", [](Scene& s) { s.use(1, s.device, 257); }},
    {"shared_memory", "bytes of shared memory", [](Scene& s) { s.use(1, s.device, 1, 50000); }},

    // ---- Captures ----
    {"captured_synchronize", "cudaErrorStreamCaptureUnsupported",
     [](Scene& s) {
       check(s.capture(1).synchronize(1).end(1) == cudaErrorStreamCaptureInvalidated && s.graph == nullptr,
             "the capture is broken off");
     }},
    {"captured_malloc", "cudaMalloc while",
     [](Scene& s) {
       s.capture(1);
       check(allocate() == cudaErrorStreamCaptureUnsupported, "no memory in a capture");
     }},
    {"malloc_elsewhere", "is captured by another thread",
     [](Scene& s) {
       s.capture(1);
       std::thread(allocate).join();
     }},
    {"captured_legacy", "cudaErrorStreamCaptureImplicit",
     [](Scene& s) { s.capture(3, cudaStreamCaptureModeRelaxed).write(0); }},
    {"captured_query", "cudaErrorCapturedEvent",
     [](Scene& s) { s.capture(1, cudaStreamCaptureModeRelaxed).record(1).query(1); }},
    {"outside_wait", "cudaErrorStreamCaptureIsolation", [](Scene& s) { s.record(2).capture(1).wait(1, 2); }},
    {"unjoined", "cudaErrorStreamCaptureUnjoined", [](Scene& s) { s.capture(1).order(1, 2).write(2).end(1); }},
    {"captured_pageable", "of pageable memory in a capture",
     [](Scene& s) { s.capture(1).copy(s.device, s.host, cudaMemcpyHostToDevice, 1); }},
    {"never_ended", "was never ended", [](Scene& s) { s.capture(1); }},

    // ---- Races ----
    {"no_event", "cudaMemcpyAsync in stream 2 reads", [](Scene& s) { s.write(1).read(2); }},
    {"early_event", "which cudaMemsetAsync in stream 1 writes", [](Scene& s) { s.order(1, 2).write(1).read(2); }},
    {"late_wait", "cudaMemcpyAsync in stream 2", [](Scene& s) { s.write(1).read(2).order(1, 2); }},
    {"write_after_read", "a race", [](Scene& s) { s.write(1).order(1, 2).read(2).write(1); }},
    {"two_writers", "cudaMemsetAsync in stream 2 writes", [](Scene& s) { s.write(1).write(2); }},
    {"one_element", "a race", [](Scene& s) { s.write(1, 0, 504).write(2, 502, 10); }},
    // The wait is for what was recorded before.
    {"recorded_again", "a race", [](Scene& s) { s.order(1, 2).write(1).record(1).read(2); }},
    {"other_synchronize", "a race", [](Scene& s) { s.write(1).synchronize(2).read(2); }},
    // What the host learns later orders nothing that is queued.
    {"queued_before", "a race", [](Scene& s) { s.write(1).read(2).synchronize(1); }},
    {"legacy_and_nonblocking", "in the legacy stream", [](Scene& s) { s.write(0).read(2); }},
    // Returns when the host's memory was read.
    {"pageable", "cudaMemcpy in the legacy stream",
     [](Scene& s) { s.then(cudaMemcpy(s.device, s.host, bytes, cudaMemcpyHostToDevice)).read(2); }},
    // Does not wait at all.
    {"between_devices", "cudaMemcpy in the legacy stream",
     [](Scene& s) { s.then(cudaMemcpy(s.device, s.other, bytes, cudaMemcpyDeviceToDevice)).write(2); }},
    {"kernel_after_write", "which cudaMemsetAsync in stream 1 writes",
     [](Scene& s) { s.write(1).use(2, s.device + bytes / 2); }},
    {"read_after_kernel", "Functor) in stream 1 is handed", [](Scene& s) { s.use(1).read(2); }},
    // It may write.
    {"kernel_after_read", "which cudaMemcpyAsync in stream 1 reads", [](Scene& s) { s.read(1).use(2); }},
    {"pinned", "a race", [](Scene& s) { s.download(1).upload(2); }},
    {"in_a_graph", "of a graph in stream 1", [](Scene& s) { s.make_graph(false).launch(); }},
    {"beside_a_graph", "of a graph in stream 1", [](Scene& s) { s.make_graph(true).launch().write(2); }},
};

void make(const Making& making) {
  Scene scene;
  making(scene);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string wanted = argc == 2 ? argv[1] : "list";
  if (wanted == "none")
    std::for_each(no_mistakes.begin(), no_mistakes.end(), make);
  for (const Mistake& mistake : mistakes) {
    if (wanted == "list")
      std::printf("%s %s\n", mistake.name, mistake.says);
    if (wanted == mistake.name)
      make(mistake.make);
  }
  return 0;
}
