// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "core/cuda_check.hpp"
#include "parallel/device/stream_graph.hpp"

namespace espalier {
namespace {

using Graph =
    std::unique_ptr<CUgraph_st, decltype([](cudaGraph_t graph) { static_cast<void>(cudaGraphDestroy(graph)); })>;
// CUDA keeps it until it has run.
using ExecutableGraph =
    std::unique_ptr<CUgraphExec_st,
                    decltype([](cudaGraphExec_t graph) { static_cast<void>(cudaGraphExecDestroy(graph)); })>;

// Kernels that follow one another, and a call of the host behind them; either may be missing.
struct GraphSegment {
  ExecutableGraph kernels;
  std::function<void()> call;

  void run(cudaStream_t stream) const {
    if (kernels)
      ESPALIER_CUDA(cudaGraphLaunch(kernels.get(), stream));
    if (call)
      call();
  }
};

// @returns nullptr where nothing was recorded.
ExecutableGraph make_executable(const Graph& graph) {
  std::size_t nodes = 0;
  ESPALIER_CUDA(cudaGraphGetNodes(graph.get(), nullptr, &nodes));
  if (nodes == 0)
    return nullptr;
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaGraphInstantiate(&executable, graph.get(), 0),
             "cudaGraphInstantiate of a block (run.cuda_graphs=false does without)");
  return ExecutableGraph(executable);
}

// Records what this thread gives to a stream, segment by segment, each of which runs as soon as it is whole.
class Recorder {
 public:
  explicit Recorder(cudaStream_t stream) : stream_(stream) { begin(); }
  ~Recorder() {
    if (!captures_)
      return;
    cudaGraph_t graph = nullptr;  // given up half-way: the stream is to be used again, if only to end
    static_cast<void>(cudaStreamEndCapture(stream_, &graph));
    static_cast<void>(cudaGetLastError());
    const Graph broken(graph);
  }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  bool captures() const { return captures_; }  // not while a call is made

  void split_at(const std::function<void()>& call) {
    end_segment(call);
    begin();
  }
  std::vector<GraphSegment> finish() {
    end_segment({});
    return std::move(segments_);
  }

 private:
  // Relaxed: Kokkos asks for 0 bytes of scratch memory before each kernel of teams, and cudaMalloc is one of the calls
  // that the other modes forbid.
  void begin() {
    ESPALIER_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
    captures_ = true;
  }
  void end_segment(const std::function<void()>& call) {
    cudaGraph_t graph = nullptr;
    captures_ = false;
    check_cuda(cudaStreamEndCapture(stream_, &graph),
               "cudaStreamEndCapture of a block (run.cuda_graphs=false does without)");
    segments_.push_back({make_executable(Graph(graph)), call});
    segments_.back().run(stream_);
  }

  cudaStream_t stream_;
  bool captures_ = false;
  std::vector<GraphSegment> segments_;
};

thread_local Recorder* active_recorder = nullptr;

std::vector<GraphSegment> record(cudaStream_t stream, const std::function<void()>& work) {
  ESPALIER_ASSERT(active_recorder == nullptr, "StreamGraph::run: within the work of another graph");
  Recorder recorder(stream);
  struct Active {
    explicit Active(Recorder& recorder) { active_recorder = &recorder; }
    ~Active() { active_recorder = nullptr; }
  } const active(recorder);
  work();
  return recorder.finish();
}

// Kokkos waits for the device around each kernel that it reports to a tool, which no capture allows; and the tool would
// not see what a graph starts.
bool tool_sees_kernels() {
  const Kokkos::Tools::Experimental::EventSet tool = Kokkos::Tools::Experimental::get_callbacks();
  return tool.begin_parallel_for != nullptr || tool.begin_parallel_reduce != nullptr ||
         tool.begin_parallel_scan != nullptr;
}

// Kokkos before 5 may pass large functors through memory of the host that later kernels use again, which a recorded
// copy would read.
constexpr bool kokkos_can_be_recorded = KOKKOS_VERSION >= 50000;

}  // namespace

struct StreamGraph::Recording {
  std::vector<GraphSegment> segments;
};

StreamGraph::StreamGraph() = default;
StreamGraph::~StreamGraph() = default;
StreamGraph::StreamGraph(StreamGraph&&) noexcept = default;
StreamGraph& StreamGraph::operator=(StreamGraph&&) noexcept = default;

void StreamGraph::run(const ExecSpace& stream, const std::function<void()>& work) {
  if (!kokkos_can_be_recorded || !is_warm_ || tool_sees_kernels()) {
    work();
    is_warm_ = true;
    return;
  }
  if (!recording_) {
    recording_ = std::make_unique<Recording>(Recording{record(stream.cuda_stream(), work)});
    return;
  }
  for (const GraphSegment& segment : recording_->segments)
    segment.run(stream.cuda_stream());
}

void call_each_time(const std::function<void()>& call) {
  if (active_recorder == nullptr || !active_recorder->captures())
    call();
  else
    active_recorder->split_at(call);
}

}  // namespace espalier
