// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>

#include "parallel/collectives/communicator.hpp"
#include "parallel/collectives/message_hook.hpp"

namespace espalier::test {

/// Sleeps up to `max_us` before each message.
class MessageDelays : public MessageHook {
 public:
  MessageDelays(int max_us, std::uint64_t seed) : microseconds_(0, max_us), random_(seed) {}
  void before_send() override { std::this_thread::sleep_for(std::chrono::microseconds(microseconds_(random_))); }

 private:
  std::uniform_int_distribution<int> microseconds_;
  std::mt19937_64 random_;
};

/// From now on messages of the whole job are late, by another sequence on each rank; 0: they are not.
inline void delay_messages(const Communicator& world, int max_us, std::uint64_t seed = 0) {
  const std::uint64_t own_seed = seed * 1000003u + static_cast<std::uint64_t>(world.rank());
  world.state()->context->message_hook = max_us > 0 ? std::make_shared<MessageDelays>(max_us, own_seed) : nullptr;
}

}  // namespace espalier::test
