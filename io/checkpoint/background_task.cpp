// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/background_task.hpp"

#include <chrono>

namespace espalier {

BackgroundTask::BackgroundTask(std::function<void(std::stop_token)> work)
    : work_(std::move(work)), result_(work_.get_future()), thread_([this](std::stop_token stop) { work_(stop); }) {}

bool BackgroundTask::is_done() const { return result_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

}  // namespace espalier
