// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Events. Asked once, one that waits for work says that it is not done; asked again, the work is done.
// With ESPALIER_FAKE_CUDA_LATE=9, asked so often, it says so though it is done, unless the host must know: whoever
// takes an event to be reached by then races.
#include <algorithm>
#include <chrono>

#include "tests/support/fake_cuda/handles.hpp"
#include "tests/support/fake_cuda/races.hpp"
#include "tests/support/fake_cuda/streams.hpp"

namespace fake_cuda {
namespace {

using Time = std::chrono::steady_clock;

struct Event {
  std::string name;
  unsigned flags = 0;
  Stream* stream = nullptr;  // where it was recorded last
  std::uint64_t count = 0;
  Clock known;  // of the stream then
  std::shared_ptr<Time::time_point> time;
  std::shared_ptr<Capture> capture;  // or in which capture, and
  std::vector<const Node*> nodes;    // behind what
  int asked = 0;                     // since it was recorded
};

// Not destroyed before the end of the process is told.
auto& events = *new Handles<cudaEvent_t, Event>("event");

bool is_done(const Event& event) { return event.stream == nullptr || event.stream->done >= event.count; }

// Questions about an event of a capture break it off.
void refuse_if_captured(const Event& event, const std::string& what) {
  if (event.capture)
    break_off(*event.capture, cudaErrorCapturedEvent, what + " of " + event.name + ", which is part of a capture");
  fake_cuda::refuse_if_captured(what);
}

void record(Event& event, Stream& stream) {
  event.asked = 0;
  if (stream.capture) {
    if (stream.capture->invalidated)
      refuse(cudaErrorStreamCaptureInvalidated, "cudaEventRecord in a capture that was broken off");
    event.capture = stream.capture;
    event.nodes = stream.tail;
    event.stream = nullptr;
    return;
  }
  event.capture = nullptr;
  event.time = std::make_shared<Time::time_point>();
  enqueue(stream, "cudaEventRecord", [time = event.time] {
    *time = Time::now();
    return true;
  });
  event.stream = &stream;
  event.count = stream.queued;
  event.known = stream.line.clock();
}

// In a capture: joins the stream to that of the event.
void wait_in_capture(Stream& stream, const Event& event, cudaStream_t handle) {
  if (!event.capture) {
    if (event.stream == nullptr)
      return;  // was never recorded
    break_off(*stream.capture, cudaErrorStreamCaptureIsolation,
              "cudaStreamWaitEvent: " + stream.name + " is captured, and " + event.name + " is not part of that");
  }
  if (event.capture->ended)
    refuse(cudaErrorCapturedEvent, "cudaStreamWaitEvent for " + event.name + ", whose capture has ended");
  if (event.capture->invalidated)
    refuse(cudaErrorStreamCaptureInvalidated, "cudaStreamWaitEvent in a capture that was broken off");
  if (stream.capture && stream.capture != event.capture) {
    event.capture->invalidated = true;
    break_off(*stream.capture, cudaErrorStreamCaptureMerge, "cudaStreamWaitEvent joins two captures");
  }
  if (is_legacy(handle))
    break_off(*event.capture, cudaErrorStreamCaptureImplicit,
              "cudaStreamWaitEvent of the legacy stream for a captured event");
  if (!stream.capture) {
    stream.capture = event.capture;
    stream.tail.clear();
  }
  for (const Node* node : event.nodes)
    if (std::find(stream.tail.begin(), stream.tail.end(), node) == stream.tail.end())
      stream.tail.push_back(node);
}

}  // namespace
}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
  return call([&] {
    const auto event = std::make_shared<Event>();
    event->name = "event " + std::to_string(count("events"));
    event->flags = flags;
    *handle = events.add(event, event->name);
  });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call([&] { events.destroy(event, "cudaEventDestroy"); });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call([&] { record(events.find(event, "cudaEventRecord"), stream_of(stream, "cudaEventRecord")); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned) {
  return call([&] {
    const Event& event = events.find(handle, "cudaStreamWaitEvent");
    Stream& stream = stream_of(stream_handle, "cudaStreamWaitEvent");
    if (stream.capture || event.capture)
      return wait_in_capture(stream, event, stream_handle);
    if (!ignores_waits())
      stream.line.wait_for(event.known);
    if (is_done(event))
      return;
    stream.operations.push_back({.work = {}, .after = event.stream, .after_count = event.count});
    ++stream.queued;
    stream.has_messages |= event.stream->has_messages;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return call([&] {
    Event& event = events.find(handle, "cudaEventQuery");
    refuse_if_captured(event, "cudaEventQuery");
    const bool may_answer = event.asked >= setting("LATE", 0) || host_clock().covers(event.known);
    if (!may_answer || (!is_done(event) && (event.asked == 0 || !advance(*event.stream, event.count)))) {
      ++event.asked;
      throw Refusal{cudaErrorNotReady};
    }
    host_clock().join(event.known);
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return call([&](Lock& lock) {
    const Event& event = events.find(handle, "cudaEventSynchronize");
    refuse_if_captured(event, "cudaEventSynchronize");
    const Clock known = event.known;
    if (event.stream != nullptr)
      finish(lock, *event.stream, event.count);
    host_clock().join(known);
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t first_handle, cudaEvent_t last_handle) {
  return call([&] {
    const std::string what = "cudaEventElapsedTime";
    const Event &first = events.find(first_handle, what), &last = events.find(last_handle, what);
    for (const Event* const event : {&first, &last}) {
      if (event->capture)
        refuse(cudaErrorCapturedEvent, what + " of " + event->name + ", which is part of a capture");
      if (event->stream == nullptr || (event->flags & cudaEventDisableTiming) != 0)
        refuse(cudaErrorInvalidResourceHandle,
               what + " of " + event->name + ", which was not recorded or keeps no time");
      if (!is_done(*event))
        refuse(cudaErrorNotReady, what + " of " + event->name + ", which nobody has waited for");
    }
    *ms = std::chrono::duration<float, std::milli>(*last.time - *first.time).count();
  });
}

}  // extern "C"
