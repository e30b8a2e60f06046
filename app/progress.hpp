// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>

#include "app/print.hpp"

namespace espalier {

/// What goes on, on standard error, where it cannot mix with --json: a line at the start, and on a terminal one below
/// it that is drawn over itself. On rank 0.
class Progress {
 public:
  Progress(const std::string& title, bool is_root) : is_drawn_(is_root && isatty(STDERR_FILENO) == 1) {
    if (is_root)
      print_note("{}\n", title);
  }
  ~Progress() { now(""); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void now(const std::string& text) const {
    if (is_drawn_)
      std::fputs(("\r\033[K" + text).c_str(), stderr);
  }

 private:
  bool is_drawn_;
};

}  // namespace espalier
