// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/run_saves.hpp"

#include <fmt/format.h>

#include "io/records/run_paths.hpp"
#include "training/loop/resume.hpp"
#include "training/loop/run_files.hpp"
#include "training/loop/stop_agreement.hpp"

namespace espalier {

Index Rollbacks::roll_back(const StepReport& report, const RunConfig& config, const std::string& owner,
                           const ProcessMesh& mesh, Trainer& trainer,
                           const std::function<void(const std::string&)>& note) {
  if (++count_ > max_rollbacks_)
    throw Error(
        ExitCode::numerical,
        {.what = fmt::format("the training diverged: more than {} rollbacks without a new checkpoint", max_rollbacks_),
         .where =
             fmt::format("step {}, global samples {} to {}", report.step, report.samples.begin, report.samples.end - 1),
         .got = fmt::format("loss {}, gradient norm {}", report.loss, report.gradient_norm),
         .wanted = "numbers like those of the steps before",
         .todo = "single samples are not the cause: lower optimizer.learning_rate, resume from an older checkpoint, or "
                 "look at the step with --replay"});
  std::vector<IndexRange> passed_over = trainer.passed_over();
  passed_over.push_back(report.samples);
  const Path checkpoints = Path(config.run.directory) / RunFolder::checkpoints;
  TrainOptions options;
  options.new_data = true;  // that of this launch, which has been accepted
  const Index step = resume_training(options, checkpoints, owner, config, mesh, trainer, note);
  if (step != trainer.steps_done())
    throw Error(ExitCode::checkpoint,
                {.what = "there is no checkpoint to return to",
                 .where = checkpoints.string(),
                 .got = "no complete checkpoint",
                 .wanted = "the checkpoint that this run saved before its first step, or a later one",
                 .todo = "run the same command again; it resumes from what exists"});
  trainer.set_passed_over(std::move(passed_over));
  note(fmt::format("skipping global samples {} to {} from now on", report.samples.begin, report.samples.end - 1));
  return step;
}

void RunSaves::after_step(const LoopStep& step) {
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

void RunSaves::save() {
  run_.files.require_in_place();
  saver_.save();
  saved_step_ = trainer_.steps_done();
  rollbacks_.checkpoint_saved();
}

void RunSaves::save_and_drain() {
  if (saved_step_ != trainer_.steps_done())
    save();
  saver_.drain();
}

Index RunSaves::roll_back(const StepReport& report) {
  saver_.drain();  // it may be the checkpoint to go back to
  const Index step = rollbacks_.roll_back(report, run_.config, run_.id, run_.mesh, trainer_, run_.note);
  saved_step_ = -1;  // the steps after it are taken again
  return step;
}

}  // namespace espalier
