// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/fake_cuda/call.hpp"
#include "tests/support/fake_cuda/clocks.hpp"

/// Streams, events and captures. Work is done as late as CUDA allows: when somebody waits for it. So who does not wait
/// sees that it is not done.
namespace fake_cuda {

/// Does one piece of work; false: it cannot yet (a message has not come), ask again.
using Work = std::function<bool()>;

/// Host memory that queued work will read or write.
struct HostRange {
  const char* data = nullptr;
  std::size_t bytes = 0;
};

struct Stream;

struct Operation {
  Work work;
  Stream* after = nullptr;  ///< or: waits until `after` has done its first `after_count`
  std::uint64_t after_count = 0;
  HostRange host = {};
  std::shared_ptr<const Actor> actor = {};
};

/// What a graph is made of, in an order in which it can be done.
struct Node {
  std::string what;
  Work work;
  std::vector<const Node*> after;
  const Stream* stream;  ///< that was captured
};
using Nodes = std::vector<std::shared_ptr<Node>>;

struct Capture {
  unsigned long long id = 0;
  Stream* origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  Nodes nodes = {};
  bool invalidated = false;
  bool ended = false;
};

struct Stream {
  std::string name;
  bool blocking = true;  ///< ordered with the legacy stream
  std::deque<Operation> operations;
  std::uint64_t queued = 0;
  std::uint64_t done = 0;
  Line line;                  ///< what it has waited for
  bool has_messages = false;  ///< its work goes on without anybody waiting
  std::shared_ptr<Capture> capture;
  std::vector<const Node*> tail;  ///< in the capture: what its next node comes after
};

/// The stream behind a handle; the call `what` is refused where there is none or it was destroyed.
Stream& stream_of(cudaStream_t handle, const std::string& what);
bool is_legacy(cudaStream_t handle);

/// Enqueues work, or adds it to the capture that the stream is in.
void enqueue(Stream& stream, const std::string& what, Work work, HostRange host = {});

/// Refuses a call that a capture somewhere forbids, and breaks that off.
void refuse_if_captured(const std::string& call);
/// The same for this stream alone.
void refuse_if_captured(const Stream& stream, const std::string& call);
/// Breaks the capture off, and refuses what did that.
[[noreturn]] void break_off(Capture& capture, cudaError_t status, const std::string& text);
bool is_anything_captured();
void end_capture_of_streams(const Capture& capture);

/// Does what has been queued; lets go of the lock where it has to wait for other processes.
void finish(Lock& lock, Stream& stream, std::uint64_t count);
/// Also, the host knows what the stream knows now.
void synchronize(Lock& lock, Stream& stream);
void finish_everything(Lock& lock);

/// Does what can be done, up to `count`; false: not all of it.
bool advance(Stream& stream, std::uint64_t count);
void advance_messages();

/// Is work queued that reads or writes these bytes of the host?
bool is_pending(const char* data, std::size_t bytes);

}  // namespace fake_cuda
