// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace espalier {

/// Intercepts messages between a rank and MPI, to delay them in tests and rehearsals. A training run has none.
class MessageHook {
 public:
  struct Message {
    std::string_view communicator;  ///< its name
    int from = 0;                   ///< ranks of the world
    int to = 0;
    std::size_t bytes = 0;
    double sent_at = 0;  ///< seconds of the job's clock
  };

  virtual ~MessageHook() = default;

  /// Called before a message leaves.
  virtual void before_send() {}

  /// Whether arrives_at() is called: then every message has a timestamp. The same on all ranks.
  virtual bool sets_arrivals() const { return false; }

  /// When the receiver may have the message, by the job's clock; it waits for MPI, too.
  virtual double arrives_at(const Message& message) { return message.sent_at; }
};

}  // namespace espalier
