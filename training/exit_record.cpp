// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/exit_record.hpp"

#include <cstdlib>
#include <utility>

#include "io/run_directory.hpp"

namespace espalier {
namespace {

const Path* watched = nullptr;

void record_exit() {
  if (watched != nullptr)
    sign_off_failed(*watched, "a rank left before the end of the job, by exit()");
}

}  // namespace

ExitRecord::ExitRecord(Path run) : run_(std::move(run)) {
  // Handlers run last in, first out: this one before that of the job, which does not return.
  [[maybe_unused]] static const int registered = std::atexit(record_exit);
  watched = &run_;
}

ExitRecord::~ExitRecord() { watched = nullptr; }

}  // namespace espalier
