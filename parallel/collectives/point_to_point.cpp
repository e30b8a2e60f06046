// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives/point_to_point.hpp"

#include <fmt/format.h>

namespace espalier {

Request::~Request() {
  // MPI may still read a send's buffer, and nobody will say when it is done: leave it to the end of the process.
  if (!messages_.empty())
    new std::any(std::move(buffers_));
}

void Request::start() {
  if (edge_ == nullptr)
    return;
  messages_.wait(what_);  // until it is enqueued
  end_.record(edge_->stream);
}

bool Request::test() {
  if (!messages_.test() || !end_.query())
    return false;
  finish();
  return true;
}

void Request::wait(const std::function<void()>& meanwhile) {
  messages_.wait(what_, meanwhile);
  end_.block(exec_);
  finish();
}

void Request::finish() {
  if (on_done_)
    on_done_();
  on_done_ = nullptr;
  buffers_.reset();
}

std::string describe_message(const char* direction, int tag, int peer, const Communicator& communicator) {
  const std::string what = tag == tags::activations ? "activations"
                           : tag == tags::gradients ? "gradients"
                           : tag == tags::data      ? "data"
                           : tag == tags::ready     ? "readiness"
                                                    : fmt::format("a message with tag {}", tag);
  return fmt::format("the {} {} with rank {} of {}", direction, what, peer, communicator.name());
}

}  // namespace espalier
