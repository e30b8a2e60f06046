// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Copies and memsets do move bytes, as late as they may. Until then pinned memory that is copied from must not change,
// and what is copied to holds rubbish.
#include <cstring>
#include <string_view>

#include "tests/support/fake_cuda/device.hpp"
#include "tests/support/fake_cuda/memory.hpp"
#include "tests/support/fake_cuda/races.hpp"
#include "tests/support/fake_cuda/streams.hpp"

namespace fake_cuda {
namespace {

constexpr int rubbish = 0xA5;

std::size_t hash_of(const char* data, std::size_t bytes) { return std::hash<std::string_view>()({data, bytes}); }

bool is_on_host(Where where) { return where == Where::pageable || where == Where::pinned; }

cudaError_t check_kind(cudaMemcpyKind kind, const Place& to, const Place& from, const std::string& what) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind == cudaMemcpyDefault || (to_device != is_on_host(to.where) && from_device != is_on_host(from.where)))
    return cudaSuccess;
  return refuse(cudaErrorInvalidMemcpyDirection, what + " in another direction than its addresses say");
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

cudaError_t copy_later(Lock& lock, const Copy& copy, cudaMemcpyKind kind, cudaStream_t handle) {
  if (const cudaError_t started = start_call(); started != cudaSuccess)
    return started;
  if (copy.bytes == 0)
    return cudaSuccess;
  Stream* const stream = stream_of(handle, copy.what);
  if (stream == nullptr)
    return answer(cudaErrorInvalidResourceHandle);
  const Place to = place_of(copy.to, copy.bytes, copy.what);
  const Place from = place_of(copy.from, copy.bytes, copy.what);
  if (!to.valid || !from.valid)
    return answer(cudaErrorInvalidValue);
  if (const cudaError_t fits = check_kind(kind, to, from, copy.what); fits != cudaSuccess)
    return fits;
  ++counts().copies;
  if (is_captured(*stream)) {
    if (to.where == Where::pageable || from.where == Where::pageable)
      misuse(copy.what + " of pageable memory in a capture: each launch of the graph would use that address again");
    return enqueue(*stream, copy.what, [copy] { return perform(copy); });
  }
  if (to.where != Where::pageable && from.where != Where::pageable) {
    HostRange host;
    Work work = checked_work(copy, to, from, host);
    return enqueue(*stream, copy.what, std::move(work), host);
  }
  // CUDA may wait for it, or may not: the memory of the host is as if it did, but for others it orders nothing.
  ++counts().blocking_copies;
  const cudaError_t queued = enqueue(*stream, copy.what, [copy] { return perform(copy); });
  if (queued == cudaSuccess)
    finish(lock, *stream, stream->queued);
  return queued;
}

cudaError_t set_later(void* address, int value, std::size_t bytes, cudaStream_t stream, const std::string& what) {
  if (const cudaError_t started = start_call(); started != cudaSuccess)
    return started;
  if (bytes == 0)
    return cudaSuccess;
  if (!is_on_device(address, bytes, what))
    return answer(cudaErrorInvalidValue);
  ++counts().memsets;
  return enqueue(stream, what, [=] {
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
cudaError_t copy_now(Lock& lock, const Copy& copy, cudaMemcpyKind kind) {
  Stream& legacy = *stream_of(nullptr, "");
  const cudaError_t queued = copy_later(lock, copy, kind, nullptr);
  if (queued != cudaSuccess || copy.bytes == 0)
    return queued;
  const bool to_host = is_on_host(place_of(copy.to, copy.bytes, copy.what).where);
  const Where from = place_of(copy.from, copy.bytes, copy.what).where;
  if (to_host || from == Where::pinned)
    synchronize(lock, legacy);
  else if (from == Where::pageable)
    host_clock().join(legacy.line.before());
  finish(lock, legacy, legacy.queued);
  return cudaSuccess;
}

}  // namespace
}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  Lock lock = lock_all();
  if (const cudaError_t allowed = unsafe_call("cudaMemcpy"); allowed != cudaSuccess)
    return allowed;
  ++counts().blocking_copies;
  return copy_now(lock, {to, from, bytes, "cudaMemcpy"}, kind);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  Lock lock = lock_all();
  return copy_later(lock, {to, from, bytes, "cudaMemcpyAsync"}, kind, stream);
}

cudaError_t cudaMemset(void* address, int value, size_t bytes) {
  Lock lock = lock_all();
  if (const cudaError_t allowed = unsafe_call("cudaMemset"); allowed != cudaSuccess)
    return allowed;
  return set_later(address, value, bytes, nullptr, "cudaMemset");
}
cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream) {
  const Lock lock = lock_all();
  return set_later(address, value, bytes, stream, "cudaMemsetAsync");
}

// No kernel runs that would read it.
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void*, size_t bytes, size_t offset, cudaMemcpyKind) {
  const Lock lock = lock_all();
  if (const cudaError_t allowed = unsafe_call("cudaMemcpyToSymbol"); allowed != cudaSuccess)
    return allowed;
  return is_symbol(symbol, offset + bytes, "cudaMemcpyToSymbol") ? cudaSuccess : answer(cudaErrorInvalidSymbol);
}

}  // extern "C"
