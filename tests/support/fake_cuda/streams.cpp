// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Streams, and the work that is queued in them.
#include "tests/support/fake_cuda/streams.hpp"

#include <algorithm>
#include <chrono>
#include <map>

#include "tests/support/fake_cuda/device.hpp"
#include "tests/support/fake_cuda/races.hpp"

namespace fake_cuda {
namespace {

constexpr std::chrono::microseconds pause{50};

struct Streams {
  std::vector<std::unique_ptr<Stream>> all;
  std::map<cudaStream_t, Stream*> by_handle;
};

Streams& streams() {
  static Streams& state = *new Streams;
  return state;
}

Stream& new_stream(const std::string& name) {
  streams().all.push_back(std::make_unique<Stream>());
  Stream& stream = *streams().all.back();
  stream.name = name;
  return stream;
}

Stream& legacy_stream() {
  static Stream& stream = new_stream("the legacy stream");
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
cudaError_t order_with_legacy(Stream& stream, const std::string& what) {
  Stream& legacy = legacy_stream();
  if (&stream != &legacy) {
    if (stream.blocking)
      push_wait(stream, legacy);
    return cudaSuccess;
  }
  for (const auto& other : streams().all) {
    if (other.get() == &legacy || !other->blocking)
      continue;
    if (is_captured(*other)) {
      invalidate(*other->capture);
      return refuse(cudaErrorStreamCaptureImplicit,
                    what + " in the legacy stream while " + other->name + ", which it would wait for, is captured");
    }
    push_wait(legacy, *other);
  }
  return cudaSuccess;
}

cudaError_t create(cudaStream_t* handle, unsigned flags) {
  if (const cudaError_t started = start_call(); started != cudaSuccess)
    return started;
  Stream& stream = new_stream("stream " + std::to_string(++counts().streams));
  stream.blocking = (flags & cudaStreamNonBlocking) == 0;
  *handle = reinterpret_cast<cudaStream_t>(&stream);
  streams().by_handle[*handle] = &stream;
  return cudaSuccess;
}

cudaError_t captured_refusal(Stream& stream, const std::string& what) {
  invalidate(*stream.capture);
  return refuse(cudaErrorStreamCaptureUnsupported, what + " of " + stream.name + ", which is captured");
}

}  // namespace

Stream* stream_of(cudaStream_t handle, const std::string& what) {
  if (handle == nullptr || handle == cudaStreamLegacy)
    return &legacy_stream();
  const auto found = streams().by_handle.find(handle);
  if (found == streams().by_handle.end()) {
    misuse(what + " with a handle that is no stream");
    return nullptr;
  }
  if (found->second->destroyed) {
    misuse(what + " with " + found->second->name + ", which was destroyed");
    return nullptr;
  }
  return found->second;
}

cudaError_t enqueue(cudaStream_t handle, const std::string& what, Work work, HostRange host) {
  Stream* const stream = stream_of(handle, what);
  return stream == nullptr ? answer(cudaErrorInvalidResourceHandle) : enqueue(*stream, what, std::move(work), host);
}

cudaError_t enqueue(Stream& stream, const std::string& what, Work work, HostRange host) {
  if (stream.capture) {
    if (stream.capture->invalidated)
      return refuse(cudaErrorStreamCaptureInvalidated, what + " in a capture that was broken off");
    stream.capture->graph->nodes.push_back(std::make_shared<Node>(Node{what, std::move(work), stream.tail, &stream}));
    stream.tail = {stream.capture->graph->nodes.back().get()};
    return cudaSuccess;
  }
  if (const cudaError_t ordered = order_with_legacy(stream, what); ordered != cudaSuccess)
    return ordered;
  stream.operations.push_back({.work = std::move(work), .host = host, .actor = stream.line.add(what, stream.name)});
  ++stream.queued;
  return cudaSuccess;
}

bool is_captured(const Stream& stream) { return stream.capture != nullptr; }

bool is_anything_captured() {
  return std::any_of(streams().all.begin(), streams().all.end(), [](const auto& s) { return is_captured(*s); });
}

void end_capture_of_streams(const Capture& capture) {
  for (const auto& stream : streams().all)
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
  for (const auto& stream : streams().all)
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
  for (std::size_t i = 0; i < streams().all.size(); ++i)  // others may add some meanwhile
    synchronize(lock, *streams().all[i]);
}

bool is_pending(const char* data, std::size_t bytes) {
  for (const auto& stream : streams().all)
    for (const Operation& operation : stream->operations)
      if (operation.host.bytes > 0 && data < operation.host.data + operation.host.bytes &&
          operation.host.data < data + bytes)
        return true;
  return false;
}

void tell_leaked_streams() {
  for (const auto& [handle, stream] : streams().by_handle)
    if (!stream->destroyed)
      misuse(stream->name + " was never destroyed");
}

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  const Lock lock = lock_all();
  return create(stream, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const Lock lock = lock_all();
  return create(stream, flags);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  const Lock lock = lock_all();
  return create(stream, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const Lock lock = lock_all();
  Stream* const stream = stream_of(handle, "cudaStreamDestroy");
  if (stream == nullptr || handle == nullptr || handle == cudaStreamLegacy)
    return refuse(cudaErrorInvalidResourceHandle, "cudaStreamDestroy");
  if (is_captured(*stream))
    return captured_refusal(*stream, "cudaStreamDestroy");
  stream->destroyed = true;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  Lock lock = lock_all();
  if (const cudaError_t started = start_call(); started != cudaSuccess)
    return started;
  Stream* const stream = stream_of(handle, "cudaStreamSynchronize");
  if (stream == nullptr)
    return answer(cudaErrorInvalidResourceHandle);
  if (is_captured(*stream))
    return captured_refusal(*stream, "cudaStreamSynchronize");
  if (const cudaError_t allowed = unsafe_call("cudaStreamSynchronize"); allowed != cudaSuccess)
    return allowed;
  if (stream == &legacy_stream())
    if (const cudaError_t ordered = order_with_legacy(*stream, "cudaStreamSynchronize"); ordered != cudaSuccess)
      return ordered;
  ++counts().stream_synchronizations;
  synchronize(lock, *stream);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const Lock lock = lock_all();
  Stream* const stream = stream_of(handle, "cudaStreamQuery");
  if (stream == nullptr)
    return answer(cudaErrorInvalidResourceHandle);
  if (is_captured(*stream))
    return captured_refusal(*stream, "cudaStreamQuery");
  if (const cudaError_t allowed = unsafe_call("cudaStreamQuery"); allowed != cudaSuccess)
    return allowed;
  if (is_idle(*stream)) {
    host_clock().join(stream->line.clock());
    return cudaSuccess;
  }
  static_cast<void>(advance(*stream, stream->done + 1));  // a little at each question
  return cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize() {
  Lock lock = lock_all();
  if (const cudaError_t started = start_call(); started != cudaSuccess)
    return started;
  if (const cudaError_t allowed = unsafe_call("cudaDeviceSynchronize"); allowed != cudaSuccess)
    return allowed;
  for (const auto& stream : streams().all)
    if (is_captured(*stream))
      return captured_refusal(*stream, "cudaDeviceSynchronize");
  ++counts().device_synchronizations;
  finish_everything(lock);
  return cudaSuccess;
}

}  // extern "C"
