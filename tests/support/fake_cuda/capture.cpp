// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Captures and graphs. See "Creating a Graph Using Stream Capture" in the CUDA programming guide for what is forbidden.
#include <algorithm>
#include <map>
#include <set>

#include "tests/support/fake_cuda/device.hpp"
#include "tests/support/fake_cuda/races.hpp"
#include "tests/support/fake_cuda/streams.hpp"

namespace fake_cuda {
namespace {

struct GraphExec {
  std::vector<std::shared_ptr<Node>> nodes;
  bool destroyed = false;
};

struct Captures {
  std::vector<std::shared_ptr<Capture>> active;
  std::map<cudaGraph_t, std::shared_ptr<Graph>> graphs;
  std::map<cudaGraphExec_t, std::shared_ptr<GraphExec>> execs;
};

Captures& captures() {
  static Captures& state = *new Captures;
  return state;
}

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

template <class Objects, class Handle>
auto object_of(Objects& objects, Handle handle, const char* what) {
  const auto found = objects.find(handle);
  if (found == objects.end() || found->second->destroyed) {
    misuse(std::string(what) + (found == objects.end() ? " with a handle that is none" : " of one that was destroyed"));
    return decltype(found->second)();
  }
  return found->second;
}

// All that must be done before what ends in `tail`.
std::set<const Node*> ancestors(const std::vector<const Node*>& tail) {
  std::set<const Node*> all;
  std::vector<const Node*> open = tail;
  while (!open.empty()) {
    const Node* const node = open.back();
    open.pop_back();
    if (all.insert(node).second)
      open.insert(open.end(), node->after.begin(), node->after.end());
  }
  return all;
}

std::string unjoined_node(const Capture& capture, const std::vector<const Node*>& tail) {
  const std::set<const Node*> joined = ancestors(tail);
  for (const auto& node : capture.graph->nodes)
    if (joined.count(node.get()) == 0)
      return node->what;
  return {};
}

using Actors = std::vector<std::shared_ptr<const Actor>>;

Work work_of(const std::shared_ptr<GraphExec>& exec, const std::shared_ptr<Actors>& actors) {
  return [exec, actors, next = std::size_t{0}, nodes = exec->nodes]() mutable {
    for (; next < nodes.size(); ++next) {
      if (!nodes[next]->work)
        continue;
      const Acting acting((*actors)[next]);
      if (!nodes[next]->work())
        return false;
    }
    return true;
  };
}

// Each node of a launch comes after those that the graph says, and after what the stream has waited for. What one
// stream captured is of one line; what the first did is of that of the launching stream.
Actors actors_of(const std::vector<std::shared_ptr<Node>>& nodes, Stream& stream) {
  Actors actors;
  std::map<const Stream*, std::size_t> branches;
  std::map<const Node*, const Actor*> known;
  const Clock start = stream.line.clock();
  const std::uint64_t before = stream.line.add(nodes.size());
  for (const auto& node : nodes) {
    const std::size_t line = stream.line.branch(branches.emplace(node->stream, branches.size()).first->second);
    auto actor = std::make_shared<Actor>(Actor{line, before + actors.size() + 1, start, node->what,
                                               node->stream->name + " of a graph in " + stream.name});
    for (const Node* const earlier : node->after) {
      const Actor& other = *known[earlier];
      if (ignores_waits() && other.line != line)
        continue;
      actor->before.join(other.before);
      actor->before.join(other.line, other.number);
    }
    known[node.get()] = actor.get();
    actors.push_back(std::move(actor));
  }
  stream.line.wait_for(stream.line.clock());  // what comes then comes after all branches
  return actors;
}

}  // namespace

void invalidate(Capture& capture) { capture.invalidated = true; }

cudaError_t unsafe_call(const std::string& call) {
  if (thread_mode == cudaStreamCaptureModeRelaxed)
    return cudaSuccess;
  for (const auto& capture : captures().active) {
    const bool own = capture->thread == std::this_thread::get_id() && capture->mode != cudaStreamCaptureModeRelaxed;
    const bool others = capture->mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
    if (!own && !others)
      continue;
    invalidate(*capture);
    return refuse(cudaErrorStreamCaptureUnsupported,
                  call + " while " + capture->origin->name + " is captured" + (own ? "" : " by another thread"));
  }
  return cudaSuccess;
}

void tell_leaked_graphs() {
  for (const auto& capture : captures().active)
    misuse("the capture of " + capture->origin->name + " was never ended");
  for (const auto& [handle, graph] : captures().graphs)
    if (!graph->destroyed)
      misuse("a graph of " + std::to_string(graph->nodes.size()) + " nodes was never destroyed");
  for (const auto& [handle, exec] : captures().execs)
    if (!exec->destroyed)
      misuse("an executable graph of " + std::to_string(exec->nodes.size()) + " nodes was never destroyed");
}

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const Lock lock = lock_all();
  Stream* const stream = stream_of(handle, "cudaStreamBeginCapture");
  if (stream == nullptr)
    return answer(cudaErrorInvalidResourceHandle);
  if (handle == nullptr || handle == cudaStreamLegacy)
    return refuse(cudaErrorStreamCaptureUnsupported, "cudaStreamBeginCapture of the legacy stream");
  if (stream->capture)
    return refuse(cudaErrorIllegalState, "cudaStreamBeginCapture of " + stream->name + ", which is captured");
  auto capture = std::make_shared<Capture>();
  capture->id = ++counts().captures;
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->graph = std::make_shared<Graph>();
  stream->capture = capture;
  stream->tail.clear();
  captures().active.push_back(capture);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  const Lock lock = lock_all();
  *graph = nullptr;
  Stream* const stream = stream_of(handle, "cudaStreamEndCapture");
  if (stream == nullptr)
    return answer(cudaErrorInvalidResourceHandle);
  if (!stream->capture)
    return refuse(cudaErrorIllegalState, "cudaStreamEndCapture of " + stream->name + ", which is not captured");
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->origin != stream) {
    invalidate(*capture);
    return refuse(cudaErrorStreamCaptureUnmatched, "cudaStreamEndCapture of " + stream->name + " for a capture that " +
                                                       capture->origin->name + " began");
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
    return refuse(cudaErrorStreamCaptureWrongThread, "cudaStreamEndCapture in another thread than the beginning");
  const std::string unjoined = unjoined_node(*capture, stream->tail);
  capture->ended = true;
  end_capture_of_streams(*capture);
  std::erase(captures().active, capture);
  if (capture->invalidated)
    return answer(cudaErrorStreamCaptureInvalidated);
  if (!unjoined.empty())
    return refuse(cudaErrorStreamCaptureUnjoined,
                  "cudaStreamEndCapture of " + stream->name + ", which did not wait for another's " + unjoined);
  *graph = reinterpret_cast<cudaGraph_t>(capture->graph.get());
  captures().graphs[*graph] = capture->graph;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  const Lock lock = lock_all();
  const Stream* const stream = stream_of(handle, "cudaStreamIsCapturing");
  if (stream == nullptr)
    return answer(cudaErrorInvalidResourceHandle);
  *status = !stream->capture               ? cudaStreamCaptureStatusNone
            : stream->capture->invalidated ? cudaStreamCaptureStatusInvalidated
                                           : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     size_t* num_nodes) {
  if (graph != nullptr || nodes != nullptr || edges != nullptr || num_nodes != nullptr)
    misuse("cudaStreamGetCaptureInfo: the mock tells no nodes");
  const cudaError_t answered = cudaStreamIsCapturing(handle, status);
  const Lock lock = lock_all();
  if (answered == cudaSuccess && id != nullptr && *status != cudaStreamCaptureStatusNone)
    *id = stream_of(handle, "cudaStreamGetCaptureInfo")->capture->id;
  return answered;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, size_t* number) {
  const Lock lock = lock_all();
  const auto graph = object_of(captures().graphs, handle, "cudaGraphGetNodes");
  if (!graph)
    return answer(cudaErrorInvalidValue);
  if (nodes != nullptr)
    for (std::size_t i = 0; i < std::min(*number, graph->nodes.size()); ++i)
      nodes[i] = reinterpret_cast<cudaGraphNode_t>(graph->nodes[i].get());
  *number = graph->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* handle, cudaGraph_t graph_handle, unsigned long long) {
  const Lock lock = lock_all();
  const auto graph = object_of(captures().graphs, graph_handle, "cudaGraphInstantiate");
  if (!graph)
    return answer(cudaErrorInvalidValue);
  const auto exec = std::make_shared<GraphExec>();
  exec->nodes = graph->nodes;
  *handle = reinterpret_cast<cudaGraphExec_t>(exec.get());
  captures().execs[*handle] = exec;
  ++counts().graph_instantiations;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle) {
  const Lock lock = lock_all();
  const auto exec = object_of(captures().execs, handle, "cudaGraphLaunch");
  if (!exec)
    return answer(cudaErrorInvalidValue);
  ++counts().graph_launches;
  const auto actors = std::make_shared<Actors>(exec->nodes.size());
  const cudaError_t queued = enqueue(stream_handle, "cudaGraphLaunch", work_of(exec, actors));
  Stream* const stream = queued == cudaSuccess ? stream_of(stream_handle, "cudaGraphLaunch") : nullptr;
  if (stream != nullptr && !is_captured(*stream))
    *actors = actors_of(exec->nodes, *stream);
  return queued;
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
  const Lock lock = lock_all();
  const auto graph = object_of(captures().graphs, handle, "cudaGraphDestroy");
  if (!graph)
    return answer(cudaErrorInvalidValue);
  graph->destroyed = true;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
  const Lock lock = lock_all();
  const auto exec = object_of(captures().execs, handle, "cudaGraphExecDestroy");
  if (!exec)
    return answer(cudaErrorInvalidValue);
  exec->destroyed = true;
  return cudaSuccess;
}

}  // extern "C"
