// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Races between streams and mistakes in launches that the CUDA mock must find, one at a time: race_mistakes NAME. "none"
// makes none, in as many ways as there are to order two streams, and "list" names them all with a part of the report.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace {

constexpr std::size_t bytes = 1000;

// As Kokkos hands arrays to kernels.
struct Functor {
  int number;
  char* array;
};
__global__ void __launch_bounds__(256) kernel(const Functor functor) { functor.array[0] = 1; }

// Two streams that nothing orders, two events, and memory.
struct Scene {
  cudaStream_t first = nullptr, second = nullptr;
  cudaEvent_t event = nullptr, later = nullptr;
  char *device = nullptr, *other = nullptr, *pinned = nullptr;
  Scene() {
    cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&later, cudaEventDisableTiming);
    cudaMalloc(reinterpret_cast<void**>(&device), bytes);
    cudaMalloc(reinterpret_cast<void**>(&other), bytes);
    cudaMallocHost(reinterpret_cast<void**>(&pinned), bytes);
  }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;
  ~Scene() {
    cudaDeviceSynchronize();
    cudaStreamDestroy(first);
    cudaStreamDestroy(second);
    cudaEventDestroy(event);
    cudaEventDestroy(later);
    cudaFree(device);
    cudaFree(other);
    cudaFreeHost(pinned);
  }

  void write(cudaStream_t stream) const { cudaMemsetAsync(device, 1, bytes, stream); }
  void use(cudaStream_t stream, std::size_t offset = 0, unsigned threads = 1, std::size_t shared = 0) const {
    kernel<<<1, threads, shared, stream>>>(Functor{1, device + offset});
  }
  void read(cudaStream_t stream) const { cudaMemcpyAsync(other, device, bytes, cudaMemcpyDeviceToDevice, stream); }
  /// The second stream goes on when the first has done what it holds now.
  void order() const {
    cudaEventRecord(event, first);
    cudaStreamWaitEvent(second, event, 0);
  }
};

// A graph in which the second stream reads what the first writes, with or without an edge between the two.
cudaGraphExec_t graph_of(const Scene& s, bool is_ordered) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaStreamBeginCapture(s.first, cudaStreamCaptureModeGlobal);
  if (is_ordered)
    s.write(s.first);
  s.order();
  if (!is_ordered)
    s.write(s.first);
  s.read(s.second);
  cudaEventRecord(s.later, s.second);
  cudaStreamWaitEvent(s.first, s.later, 0);
  cudaStreamEndCapture(s.first, &graph);
  cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphDestroy(graph);
  return exec;
}

struct Case {
  const char* name;
  const char* says;
  std::function<void(const Scene&)> make;
};

// What is ordered: says nothing.
const std::vector<Case>& ordered() {
  static const std::vector<Case> all = {
      {"event", "",
       [](const Scene& s) {
         s.write(s.first);
         s.order();
         s.read(s.second);
         cudaEventRecord(s.later, s.second);  // and back, before it is written again
         cudaStreamWaitEvent(s.first, s.later, 0);
         s.write(s.first);
       }},
      {"third_stream", "",
       [](const Scene& s) {
         cudaStream_t third = nullptr;
         cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking);
         s.write(s.first);
         s.order();
         cudaEventRecord(s.later, s.second);
         cudaStreamWaitEvent(third, s.later, 0);
         s.read(third);
         cudaStreamSynchronize(third);
         cudaStreamDestroy(third);
       }},
      {"stream_synchronize", "",
       [](const Scene& s) {
         s.write(s.first);
         cudaStreamSynchronize(s.first);
         s.read(s.second);
       }},
      {"event_synchronize", "",
       [](const Scene& s) {
         s.write(s.first);
         cudaEventRecord(s.event, s.first);
         cudaEventSynchronize(s.event);
         s.read(s.second);
       }},
      {"event_query", "",
       [](const Scene& s) {
         s.write(s.first);
         cudaEventRecord(s.event, s.first);
         while (cudaEventQuery(s.event) != cudaSuccess) {
         }
         s.read(s.second);
       }},
      {"stream_query", "",
       [](const Scene& s) {
         s.write(s.first);
         while (cudaStreamQuery(s.first) != cudaSuccess) {
         }
         s.read(s.second);
       }},
      {"device_synchronize", "",
       [](const Scene& s) {
         s.write(s.first);
         cudaDeviceSynchronize();
         s.read(s.second);
       }},
      {"legacy_stream", "",
       [](const Scene& s) {
         cudaStream_t blocking = nullptr;
         cudaStreamCreate(&blocking);
         s.write(blocking);
         s.read(nullptr);
         s.write(blocking);
         cudaStreamSynchronize(blocking);
         cudaStreamDestroy(blocking);
       }},
      {"neighbours", "",
       [](const Scene& s) {
         cudaMemsetAsync(s.device, 1, 502, s.first);
         cudaMemsetAsync(s.device + 502, 2, bytes - 502, s.second);
       }},
      {"kernel", "",
       [](const Scene& s) {
         s.write(s.first);
         s.use(s.first);
         s.order();
         s.use(s.second);
         s.read(s.second);
       }},
      {"two_kernels", "",  // both may read
       [](const Scene& s) {
         s.use(s.first);
         s.use(s.second);
       }},
      {"two_readers", "",
       [](const Scene& s) {
         cudaMemcpyAsync(s.other, s.device, bytes, cudaMemcpyDeviceToDevice, s.first);
         cudaMemcpyAsync(s.pinned, s.device, bytes, cudaMemcpyDeviceToHost, s.second);
       }},
      {"graph", "",
       [](const Scene& s) {
         const cudaGraphExec_t exec = graph_of(s, true);
         for (int i = 0; i < 2; ++i)
           cudaGraphLaunch(exec, s.first);
         s.read(s.first);
         s.order();
         s.write(s.second);
         cudaStreamSynchronize(s.second);
         cudaGraphExecDestroy(exec);
       }},
  };
  return all;
}

const std::vector<Case>& mistakes() {
  static const std::vector<Case> all = {
      {"no_event", "cudaMemcpyAsync in stream 2 reads",
       [](const Scene& s) {
         s.write(s.first);
         s.read(s.second);
       }},
      {"early_event", "which cudaMemsetAsync in stream 1 writes",
       [](const Scene& s) {
         s.order();
         s.write(s.first);
         s.read(s.second);
       }},
      {"late_wait", "cudaMemcpyAsync in stream 2",
       [](const Scene& s) {
         s.write(s.first);
         s.read(s.second);
         s.order();
       }},
      {"write_after_read", "a race",
       [](const Scene& s) {
         s.write(s.first);
         s.order();
         s.read(s.second);
         s.write(s.first);
       }},
      {"two_writers", "cudaMemsetAsync in stream 2 writes",
       [](const Scene& s) {
         s.write(s.first);
         s.write(s.second);
       }},
      {"one_element", "a race",
       [](const Scene& s) {
         cudaMemsetAsync(s.device, 1, 504, s.first);
         cudaMemsetAsync(s.device + 502, 2, 10, s.second);
       }},
      {"recorded_again", "a race",  // the wait is for what was recorded before
       [](const Scene& s) {
         s.order();
         s.write(s.first);
         cudaEventRecord(s.event, s.first);
         s.read(s.second);
       }},
      {"other_synchronize", "a race",
       [](const Scene& s) {
         s.write(s.first);
         cudaStreamSynchronize(s.second);
         s.read(s.second);
       }},
      {"queued_before", "a race",  // what the host learns later orders nothing that is queued
       [](const Scene& s) {
         s.write(s.first);
         s.read(s.second);
         cudaStreamSynchronize(s.first);
       }},
      {"legacy_and_nonblocking", "in the legacy stream",
       [](const Scene& s) {
         s.write(nullptr);
         s.read(s.second);
       }},
      {"pageable", "cudaMemcpy in the legacy stream",  // returns when the host's memory was read
       [](const Scene& s) {
         const std::vector<char> host(bytes);
         cudaMemcpy(s.device, host.data(), bytes, cudaMemcpyHostToDevice);
         s.read(s.second);
       }},
      {"between_devices", "cudaMemcpy in the legacy stream",  // does not wait at all
       [](const Scene& s) {
         cudaMemcpy(s.device, s.other, bytes, cudaMemcpyDeviceToDevice);
         s.write(s.second);
       }},
      {"kernel_after_write", "which cudaMemsetAsync in stream 1 writes",
       [](const Scene& s) {
         s.write(s.first);
         s.use(s.second, bytes / 2);
       }},
      {"read_after_kernel", "Functor) in stream 1 is handed",
       [](const Scene& s) {
         s.use(s.first);
         s.read(s.second);
       }},
      {"kernel_after_read", "which cudaMemcpyAsync in stream 1 reads",  // it may write
       [](const Scene& s) {
         s.read(s.first);
         s.use(s.second);
       }},
      {"freed_argument", "100 bytes into memory that was freed",
       [](const Scene& s) {
         Scene other;
         cudaFree(other.device);
         other.use(s.first, 100);
         other.device = nullptr;
       }},
      {"large_block", "compiled for 256 threads", [](const Scene& s) { s.use(s.first, 0, 257); }},
      {"shared_memory", "bytes of shared memory", [](const Scene& s) { s.use(s.first, 0, 1, 50000); }},
      {"pinned", "a race",
       [](const Scene& s) {
         cudaMemcpyAsync(s.pinned, s.device, bytes, cudaMemcpyDeviceToHost, s.first);
         cudaMemcpyAsync(s.other, s.pinned, bytes, cudaMemcpyHostToDevice, s.second);
       }},
      {"in_a_graph", "of a graph in stream 1",
       [](const Scene& s) {
         const cudaGraphExec_t exec = graph_of(s, false);
         cudaGraphLaunch(exec, s.first);
         cudaStreamSynchronize(s.first);
         cudaGraphExecDestroy(exec);
       }},
      {"beside_a_graph", "of a graph in stream 1",
       [](const Scene& s) {
         const cudaGraphExec_t exec = graph_of(s, true);
         cudaGraphLaunch(exec, s.first);
         s.write(s.second);
         cudaDeviceSynchronize();
         cudaGraphExecDestroy(exec);
       }},
  };
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string wanted = argc == 2 ? argv[1] : "list";
  for (const Case& right : ordered())
    if (wanted == "none")
      right.make(Scene());
  for (const Case& mistake : mistakes()) {
    if (wanted == "list")
      std::printf("%s %s\n", mistake.name, mistake.says);
    if (wanted == mistake.name)
      mistake.make(Scene());
  }
  return 0;
}
