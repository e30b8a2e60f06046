// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "parallel/communicator.hpp"

namespace espalier {

/// Message tags, unlike for unlike purposes. Collectives have tags of their own, so that ranks that disagree about
/// which collective comes next run into the deadline instead of taking one's data for the other's.
namespace tags {
inline constexpr int activations = 1;  ///< pipeline, forward
inline constexpr int gradients = 2;    ///< pipeline, backward
inline constexpr int data = 3;
inline constexpr int all_reduce_scatter = 16384;
inline constexpr int all_reduce_gather = 16385;
inline constexpr int all_gather = 16386;
inline constexpr int reduce_scatter = 16387;
inline constexpr int broadcast = 16388;
inline constexpr int barrier = 16389;
inline constexpr int failure = 16390;
inline constexpr int gather_texts = 16391;
inline constexpr int largest = 32767;  ///< the MPI standard promises no larger one
}  // namespace tags

/// Sends and receives that are waited for together. Every message of Espalier passes through here: this is the one
/// place that counts bytes, cuts long messages, delays them in tests, checks lengths and watches the deadline.
/// The caller keeps the buffers alive until test() or wait() says that all is done.
class MessageSet {
 public:
  explicit MessageSet(const Communicator& communicator) : state_(communicator.state()) {}
  MessageSet(MessageSet&&) = default;
  MessageSet& operator=(MessageSet&&) = delete;
  MessageSet(const MessageSet&) = delete;
  MessageSet& operator=(const MessageSet&) = delete;
  ~MessageSet();

  /// Messages of no bytes are left out on both sides.
  void send(const void* data, std::size_t bytes, int peer, int tag);
  void receive(void* data, std::size_t bytes, int peer, int tag);

  /// Advances the messages; true when all are complete, after which the set is empty and can be used again.
  /// @throws Error (ExitCode::communication) on a failed message or one of another length than announced.
  [[nodiscard]] bool test();

  /// @throws Error (ExitCode::communication) as test(), and when the deadline passes: `what`, how long, which peers.
  void wait(const std::string& what);

  /// @throws Error (ExitCode::communication): the deadline has passed.
  [[noreturn]] void give_up(const std::string& what, double seconds) const;

  bool empty() const { return requests_.empty(); }
  const WaitSettings& wait_settings() const { return state_->context->wait; }

 private:
  struct Message {
    int peer;
    int bytes;
    bool incoming;
  };
  std::string describe(int peer) const;
  void require_success(int code);

  std::shared_ptr<impl::CommunicatorState> state_;
  std::vector<MPI_Request> requests_;
  std::vector<Message> messages_;     // by request
  std::vector<MPI_Status> statuses_;  // kept for its capacity
};

}  // namespace espalier
