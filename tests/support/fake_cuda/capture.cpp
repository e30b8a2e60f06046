// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Captures and graphs. See "Creating a Graph Using Stream Capture" in the CUDA programming guide for what is forbidden.
#include <algorithm>
#include <map>
#include <set>

#include "tests/support/fake_cuda/handles.hpp"
#include "tests/support/fake_cuda/races.hpp"
#include "tests/support/fake_cuda/streams.hpp"

namespace fake_cuda {
namespace {

// Not destroyed before the end of the process is told.
auto& active = *new std::vector<std::shared_ptr<Capture>>;
auto& graphs = *new Handles<cudaGraph_t, Nodes>("graph");
auto& execs = *new Handles<cudaGraphExec_t, Nodes>("executable graph");

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

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

std::string unjoined_node(const Nodes& nodes, const std::vector<const Node*>& tail) {
  const std::set<const Node*> joined = ancestors(tail);
  for (const auto& node : nodes)
    if (joined.count(node.get()) == 0)
      return node->what;
  return {};
}

using Actors = std::vector<std::shared_ptr<const Actor>>;

Work work_of(const Nodes& nodes, const std::shared_ptr<Actors>& actors) {
  return [nodes, actors, next = std::size_t{0}]() mutable {
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
Actors actors_of(const Nodes& nodes, Stream& stream) {
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

void break_off(Capture& capture, cudaError_t status, const std::string& text) {
  capture.invalidated = true;
  refuse(status, text);
}

void refuse_if_captured(const std::string& call) {
  if (thread_mode == cudaStreamCaptureModeRelaxed)
    return;
  for (const auto& capture : active) {
    const bool own = capture->thread == std::this_thread::get_id() && capture->mode != cudaStreamCaptureModeRelaxed;
    const bool others = capture->mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
    if (own || others)
      break_off(*capture, cudaErrorStreamCaptureUnsupported,
                call + " while " + capture->origin->name + " is captured" + (own ? "" : " by another thread"));
  }
}

void tell_leaked_graphs() {
  for (const auto& capture : active)
    misuse("the capture of " + capture->origin->name + " was never ended");
  graphs.tell_leaked();
  execs.tell_leaked();
}

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return call([&] {
    Stream& stream = stream_of(handle, "cudaStreamBeginCapture");
    if (is_legacy(handle))
      refuse(cudaErrorStreamCaptureUnsupported, "cudaStreamBeginCapture of the legacy stream");
    if (stream.capture)
      refuse(cudaErrorIllegalState, "cudaStreamBeginCapture of " + stream.name + ", which is captured");
    static unsigned long long id = 0;
    stream.capture = std::make_shared<Capture>(
        Capture{.id = ++id, .origin = &stream, .mode = mode, .thread = std::this_thread::get_id()});
    stream.tail.clear();
    active.push_back(stream.capture);
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return call([&] {
    *graph = nullptr;
    Stream& stream = stream_of(handle, "cudaStreamEndCapture");
    const std::string what = "cudaStreamEndCapture of " + stream.name;
    if (!stream.capture)
      refuse(cudaErrorIllegalState, what + ", which is not captured");
    const std::shared_ptr<Capture> capture = stream.capture;
    if (capture->origin != &stream)
      break_off(*capture, cudaErrorStreamCaptureUnmatched,
                what + " for a capture that " + capture->origin->name + " began");
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
      refuse(cudaErrorStreamCaptureWrongThread, what + " in another thread than the beginning");
    const std::string unjoined = unjoined_node(capture->nodes, stream.tail);
    capture->ended = true;
    end_capture_of_streams(*capture);
    std::erase(active, capture);
    if (capture->invalidated)
      throw Refusal{cudaErrorStreamCaptureInvalidated};
    if (!unjoined.empty())
      refuse(cudaErrorStreamCaptureUnjoined, what + ", which did not wait for another's " + unjoined);
    *graph = graphs.add(std::make_shared<Nodes>(capture->nodes),
                        "a graph of " + std::to_string(capture->nodes.size()) + " nodes");
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return call([&] {
    const Stream& stream = stream_of(handle, "cudaStreamIsCapturing");
    *status = !stream.capture               ? cudaStreamCaptureStatusNone
              : stream.capture->invalidated ? cudaStreamCaptureStatusInvalidated
                                            : cudaStreamCaptureStatusActive;
  });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     size_t* num_nodes) {
  const cudaError_t answered = cudaStreamIsCapturing(handle, status);
  return answered != cudaSuccess ? answered : call([&] {
    if (graph != nullptr || nodes != nullptr || edges != nullptr || num_nodes != nullptr)
      misuse("cudaStreamGetCaptureInfo: the mock tells no nodes");
    if (id != nullptr && *status != cudaStreamCaptureStatusNone)
      *id = stream_of(handle, "cudaStreamGetCaptureInfo").capture->id;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, size_t* number) {
  return call([&] {
    const Nodes& all = graphs.find(handle, "cudaGraphGetNodes");
    if (nodes != nullptr)
      for (std::size_t i = 0; i < std::min(*number, all.size()); ++i)
        nodes[i] = reinterpret_cast<cudaGraphNode_t>(all[i].get());
    *number = all.size();
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* handle, cudaGraph_t graph, unsigned long long) {
  return call([&] {
    const auto nodes = std::make_shared<Nodes>(graphs.find(graph, "cudaGraphInstantiate"));
    *handle = execs.add(nodes, "an executable graph of " + std::to_string(nodes->size()) + " nodes");
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle) {
  return call([&] {
    const Nodes& nodes = execs.find(handle, "cudaGraphLaunch");
    Stream& stream = stream_of(stream_handle, "cudaGraphLaunch");
    count("graph_launches");
    const auto actors = std::make_shared<Actors>(nodes.size());
    enqueue(stream, "cudaGraphLaunch", work_of(nodes, actors));
    if (!stream.capture)
      *actors = actors_of(nodes, stream);
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call([&] { graphs.destroy(graph, "cudaGraphDestroy"); });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return call([&] { execs.destroy(exec, "cudaGraphExecDestroy"); });
}

}  // extern "C"
