// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/run_saves.hpp"

#include "training/loop/run_files.hpp"
#include "training/loop/stop_agreement.hpp"

namespace espalier {

template <class P>
void RunSaves<P>::after_step(const LoopStep& step) {
  run_.stop.agree_to(step.report.stop);
  const Index interval = run_.config.checkpoint.interval;
  const bool is_due = step.is_last || run_.stop.is_agreed() || (interval > 0 && step.report.step % interval == 0);
  if (is_due)
    save();
  else
    saver_.poll();
  if (step.is_last || run_.stop.is_agreed())
    saver_.drain();
  else if (is_due)
    run_.stop.agree();  // it may have waited long for the save before
}

template <class P>
void RunSaves<P>::save() {
  run_.files.require_in_place();
  saver_.save();
  saved_step_ = trainer_.steps_done();
  rollbacks_.checkpoint_saved();
}

template <class P>
void RunSaves<P>::save_and_drain() {
  if (saved_step_ != trainer_.steps_done())
    save();
  saver_.drain();
}

template <class P>
Index RunSaves<P>::go_back(const StepReport& report) {
  saver_.drain();  // it may be the checkpoint to go back to
  const Index step = rollbacks_.go_back(report, run_.config, run_.id, run_.mesh, trainer_, run_.note);
  saved_step_ = -1;  // the steps after it are taken again
  return step;
}

#define ESPALIER_INSTANTIATE(P) template class RunSaves<P>;
ESPALIER_FOR_PRECISIONS(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
