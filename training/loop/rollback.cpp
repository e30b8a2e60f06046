// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/rollback.hpp"

#include <fmt/format.h>

#include "training/loop/resume.hpp"

namespace espalier {

template <class P>
Index Rollbacks::go_back(const StepReport& report, const RunConfig& config, const std::string& owner,
                         const ProcessMesh& mesh, Trainer<P>& trainer,
                         const std::function<void(const std::string&)>& note) {
  if (++count_ > most_)
    throw Error(ExitCode::numerical,
                {.what = fmt::format("the training diverged: more than {} rollbacks without a new checkpoint", most_),
                 .where = fmt::format("step {}, global samples {} to {}", report.step, report.samples.begin,
                                      report.samples.end - 1),
                 .got = fmt::format("loss {}, gradient norm {}", report.loss, report.gradient_norm),
                 .wanted = "numbers like those of the steps before",
                 .todo = "it is not single samples: lower optimizer.learning_rate, resume from an older checkpoint, or "
                         "look at the step with --replay"});
  std::vector<IndexRange> passed_over = trainer.passed_over();
  passed_over.push_back(report.samples);
  const Path checkpoints = Path(config.run.directory) / "checkpoints";
  TrainOptions options;
  options.new_data = true;  // that of this start, which has been accepted
  const Index step = resume_training(options, checkpoints, owner, config, mesh, trainer, note);
  if (step != trainer.steps_done())
    throw Error(ExitCode::checkpoint, {.what = "there is no checkpoint to go back to",
                                       .where = checkpoints.string(),
                                       .got = "no complete checkpoint",
                                       .wanted = "that which this run saved before its first step, or a later one",
                                       .todo = "run the same command again; it resumes from what there is"});
  trainer.set_passed_over(std::move(passed_over));
  note(fmt::format("passing over global samples {} to {}, from now on", report.samples.begin, report.samples.end - 1));
  return step;
}

#define ESPALIER_INSTANTIATE(P)                                                                                     \
  template Index Rollbacks::go_back<P>(const StepReport&, const RunConfig&, const std::string&, const ProcessMesh&, \
                                       Trainer<P>&, const std::function<void(const std::string&)>&);
ESPALIER_FOR_PRECISIONS(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
