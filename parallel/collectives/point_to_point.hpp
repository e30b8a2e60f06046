// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <any>
#include <functional>
#include <string>

#include "parallel/collectives/communicator.hpp"
#include "parallel/collectives/messages.hpp"
#include "parallel/collectives/mpi_buffer.hpp"
#include "parallel/device/device_stream.hpp"

namespace espalier {

class Request;

/// Starts to send a contiguous tensor; it must not change before the request is complete. Messages between two ranks
/// with one tag arrive in the order in which they were sent.
template <class View>
Request isend(const ExecSpace& exec, const Communicator& communicator, const View& data, int peer,
              int tag = tags::data);

/// Starts to receive into a contiguous tensor; after wait() kernels on `exec` see the data.
template <class View>
Request irecv(const ExecSpace& exec, const Communicator& communicator, const View& data, int peer,
              int tag = tags::data);

/// A send or receive under way. Keeps its buffers alive; wait() must be called (a request that is dropped calls its
/// receive back, which is right only after an error). Over a device edge wait() does not keep the host: later kernels
/// on `exec` wait.
class Request {
 public:
  Request(Request&&) = default;
  Request& operator=(Request&&) = delete;
  ~Request();

  /// True once complete. Nothing advances a message during a long kernel: call test() between kernels.
  [[nodiscard]] bool test();

  /// Calls `meanwhile` between polls: nothing else advances while a rank waits.
  /// @throws Error (ExitCode::communication) when the message fails or the deadline passes.
  void wait(const std::function<void()>& meanwhile = {});

  /// Over a device edge.
  bool is_enqueued() const { return edge_ != nullptr; }

  /// Of a completed receive: when the sender sent it, by the job's clock. Waiting until then was waiting for the
  /// sender's work, waiting after it was waiting for the network.
  double sent_at() const { return messages_.sent_at(); }

 private:
  template <class View>
  friend Request isend(const ExecSpace&, const Communicator&, const View&, int, int);
  template <class View>
  friend Request irecv(const ExecSpace&, const Communicator&, const View&, int, int);

  Request(const Communicator& communicator, DeviceEdge* edge, const ExecSpace& exec, std::any buffers, std::string what)
      : messages_(communicator, edge != nullptr ? edge->link.get() : nullptr, edge != nullptr ? edge->stream : exec),
        edge_(edge),
        exec_(exec),
        buffers_(std::move(buffers)),
        what_(std::move(what)) {
    if (edge_ != nullptr)
      order_after(edge_->stream, exec);  // which fills what leaves, or still reads what is overwritten
  }
  void start();
  void finish();

  static constexpr bool stamped = true;

  MessageSet messages_;
  DeviceEdge* edge_;  // nullptr: by MPI
  ExecSpace exec_;
  StreamEvent end_;                // on the stream of the edge
  std::any buffers_;               // Views, by reference count
  std::function<void()> on_done_;  // copies what the staging buffer has received to the device
  std::string what_;
};

/// Text for a wait, "send of activations to rank 2 of pp".
std::string describe_message(const char* direction, int tag, int peer, const Communicator& communicator);

template <class View>
Request isend(const ExecSpace& exec, const Communicator& communicator, const View& data, int peer, int tag) {
  using T = typename View::non_const_value_type;
  const auto window = flatten(data);
  DeviceEdge* const edge = communicator.device_edge(tag, communicator.rank(), peer);
  const MpiBuffer<T> buffer(edge != nullptr ? MessageAccess::enqueued : mpi_access(communicator), communicator, window);
  Request request(communicator, edge, exec, std::make_pair(data, buffer),
                  describe_message("send of", tag, peer, communicator));
  buffer.load(exec, 0, static_cast<Index>(window.extent(0)));
  request.messages_.send(buffer.data(), window.extent(0) * sizeof(T), peer, tag, Request::stamped);
  request.start();
  return request;
}

template <class View>
Request irecv(const ExecSpace& exec, const Communicator& communicator, const View& data, int peer, int tag) {
  using T = typename View::non_const_value_type;
  const auto window = flatten(data);
  DeviceEdge* const edge = communicator.device_edge(tag, peer, communicator.rank());
  const MpiBuffer<T> buffer(edge != nullptr ? MessageAccess::enqueued : mpi_access(communicator), communicator, window);
  Request request(communicator, edge, exec, std::make_pair(data, buffer),
                  describe_message("receive of", tag, peer, communicator));
  buffer.prepare_receive(exec);
  request.messages_.receive(buffer.data(), window.extent(0) * sizeof(T), peer, tag, Request::stamped);
  request.on_done_ = [=] { buffer.store(exec, 0, static_cast<Index>(window.extent(0))); };
  request.start();
  return request;
}

}  // namespace espalier
