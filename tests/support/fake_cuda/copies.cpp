// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Copies and memsets do move bytes, as late as they may. Until then pinned memory that is copied from must not change,
// and what is copied to holds rubbish.
#include <cstring>
#include <string_view>

#include "tests/support/fake_cuda/memory.hpp"
#include "tests/support/fake_cuda/races.hpp"
#include "tests/support/fake_cuda/report.hpp"
#include "tests/support/fake_cuda/streams.hpp"

namespace fake_cuda {
namespace {

constexpr int rubbish = 0xA5;

std::size_t hash_of(const char* data, std::size_t bytes) { return std::hash<std::string_view>()({data, bytes}); }

bool is_on_host(Where where) { return where == Where::pageable || where == Where::pinned; }

void check_kind(cudaMemcpyKind kind, const Place& to, const Place& from, const std::string& what) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind != cudaMemcpyDefault && (to_device == is_on_host(to.where) || from_device == is_on_host(from.where)))
    refuse(cudaErrorInvalidMemcpyDirection, what + " in another direction than its addresses say");
}

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
  std::string what;
};

// Addresses are looked up when it is done, too: what was freed since is told.
bool perform(const Copy& copy) {
  const Place to = place_of(copy.to, copy.bytes, copy.what);
  const Place from = place_of(copy.from, copy.bytes, copy.what);
  if (to.valid && from.valid) {
    note_read(copy.from, copy.bytes);
    note_write(copy.to, copy.bytes);
    std::memmove(to.data, from.data, copy.bytes);
  }
  return true;
}

Work checked_work(const Copy& copy, const Place& to, const Place& from, HostRange& host) {
  if (from.where == Where::pinned) {
    host = {from.data, copy.bytes};
    return [copy, data = from.data, hash = hash_of(from.data, copy.bytes)] {
      const Place place = place_of(copy.from, copy.bytes, copy.what);
      if (place.valid && hash_of(data, copy.bytes) != hash)
        misuse(copy.what + ": the host changed the pinned memory before it was copied");
      return perform(copy);
    };
  }
  if (to.where == Where::pinned) {
    if (!is_pending(to.data, copy.bytes))
      std::memset(to.data, rubbish, copy.bytes);
    host = {to.data, copy.bytes};
  }
  return [copy] { return perform(copy); };
}

void copy_later(Lock& lock, const Copy& copy, cudaMemcpyKind kind, cudaStream_t handle) {
  Stream& stream = stream_of(handle, copy.what);
  if (copy.bytes == 0)
    return;
  const Place to = place_of(copy.to, copy.bytes, copy.what);
  const Place from = place_of(copy.from, copy.bytes, copy.what);
  if (!to.valid || !from.valid)
    throw Refusal{cudaErrorInvalidValue};
  check_kind(kind, to, from, copy.what);
  const bool is_pageable = to.where == Where::pageable || from.where == Where::pageable;
  if (stream.capture && is_pageable)
    misuse(copy.what + " of pageable memory in a capture: each launch of the graph would use that address again");
  if (!stream.capture && !is_pageable) {
    HostRange host;
    Work work = checked_work(copy, to, from, host);
    return enqueue(stream, copy.what, std::move(work), host);
  }
  enqueue(stream, copy.what, [copy] { return perform(copy); });
  if (stream.capture)
    return;
  // CUDA may wait for it, or may not: the memory of the host is as if it did, but for others it orders nothing.
  count("blocking_copies");
  finish(lock, stream, stream.queued);
}

void set_later(void* address, int value, std::size_t bytes, cudaStream_t stream, const std::string& what) {
  if (bytes == 0)
    return;
  if (!is_on_device(address, bytes, what))
    throw Refusal{cudaErrorInvalidValue};
  enqueue(stream_of(stream, what), what, [=] {
    const Place place = place_of(address, bytes, what);
    if (place.valid) {
      note_write(address, bytes);
      std::memset(place.data, value, bytes);
    }
    return true;
  });
}

// cudaMemcpy and cudaMemset are in the legacy stream. The first waits, but not for a copy within the device, and from
// pageable memory it returns when that was read: see "API synchronization behavior" of the CUDA runtime.
void copy_now(Lock& lock, const Copy& copy, cudaMemcpyKind kind) {
  Stream& legacy = stream_of(nullptr, copy.what);
  copy_later(lock, copy, kind, nullptr);
  if (copy.bytes == 0)
    return;
  const bool to_host = is_on_host(place_of(copy.to, copy.bytes, copy.what).where);
  const Where from = place_of(copy.from, copy.bytes, copy.what).where;
  if (to_host || from == Where::pinned)
    synchronize(lock, legacy);
  else if (from == Where::pageable)
    host_clock().join(legacy.line.before());
  finish(lock, legacy, legacy.queued);
}

}  // namespace
}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return call([&](Lock& lock) {
    refuse_if_captured("cudaMemcpy");
    count("blocking_copies");
    copy_now(lock, {to, from, bytes, "cudaMemcpy"}, kind);
  });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return call([&](Lock& lock) { copy_later(lock, {to, from, bytes, "cudaMemcpyAsync"}, kind, stream); });
}

cudaError_t cudaMemset(void* address, int value, size_t bytes) {
  return call([&] {
    refuse_if_captured("cudaMemset");
    set_later(address, value, bytes, nullptr, "cudaMemset");
  });
}
cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream) {
  return call([&] { set_later(address, value, bytes, stream, "cudaMemsetAsync"); });
}

}  // extern "C"
