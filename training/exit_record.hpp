// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/file.hpp"

namespace espalier {

/// While it lives, a call of std::exit() on this rank (of a library, of a user's callback) writes into run.json that
/// the run has failed, before the job ends for it (watch_for_exit() in parallel/failure.hpp). One at a time.
class ExitRecord {
 public:
  /// @param run the directory of a run that has signed on.
  explicit ExitRecord(Path run);
  ~ExitRecord();
  ExitRecord(const ExitRecord&) = delete;
  ExitRecord& operator=(const ExitRecord&) = delete;

 private:
  Path run_;
};

}  // namespace espalier
