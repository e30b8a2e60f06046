// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "io/units.hpp"
#include "training/loop/train_loop.hpp"

namespace espalier {

/// "412 ms", "41 s", "5m12", "3h07", "2d04h": short, for a column.
std::string duration_text(double seconds);

/// One line of at most 120 columns about a step.
std::string step_line(const StepReport& report, const TrainProgress& progress);

/// A progress bar with what stands beside it, in less than `columns` columns: a terminal breaks a line that fills them.
std::string progress_bar(const StepReport& report, const TrainProgress& progress, int columns);

/// Writes step lines, and on a terminal a progress bar below them that is drawn over itself. A file sees lines only.
/// A full disk under that file is an Error (write).
/// ESPALIER_PROGRESS = bar | lines overrides what standard output looks like (behind mpiexec it is a pipe).
class Console {
 public:
  explicit Console(Index log_interval);
  void note(const std::string& text);
  void step(const StepReport& report, const TrainProgress& progress);
  void validation(Index step, Index total_steps, double loss);

 private:
  void write(const std::string& text);

  Index log_interval_;
  bool draws_bar_;
  bool bar_is_shown_ = false;
};

}  // namespace espalier
