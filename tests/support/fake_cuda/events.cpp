// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Events. Asked once, one that waits for work says that it is not done; asked again, the work is done.
//   ESPALIER_FAKE_CUDA_LATE=9    asked so often, it says so though it is done, unless the host must know: whoever takes
//                                an event to be reached by then races
#include <algorithm>
#include <chrono>
#include <map>

#include "tests/support/fake_cuda/device.hpp"
#include "tests/support/fake_cuda/races.hpp"
#include "tests/support/fake_cuda/streams.hpp"

namespace fake_cuda {
namespace {

using Time = std::chrono::steady_clock;

struct Event {
  std::string name;
  unsigned flags = 0;
  bool destroyed = false;
  Stream* stream = nullptr;  // where it was recorded last
  std::uint64_t count = 0;
  Clock known;  // of the stream then
  std::shared_ptr<Time::time_point> time;
  std::shared_ptr<Capture> capture;  // or in which capture, and
  std::vector<const Node*> nodes;    // behind what
  int asked = 0;                     // since it was recorded
};

std::map<cudaEvent_t, std::unique_ptr<Event>>& events() {
  static auto& all = *new std::map<cudaEvent_t, std::unique_ptr<Event>>;
  return all;
}

Event* event_of(cudaEvent_t handle, const char* what) {
  const auto found = events().find(handle);
  if (found == events().end()) {
    misuse(std::string(what) + " with a handle that is no event");
    return nullptr;
  }
  Event& event = *found->second;
  if (event.destroyed)
    misuse(std::string(what) + " with " + event.name + ", which was destroyed");
  return event.destroyed ? nullptr : &event;
}

bool is_done(const Event& event) { return event.stream == nullptr || event.stream->done >= event.count; }

cudaError_t create(cudaEvent_t* handle, unsigned flags) {
  if (const cudaError_t started = start_call(); started != cudaSuccess)
    return started;
  auto event = std::make_unique<Event>();
  event->name = "event " + std::to_string(++counts().events);
  event->flags = flags;
  *handle = reinterpret_cast<cudaEvent_t>(event.get());
  events()[*handle] = std::move(event);
  return cudaSuccess;
}

// Questions about an event of a capture break it off.
cudaError_t require_outside_of_capture(const Event& event, const char* what) {
  if (!event.capture)
    return unsafe_call(what);
  invalidate(*event.capture);
  return refuse(cudaErrorCapturedEvent, std::string(what) + " of " + event.name + ", which is part of a capture");
}

cudaError_t record(Event& event, Stream& stream) {
  event.asked = 0;
  if (stream.capture) {
    if (stream.capture->invalidated)
      return refuse(cudaErrorStreamCaptureInvalidated, "cudaEventRecord in a capture that was broken off");
    event.capture = stream.capture;
    event.nodes = stream.tail;
    event.stream = nullptr;
    return cudaSuccess;
  }
  event.capture = nullptr;
  event.time = std::make_shared<Time::time_point>();
  const cudaError_t queued = enqueue(stream, "cudaEventRecord", [time = event.time] {
    *time = Time::now();
    return true;
  });
  event.stream = &stream;
  event.count = stream.queued;
  event.known = stream.line.clock();
  return queued;
}

// In a capture: joins the stream to that of the event.
cudaError_t wait_in_capture(Stream& stream, const Event& event, bool is_legacy) {
  if (!event.capture) {
    if (event.stream == nullptr)
      return cudaSuccess;  // was never recorded
    invalidate(*stream.capture);
    return refuse(cudaErrorStreamCaptureIsolation,
                  "cudaStreamWaitEvent: " + stream.name + " is captured, and " + event.name + " is not part of that");
  }
  if (event.capture->ended)
    return refuse(cudaErrorCapturedEvent, "cudaStreamWaitEvent for " + event.name + ", whose capture has ended");
  if (event.capture->invalidated)
    return refuse(cudaErrorStreamCaptureInvalidated, "cudaStreamWaitEvent in a capture that was broken off");
  if (stream.capture && stream.capture != event.capture) {
    invalidate(*stream.capture);
    invalidate(*event.capture);
    return refuse(cudaErrorStreamCaptureMerge, "cudaStreamWaitEvent joins two captures");
  }
  if (is_legacy) {
    invalidate(*event.capture);
    return refuse(cudaErrorStreamCaptureImplicit, "cudaStreamWaitEvent of the legacy stream for a captured event");
  }
  if (!stream.capture) {
    stream.capture = event.capture;
    stream.tail.clear();
  }
  for (const Node* node : event.nodes)
    if (std::find(stream.tail.begin(), stream.tail.end(), node) == stream.tail.end())
      stream.tail.push_back(node);
  return cudaSuccess;
}

}  // namespace
}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  const Lock lock = lock_all();
  return create(event, cudaEventDefault);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const Lock lock = lock_all();
  return create(event, flags);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  const Lock lock = lock_all();
  Event* const event = event_of(handle, "cudaEventDestroy");
  if (event == nullptr)
    return answer(cudaErrorInvalidResourceHandle);
  event->destroyed = true;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  const Lock lock = lock_all();
  Event* const event = event_of(handle, "cudaEventRecord");
  Stream* const stream = stream_of(stream_handle, "cudaEventRecord");
  if (event == nullptr || stream == nullptr)
    return answer(cudaErrorInvalidResourceHandle);
  return record(*event, *stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned) {
  const Lock lock = lock_all();
  const Event* const event = event_of(handle, "cudaStreamWaitEvent");
  Stream* const stream = stream_of(stream_handle, "cudaStreamWaitEvent");
  if (event == nullptr || stream == nullptr)
    return answer(cudaErrorInvalidResourceHandle);
  if (stream->capture || event->capture)
    return wait_in_capture(*stream, *event, stream_handle == nullptr || stream_handle == cudaStreamLegacy);
  if (!ignores_waits())
    stream->line.wait_for(event->known);
  if (is_done(*event))
    return cudaSuccess;
  stream->operations.push_back({.work = {}, .after = event->stream, .after_count = event->count});
  ++stream->queued;
  stream->has_messages |= event->stream->has_messages;
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  const Lock lock = lock_all();
  Event* const event = event_of(handle, "cudaEventQuery");
  if (event == nullptr)
    return answer(cudaErrorInvalidResourceHandle);
  if (const cudaError_t allowed = require_outside_of_capture(*event, "cudaEventQuery"); allowed != cudaSuccess)
    return allowed;
  const bool may_answer = event->asked >= setting("LATE", 0) || host_clock().covers(event->known);
  if (may_answer && (is_done(*event) || (event->asked > 0 && advance(*event->stream, event->count)))) {
    host_clock().join(event->known);
    return cudaSuccess;
  }
  ++event->asked;
  return cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  Lock lock = lock_all();
  const Event* const event = event_of(handle, "cudaEventSynchronize");
  if (event == nullptr)
    return answer(cudaErrorInvalidResourceHandle);
  if (const cudaError_t allowed = require_outside_of_capture(*event, "cudaEventSynchronize"); allowed != cudaSuccess)
    return allowed;
  ++counts().event_synchronizations;
  const Clock known = event->known;
  if (event->stream != nullptr)
    finish(lock, *event->stream, event->count);
  host_clock().join(known);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t first_handle, cudaEvent_t last_handle) {
  const Lock lock = lock_all();
  const Event* const first = event_of(first_handle, "cudaEventElapsedTime");
  const Event* const last = event_of(last_handle, "cudaEventElapsedTime");
  if (first == nullptr || last == nullptr)
    return answer(cudaErrorInvalidResourceHandle);
  for (const Event* const event : {first, last}) {
    if (event->capture)
      return refuse(cudaErrorCapturedEvent, "cudaEventElapsedTime of " + event->name + ", which is part of a capture");
    if (event->stream == nullptr || (event->flags & cudaEventDisableTiming) != 0)
      return refuse(cudaErrorInvalidResourceHandle,
                    "cudaEventElapsedTime of " + event->name + ", which was not recorded or keeps no time");
    if (!is_done(*event))
      return refuse(cudaErrorNotReady, "cudaEventElapsedTime of " + event->name + ", which nobody has waited for");
  }
  *ms = std::chrono::duration<float, std::milli>(*last->time - *first->time).count();
  return cudaSuccess;
}

}  // extern "C"
