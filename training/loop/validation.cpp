// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/validation.hpp"

#include <fmt/format.h>

#include "core/stopwatch.hpp"
#include "io/units.hpp"
#include "training/loop/run_files.hpp"
#include "training/loop/stop_agreement.hpp"

namespace espalier {

bool Validation::is_due(Index step) const {
  const Index interval = run_.config.run.eval_interval;
  return trainer_.has_validation() && (step == run_.config.total_steps() || (interval > 0 && step % interval == 0));
}

void Validation::after_step(const LoopStep& step) {
  if (step.validation_is_due && !run_.stop.is_agreed())
    validate();
}

void Validation::validate() {
  constexpr double seconds_between_lines = 10;
  Stopwatch since_line;
  run_.mesh.world().observers().operation_begins(-1, "validation", -1, -1);
  const std::optional<double> loss = trainer_.evaluate([&](Index done, Index batches) {
    saver_.poll();
    if (since_line.seconds() >= seconds_between_lines) {
      since_line = {};
      run_.note(fmt::format("validation: {} of {}", done, counted(batches, "batch")));
    }
    return run_.stop.agree();
  });
  if (loss)
    saver_.judge(*loss);
  if (!loss || !run_.is_root())
    return;
  run_.files.records().add_validation(trainer_.steps_done(), *loss);
  if (events_.validation)
    events_.validation(trainer_.steps_done(), *loss);
}

}  // namespace espalier
