// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Streams, and the work that is queued in them.
#include "tests/support/fake_cuda/streams.hpp"

#include <algorithm>
#include <chrono>

#include "tests/support/fake_cuda/handles.hpp"
#include "tests/support/fake_cuda/races.hpp"

namespace fake_cuda {
namespace {

constexpr std::chrono::microseconds pause{50};

// Not destroyed before the end of the process is told.
auto& handles = *new Handles<cudaStream_t, Stream>("stream");
auto& streams = *new std::vector<std::shared_ptr<Stream>>;

std::shared_ptr<Stream> new_stream(const std::string& name) {
  streams.push_back(std::make_shared<Stream>());
  streams.back()->name = name;
  return streams.back();
}

Stream& legacy_stream() {
  static Stream& stream = *new_stream("the legacy stream");
  return stream;
}

bool is_idle(const Stream& stream) { return stream.done == stream.queued; }

void push_wait(Stream& stream, Stream& after) {
  stream.line.wait_for(after.line.clock());
  if (is_idle(after))
    return;
  stream.operations.push_back({.work = {}, .after = &after, .after_count = after.queued});
  ++stream.queued;
  stream.has_messages |= after.has_messages;
}

// Work in the legacy stream is ordered with that in all blocking ones.
void order_with_legacy(Stream& stream, const std::string& what) {
  Stream& legacy = legacy_stream();
  if (&stream != &legacy) {
    if (stream.blocking)
      push_wait(stream, legacy);
    return;
  }
  for (const auto& other : streams) {
    if (other.get() == &legacy || !other->blocking)
      continue;
    if (other->capture)
      break_off(*other->capture, cudaErrorStreamCaptureImplicit,
                what + " in the legacy stream while " + other->name + ", which it would wait for, is captured");
    push_wait(legacy, *other);
  }
}

void create(cudaStream_t* handle, unsigned flags) {
  const auto stream = new_stream("stream " + std::to_string(count("streams")));
  stream->blocking = (flags & cudaStreamNonBlocking) == 0;
  *handle = handles.add(stream, stream->name);
}

}  // namespace

bool is_legacy(cudaStream_t handle) { return handle == nullptr || handle == cudaStreamLegacy; }

Stream& stream_of(cudaStream_t handle, const std::string& what) {
  return is_legacy(handle) ? legacy_stream() : handles.find(handle, what);
}

void enqueue(Stream& stream, const std::string& what, Work work, HostRange host) {
  if (stream.capture) {
    if (stream.capture->invalidated)
      refuse(cudaErrorStreamCaptureInvalidated, what + " in a capture that was broken off");
    Nodes& nodes = stream.capture->nodes;
    nodes.push_back(std::make_shared<Node>(Node{what, std::move(work), stream.tail, &stream}));
    stream.tail = {nodes.back().get()};
    return;
  }
  order_with_legacy(stream, what);
  stream.operations.push_back({.work = std::move(work), .host = host, .actor = stream.line.add(what, stream.name)});
  ++stream.queued;
}

void refuse_if_captured(const Stream& stream, const std::string& call) {
  if (stream.capture)
    break_off(*stream.capture, cudaErrorStreamCaptureUnsupported, call + " of " + stream.name + ", which is captured");
}

bool is_anything_captured() {
  return std::any_of(streams.begin(), streams.end(), [](const auto& stream) { return stream->capture != nullptr; });
}

void end_capture_of_streams(const Capture& capture) {
  for (const auto& stream : streams)
    if (stream->capture.get() == &capture) {
      stream->capture = nullptr;
      stream->tail.clear();
    }
}

bool advance(Stream& stream, std::uint64_t count) {
  while (stream.done < count) {
    Operation& operation = stream.operations.front();
    if (operation.after != nullptr) {
      if (!advance(*operation.after, operation.after_count))
        return false;
    } else if (operation.work) {
      const Acting acting(operation.actor);
      if (!operation.work())
        return false;
    }
    stream.operations.pop_front();
    ++stream.done;
  }
  return true;
}

void advance_messages() {
  for (const auto& stream : streams)
    if (stream->has_messages)
      static_cast<void>(advance(*stream, stream->queued));
}

void finish(Lock& lock, Stream& stream, std::uint64_t count) {
  while (!advance(stream, count)) {
    lock.unlock();
    std::this_thread::sleep_for(pause);
    lock.lock();
  }
}

void synchronize(Lock& lock, Stream& stream) {
  const Clock known = stream.line.clock();
  finish(lock, stream, stream.queued);
  host_clock().join(known);
}

void finish_everything(Lock& lock) {
  for (std::size_t i = 0; i < streams.size(); ++i)  // others may add some meanwhile
    synchronize(lock, *streams[i]);
}

bool is_pending(const char* data, std::size_t bytes) {
  for (const auto& stream : streams)
    for (const Operation& operation : stream->operations)
      if (operation.host.bytes > 0 && data < operation.host.data + operation.host.bytes &&
          operation.host.data < data + bytes)
        return true;
  return false;
}

void tell_leaked_streams() { handles.tell_leaked(); }

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return call([&] { create(stream, cudaStreamDefault); });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call([&] { create(stream, flags); });
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return call([&] {
    refuse_if_captured(handles.find(handle, "cudaStreamDestroy"), "cudaStreamDestroy");
    handles.destroy(handle, "cudaStreamDestroy");
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return call([&](Lock& lock) {
    Stream& stream = stream_of(handle, "cudaStreamSynchronize");
    refuse_if_captured(stream, "cudaStreamSynchronize");
    refuse_if_captured("cudaStreamSynchronize");
    if (is_legacy(handle))
      order_with_legacy(stream, "cudaStreamSynchronize");
    count("stream_synchronizations");
    synchronize(lock, stream);
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return call([&] {
    Stream& stream = stream_of(handle, "cudaStreamQuery");
    refuse_if_captured(stream, "cudaStreamQuery");
    refuse_if_captured("cudaStreamQuery");
    if (!is_idle(stream)) {
      static_cast<void>(advance(stream, stream.done + 1));  // a little at each question
      throw Refusal{cudaErrorNotReady};
    }
    host_clock().join(stream.line.clock());
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call([&](Lock& lock) {
    refuse_if_captured("cudaDeviceSynchronize");
    for (const auto& stream : streams)
      refuse_if_captured(*stream, "cudaDeviceSynchronize");
    count("device_synchronizations");
    finish_everything(lock);
  });
}

}  // extern "C"
