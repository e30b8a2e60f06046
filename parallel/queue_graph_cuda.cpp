// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/cuda_check.hpp"
#include "parallel/queue_graph.hpp"

namespace espalier {
namespace {

using Graph =
    std::unique_ptr<CUgraph_st, decltype([](cudaGraph_t graph) { static_cast<void>(cudaGraphDestroy(graph)); })>;

// What `work` gives to the stream, which does none of it. Relaxed: Kokkos asks for 0 bytes of scratch memory before
// each kernel of teams, and cudaMalloc is one of the calls that the other modes forbid.
Graph capture(cudaStream_t stream, const std::function<void()>& work) {
  ESPALIER_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  cudaGraph_t graph = nullptr;
  try {
    work();
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(stream, &graph));  // the queue is to be used again, if only to end
    static_cast<void>(cudaGetLastError());
    const Graph broken(graph);
    throw;
  }
  check_cuda(cudaStreamEndCapture(stream, &graph),
             "cudaStreamEndCapture of a block (run.cuda_graphs=false does without)");
  return Graph(graph);
}

// Kokkos waits for the device around each kernel that a tool is told of, which no capture allows; and the tool would
// not hear of what a graph starts.
bool tool_sees_kernels() {
  const Kokkos::Tools::Experimental::EventSet tool = Kokkos::Tools::Experimental::get_callbacks();
  return tool.begin_parallel_for != nullptr || tool.begin_parallel_reduce != nullptr ||
         tool.begin_parallel_scan != nullptr;
}

// Kokkos before 5 may pass large functors through memory of the host that later kernels use again, which a recorded
// copy would read.
constexpr bool kokkos_can_be_recorded = KOKKOS_VERSION >= 50000;

}  // namespace

struct QueueGraph::Recording {
  cudaGraphExec_t handle = nullptr;

  explicit Recording(const Graph& graph) {
    check_cuda(cudaGraphInstantiate(&handle, graph.get(), 0),
               "cudaGraphInstantiate of a block (run.cuda_graphs=false does without)");
  }
  ~Recording() { static_cast<void>(cudaGraphExecDestroy(handle)); }  // CUDA keeps it until it has run
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
};

QueueGraph::QueueGraph() = default;
QueueGraph::~QueueGraph() = default;
QueueGraph::QueueGraph(QueueGraph&&) noexcept = default;
QueueGraph& QueueGraph::operator=(QueueGraph&&) noexcept = default;

void QueueGraph::run(const ExecSpace& queue, const std::function<void()>& work) {
  if (!kokkos_can_be_recorded || !is_warm_ || tool_sees_kernels()) {
    work();
    is_warm_ = true;
    return;
  }
  if (!recording_)
    recording_ = std::make_unique<Recording>(capture(queue.cuda_stream(), work));
  ESPALIER_CUDA(cudaGraphLaunch(recording_->handle, queue.cuda_stream()));
}

}  // namespace espalier
