// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <stop_token>
#include <thread>

namespace espalier {

/// Work on a thread of its own. Asked to stop and waited for when it goes out of scope.
class BackgroundTask {
 public:
  explicit BackgroundTask(std::function<void(std::stop_token)> work);

  bool is_done() const;

  /// Until the end, but no longer than this.
  void wait_for(std::chrono::milliseconds most) const { result_.wait_for(most); }

  /// Waits for the end, once. @throws what the work threw.
  void get() { result_.get(); }

 private:
  std::packaged_task<void(std::stop_token)> work_;
  std::future<void> result_;
  std::jthread thread_;  // last: joined before the others go
};

}  // namespace espalier
