// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// NCCL's sends and receives, between the processes of one host through files in ESPALIER_FAKE_CUDA_SHARED: matched in
// their order, without tags, and done while nobody waits, as on GPUs.
#include <fcntl.h>
#include <nccl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "tests/support/fake_cuda/handles.hpp"
#include "tests/support/fake_cuda/memory.hpp"
#include "tests/support/fake_cuda/races.hpp"
#include "tests/support/fake_cuda/streams.hpp"

namespace fake_cuda {
namespace {

constexpr std::chrono::microseconds pump_interval{200};

constexpr std::ptrdiff_t bytes_of_comm = 5 << 20;  // of device memory, until it ends

struct Comm {
  std::string folder;
  int rank = 0, size = 0;
  bool aborted = false;
  std::map<int, std::uint64_t> sent, received;  // by peer
  std::set<Stream*> streams;
};

struct Message {
  Comm* comm;
  Stream* stream;
  void* data;
  std::size_t bytes;
  int peer;
  bool incoming;
};

// Not destroyed before the end of the process is told.
auto& comms = *new Handles<ncclComm_t, Comm>("communicator");

thread_local int group_depth = 0;
thread_local std::vector<Message> group;

template <class F>
ncclResult_t nccl_call(const F& f) {
  return library_call(ncclSuccess, ncclInvalidArgument, f);
}

std::string path_of(const Comm& comm, int from, int to, std::uint64_t number) {
  return comm.folder + "/" + std::to_string(from) + "-" + std::to_string(to) + "-" + std::to_string(number);
}

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

void write_file(const std::string& path, const char* data, std::size_t bytes) {
  const std::string incomplete = path + ".part";
  std::ofstream(incomplete, std::ios::binary).write(data, static_cast<std::streamsize>(bytes));
  if (std::rename(incomplete.c_str(), path.c_str()) != 0)
    misuse("NCCL: cannot write " + path);
}

void send(const Message& m) {
  const Place place = place_of(m.data, m.bytes, "ncclSend");
  if (!place.valid)
    return;
  note_read(m.data, m.bytes);
  write_file(path_of(*m.comm, m.comm->rank, m.peer, m.comm->sent[m.peer]++), place.data, m.bytes);
}

bool receive(const Message& m) {
  const std::string path = path_of(*m.comm, m.peer, m.comm->rank, m.comm->received[m.peer]);
  struct stat status;
  if (stat(path.c_str(), &status) != 0)
    return false;
  if (static_cast<std::size_t>(status.st_size) != m.bytes)
    misuse("ncclRecv of " + std::to_string(m.bytes) + " bytes from member " + std::to_string(m.peer) + ", which sent " +
           std::to_string(status.st_size));
  const Place place = place_of(m.data, m.bytes, "ncclRecv");
  if (place.valid) {
    note_write(m.data, m.bytes);
    std::ifstream(path, std::ios::binary).read(place.data, static_cast<std::streamsize>(m.bytes));
  }
  ++m.comm->received[m.peer];
  return std::remove(path.c_str()) == 0;
}

// First all that is sent, then what comes, each in its order.
Work work_of(const std::vector<Message>& messages) {
  return [messages, has_sent = false, next = std::size_t{0}]() mutable {
    if (messages.front().comm->aborted)
      return true;
    for (const Message& message : messages)
      if (!has_sent && !message.incoming)
        send(message);
    has_sent = true;
    for (; next < messages.size(); ++next)
      if (messages[next].incoming && !receive(messages[next]))
        return false;
    has_sent = false;  // of a graph the same work is done again
    next = 0;
    return true;
  };
}

// Messages go on while the host does something else.
void start_pump() {
  static std::atomic<bool> started = false;
  if (started.exchange(true))
    return;
  std::thread([] {
    while (true) {
      {
        const Lock lock = lock_all();
        advance_messages();
      }
      std::this_thread::sleep_for(pump_interval);
    }
  }).detach();
}

void enqueue_group() {
  std::map<std::pair<Comm*, Stream*>, std::vector<Message>> parts;
  for (const Message& message : group)
    parts[{message.comm, message.stream}].push_back(message);
  group.clear();
  for (auto& [key, messages] : parts) {
    Stream& stream = *key.second;
    stream.has_messages = true;
    key.first->streams.insert(&stream);
    enqueue(stream, "a group of NCCL", work_of(messages));
  }
}

ncclResult_t add(ncclComm_t handle, const void* data, std::size_t number, ncclDataType_t type, int peer, bool incoming,
                 cudaStream_t stream) {
  return nccl_call([&] {
    const std::string what = incoming ? "ncclRecv" : "ncclSend";
    Comm& comm = comms.find(handle, what);
    if (type != ncclUint8 && type != ncclInt8)
      refuse(cudaErrorInvalidValue, what + ": the mock carries bytes only");
    if (peer < 0 || peer >= comm.size || !is_on_device(data, number, what))
      refuse(cudaErrorInvalidValue,
             what + " is refused: peer " + std::to_string(peer) + " of " + std::to_string(comm.size));
    count("messages");
    group.push_back({&comm, &stream_of(stream, what), const_cast<void*>(data), number, peer, incoming});
    if (group_depth == 0)
      enqueue_group();
  });
}

void remove_folder_when_last(const Comm& comm) {
  write_file(comm.folder + "/bye-" + std::to_string(comm.rank), "", 0);
  for (int i = 0; i < comm.size; ++i)
    if (!exists(comm.folder + "/bye-" + std::to_string(i)))
      return;
  for (int i = 0; i < comm.size; ++i)
    for (const char* name : {"/hello-", "/bye-"})
      std::remove((comm.folder + name + std::to_string(i)).c_str());
  rmdir(comm.folder.c_str());
}

void end(ncclComm_t handle, const std::string& what) {
  Comm& comm = comms.find(handle, what);
  comms.destroy(handle, what);
  hold_device_memory(-bytes_of_comm);
  remove_folder_when_last(comm);
}

}  // namespace

void tell_leaked_communicators() { comms.tell_leaked(); }

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

const char* ncclGetErrorString(ncclResult_t) { return "an error of the mock"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> number = 0;
  const char* const shared = std::getenv("ESPALIER_FAKE_CUDA_SHARED");
  std::snprintf(id->internal, sizeof id->internal, "%s/fake-nccl-%d-%d", shared == nullptr ? "/dev/shm" : shared,
                static_cast<int>(getpid()), ++number);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int size, ncclUniqueId id, int rank, ncclConfig_t*) {
  const auto comm = std::make_shared<Comm>();
  comm->folder = id.internal;
  comm->rank = rank;
  comm->size = size;
  mkdir(id.internal, 0700);
  write_file(comm->folder + "/hello-" + std::to_string(rank), "", 0);
  for (int i = 0; i < size; ++i)
    while (!exists(comm->folder + "/hello-" + std::to_string(i)))
      std::this_thread::sleep_for(pump_interval);
  return nccl_call([&] {
    refuse_if_captured("ncclCommInitRankConfig");
    *handle = comms.add(comm, "a communicator of NCCL of " + std::to_string(size) + " ranks");
    hold_device_memory(bytes_of_comm);
    start_pump();
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  return nccl_call([&](Lock& lock) {
    for (Stream* const stream : comms.find(handle, "ncclCommDestroy").streams)
      finish(lock, *stream, stream->queued);
    end(handle, "ncclCommDestroy");
  });
}
ncclResult_t ncclCommAbort(ncclComm_t handle) {
  return nccl_call([&] {
    comms.find(handle, "ncclCommAbort").aborted = true;
    end(handle, "ncclCommAbort");
  });
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* result) {
  *result = ncclSuccess;
  return nccl_call([&] { comms.find(handle, "ncclCommGetAsyncError"); });
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  return nccl_call([&] {
    if (group_depth == 0)
      refuse(cudaErrorInvalidValue, "ncclGroupEnd without ncclGroupStart");
    if (--group_depth == 0)
      enqueue_group();
  });
}

ncclResult_t ncclSend(const void* data, size_t number, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, data, number, type, peer, false, stream);
}
ncclResult_t ncclRecv(void* data, size_t number, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, data, number, type, peer, true, stream);
}

}  // extern "C"
