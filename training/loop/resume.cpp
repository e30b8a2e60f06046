// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/resume.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/ops/matmul_library.hpp"
#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/records/run_directory.hpp"
#include "io/records/run_paths.hpp"
#include "io/units.hpp"
#include "parallel/collectives/agreement.hpp"
#include "parallel/collectives/texts.hpp"
#include "training/checkpoint/next_loss.hpp"
#include "training/checkpoint/training_state.hpp"
#include "training/config/data_files.hpp"
#include "training/config/run_layout.hpp"
#include "training/config/stored_config.hpp"
#include "training/pretrained/hugging_face_init.hpp"
#include "training/step/matmul_choices.hpp"

namespace espalier {
namespace {

using Note = std::function<void(const std::string&)>;

bool names_a_checkpoint(const std::string& resume) { return resume != "auto" && resume != "never"; }

std::vector<Path> named_checkpoints(const std::string& resume, const Note& note) {
  std::error_code ignored;
  if (!std::filesystem::exists(resume, ignored))
    throw Error(ExitCode::checkpoint, {.what = "--resume names neither a checkpoint nor a run",
                                       .got = resume,
                                       .wanted = "auto, never, a run directory, or RUN/checkpoints/step-XXXXXXXX",
                                       .todo = "check the path; without --resume a run resumes automatically"});
  return complete_checkpoints(resume, note);
}

// The run's complete checkpoints, newest first. What is damaged is there all the same: only saves that were never
// finished, and what is of other runs, count as nothing.
std::vector<Path> usable_checkpoints(const Path& checkpoints, const std::string& owner, bool may_resume,
                                     const Note& note) {
  std::vector<Path> complete;
  std::string damaged;
  Index of_others = 0;
  for (const CheckpointEntry& entry : find_checkpoints(checkpoints)) {
    if (may_be_of_another(entry, owner)) {
      ++of_others;
      continue;
    }
    if (entry.complete)
      complete.push_back(entry.path);
    else if (!entry.unfinished)
      damaged += fmt::format("\n  {}: {}", entry.path.string(), entry.reason);
    if (!entry.complete && may_resume)
      note(fmt::format("passing over {}: {}", entry.path.string(), entry.reason));
  }
  if (of_others > 0)
    note(fmt::format("skipping {} of other runs in {}: --resume DIR resumes from one", counted(of_others, "checkpoint"),
                     checkpoints.string()));
  if (!may_resume && !(complete.empty() && damaged.empty()))
    throw Error(
        ExitCode::usage,
        {.what = "the run directory holds checkpoints, and --resume never would write over them",
         .where = checkpoints.string(),
         .got = complete.empty() ? "damaged or incomplete checkpoints:" + damaged
                                 : fmt::format("{}, the newest {}",
                                               counted(static_cast<Index>(complete.size()), "complete checkpoint"),
                                               complete.front().string()),
         .wanted = "an empty run directory",
         .todo = complete.empty() ? "set run.directory to another directory"
                                  : "resume (leave out --resume), or set run.directory to another directory"});
  if (complete.empty() && !damaged.empty())
    throw Error(ExitCode::checkpoint,
                {.what = "none of the run's checkpoints is complete:" + damaged,
                 .where = checkpoints.string(),
                 .wanted = "a complete checkpoint; the run does not start over by itself",
                 .todo = "restore the damaged files from a copy, or start over in another run.directory"});
  return complete;
}

// What rank 0 finds, on all ranks; where it throws, all ranks do.
std::vector<Path> found_by_root(const Communicator& world, const std::function<std::vector<Path>()>& find) {
  std::vector<std::string> found;
  attempt_together(world, ExitCode::checkpoint, [&] {
    if (world.rank() == 0)
      for (const Path& path : find())
        found.push_back(path.string());
  });
  found = broadcast_texts(world, found, 0);
  return {found.begin(), found.end()};
}

void note_changes(const std::vector<ConfigDifference>& changes, const Note& note) {
  for (const ConfigDifference& change : changes)
    note(fmt::format("config changed: {} = {} (was {})", change.key, change.new_value, change.old_value));
}

struct Loaded {
  Path path;
  StoredState state;
  bool new_data = false;  // its token files were others, or may have been
};

// Earlier programs saved weights whose loss is not finite, too.
void require_sound_weights(const Path& path, Trainer& trainer) {
  try {
    require_finite_loss(trainer);
  } catch (const Error& error) {
    if (error.code() != ExitCode::numerical)
      throw;
    throw Error(ExitCode::checkpoint, {.what = "the weights of a checkpoint give no finite loss",
                                       .where = path.string(),
                                       .got = error.report().got,
                                       .wanted = error.report().wanted,
                                       .todo = "use an older checkpoint"});
  }
}

// What the token files hold counts, not where they lie. @returns what has changed and may, by --new-data
std::string require_same_data(const CheckpointReader& checkpoint, const nlohmann::json& contents, bool new_data) {
  std::string changed = contents.is_null() ? "" : changed_data_files(checkpoint, contents);
  if (!changed.empty() && !new_data)
    throw Error(ExitCode::data, {.what = "the token files are not those of the checkpoint:" + changed,
                                 .where = checkpoint.path().string(),
                                 .wanted = "the same files in the same order, at any path",
                                 .todo = "restore the files, or resume with the new ones: --new-data"});
  return changed;
}

// The same number is another text to another tokenizer.
void require_same_tokenizer(const Path& path, const std::string& stored, const Trainer& trainer) {
  if (stored.empty() || trainer.tokenizer().empty() || stored == trainer.tokenizer())
    return;
  throw Error(ExitCode::data, {.what = "the token files were made with another tokenizer than those of the checkpoint",
                               .where = path.string(),
                               .got = "token files of " + trainer.tokenizer(),
                               .wanted = stored,
                               .todo = "pack the texts with the tokenizer of the checkpoint, or train from the start"});
}

// All ranks load, or all throw the reason of the first that could not.
Loaded load(const Path& path, const TrainOptions& options, const RunConfig& config, const ProcessMesh& mesh,
            Trainer& trainer, const std::vector<std::string>& tensors, const Note& note) {
  std::optional<CheckpointReader> checkpoint;
  StoredState state;
  std::string changed_data;
  bool by_content = false;
  std::vector<ConfigDifference> differences;
  attempt_together(mesh.world(), ExitCode::checkpoint, [&] {
    checkpoint.emplace(path);
    state = read_state(*checkpoint);
    by_content = !trainer.data_files().is_null() && knows_data_files(*checkpoint);
    differences = require_same_run(*checkpoint, config,
                                   options.new_data ? DataPaths::any
                                   : by_content     ? DataPaths::as_many
                                                    : DataPaths::same_files);
    changed_data = require_same_data(*checkpoint, trainer.data_files(), options.new_data);
    require_same_tokenizer(path, state.tokenizer, trainer);
    restore_matmul_choices(state.matmul_kernels, mesh.world().rank(), note);
    load_training_state(*checkpoint, trainer, tensors);
  });
  restore_matmul_library(state, config, note);
  if (config.checkpoint.check_loss && !state.next_loss)
    require_sound_weights(path, trainer);
  note_changes(differences, note);
  if (!changed_data.empty())
    note("the token files are not those of the checkpoint (--new-data):" + changed_data);
  note(fmt::format("resumed from {} (step {}, written by {}) on {}", path.string(), trainer.steps_done(),
                   checkpoint->info().layout.text, make_run_layout(config, mesh.world().size()).short_text()));
  const bool other_order = std::any_of(differences.begin(), differences.end(), [](const ConfigDifference& difference) {
    return difference.key.starts_with("data.") && !names_files(difference.key) && !may_change_on_resume(difference.key);
  });
  return {path, std::move(state), options.new_data && (other_order || !(by_content && changed_data.empty()))};
}

// The newest of the run's checkpoints whose data are sound.
Loaded load_newest(const std::vector<Path>& paths, const TrainOptions& options, const RunConfig& config,
                   const ProcessMesh& mesh, Trainer& trainer, const std::vector<std::string>& tensors,
                   const Note& note) {
  for (const Path& path : paths) {
    try {
      return load(path, options, config, mesh, trainer, tensors, note);
    } catch (const Error& error) {
      if (error.code() != ExitCode::checkpoint)
        throw;
      note(fmt::format("passing over {}: {}", path.string(), error.what()));
    }
  }
  throw Error(ExitCode::checkpoint,
              {.what = "none of the run's checkpoints can be used",
               .where = paths.front().parent_path().string(),
               .got = fmt::format("{} damaged or foreign checkpoints (named above)", paths.size()),
               .wanted = "a complete checkpoint of this model",
               .todo = "restore one from a backup, or start over in another run.directory"});
}

// A run that completed, or stopped on request, or came past its second save, has saved a checkpoint: where it is gone,
// so is what the run has learned. The save behind the training may be unfinished until the second begins.
void require_nothing_lost(const RunConfig& config, const EarlierRun& earlier) {
  const Path run = config.run.directory;
  const std::optional<RunRecord> record = read_run_record(run);
  const bool ended_saved = record && (record->state == RunState::completed || record->state == RunState::preempted);
  const bool has_saved = earlier.checkpoint_interval > 0 && earlier.steps > 2 * earlier.checkpoint_interval;
  if (!ended_saved && !has_saved)
    return;
  throw Error(
      ExitCode::checkpoint,
      {.what = record && record->state == RunState::completed ? "this run is completed, but its checkpoints are gone"
                                                              : "this run has saved a checkpoint, but it is gone",
       .where = (run / RunFolder::checkpoints).string(),
       .got = ended_saved ? fmt::format("no checkpoint; run.json says \"{}\"", to_string(record->state))
                          : fmt::format("no checkpoint; metrics.jsonl has {}, with checkpoint.interval = {}",
                                        counted(earlier.steps, "step"), earlier.checkpoint_interval),
       .wanted = "a checkpoint; the run does not start over by itself",
       .todo = "restore the checkpoint, or start over: in another run.directory, or here with --resume never, "
               "which renames the records of this run"});
}

// A run that left no checkpoint gives its place to the same run, or to another on request.
void require_own_directory(const TrainOptions& options, const RunConfig& config, const Note& note) {
  const EarlierRun earlier = earlier_run_in(config.run.directory, config);
  const bool begins_here = !names_a_checkpoint(options.resume);
  if (!earlier.refused.empty() && options.resume != "never")
    throw Error(ExitCode::usage,
                {.what = "the run directory belongs to a run with another config:" + earlier.refused,
                 .where = config.run.directory,
                 .got = fmt::format("its metrics, of {}", counted(earlier.steps, "step")),
                 .wanted = "a new directory, or that of this run",
                 .todo = fmt::format("set run.directory to another one{}",
                                     begins_here ? "; --resume never starts here and replaces that run" : "")});
  if (options.resume == "auto")
    require_nothing_lost(config, earlier);
  if (begins_here && earlier.steps > 0) {
    note(fmt::format("no checkpoint to resume from after {}: starts over", counted(earlier.steps, "step")));
    note_changes(earlier.changes, note);
  }
}

// Is it one of the run's own?
bool is_own(const Path& checkpoints, const std::string& owner, const Path& checkpoint) {
  std::error_code missing;
  if (!std::filesystem::equivalent(checkpoints, checkpoint.parent_path(), missing))
    return false;
  const std::string& theirs = CheckpointReader(checkpoint).info().owner;
  return theirs.empty() || theirs == owner;
}

// A checkpoint whose bytes are right and whose loss is not would not get better with another one: no passing over.
Index checked(const Loaded& loaded, const RunConfig& config, Trainer& trainer, const Note& note) {
  if (config.checkpoint.check_loss && !loaded.new_data)
    check_next_loss(loaded.state.next_loss, loaded.path.string(), trainer, note);
  return trainer.steps_done();
}

}  // namespace

void restore_matmul_library(const StoredState& state, const RunConfig& config, const Note& note) {
  const std::string& stored = state.matmul;
  if (config.run.matmul != "auto" || stored.empty() || stored == to_string(matmul_library()))
    return;
  try {
    const MatmulLibrary preferred = matmul_library();
    set_matmul_library(parse_matmul_library(stored));
    note(fmt::format(
        "matmuls use {} as before the checkpoint, for the same bits; this machine prefers {} (run.matmul={})", stored,
        to_string(preferred), to_string(preferred)));
  } catch (const Error&) {
    note(
        fmt::format("the checkpoint was trained with the GEMM library {}, which this build does not have: results may "
                    "differ by rounding",
                    stored));
  }
}

Index resume_training(const TrainOptions& options, const Path& checkpoints, const std::string& owner,
                      const RunConfig& config, const ProcessMesh& mesh, Trainer& trainer, const Note& note) {
  if (names_a_checkpoint(options.resume) && !options.init_from.empty())
    throw Error(ExitCode::usage, {.what = "--resume and --init-from cannot be used together",
                                  .got = fmt::format("--resume {} --init-from {}", options.resume, options.init_from),
                                  .wanted = "one of them",
                                  .todo = "--resume continues a run; --init-from starts a new run from weights"});
  const std::vector<std::string> tensors = model_tensors(mesh.world(), trainer.parameters());
  if (names_a_checkpoint(options.resume)) {
    const auto named = found_by_root(mesh.world(), [&] {
      std::vector<Path> paths = named_checkpoints(options.resume, note);
      if (!is_own(checkpoints, owner, paths.front()))
        require_own_directory(options, config, note);
      return paths;
    });
    Loaded loaded;
    use_newest(named, note,
               [&](const Path& path) { loaded = load(path, options, config, mesh, trainer, tensors, note); });
    return checked(loaded, config, trainer, note);
  }
  const std::vector<Path> own = found_by_root(
      mesh.world(), [&] { return usable_checkpoints(checkpoints, owner, options.resume != "never", note); });
  if (!own.empty()) {
    if (!options.init_from.empty())
      note(fmt::format("--init-from {} was for the first launch: the run resumes from its own checkpoint",
                       options.init_from));
    return checked(load_newest(own, options, config, mesh, trainer, tensors, note), config, trainer, note);
  }
  attempt_together(mesh.world(), ExitCode::usage, [&] {
    if (mesh.world().rank() == 0)
      require_own_directory(options, config, note);
  });
  if (!options.init_from.empty()) {
    const auto donors = found_by_root(mesh.world(), [&] {
      return kind_of_directory(options.init_from) == DirectoryKind::hugging_face
                 ? std::vector<Path>()
                 : complete_checkpoints(options.init_from, note);
    });
    if (donors.empty()) {
      load_hugging_face_weights(options.init_from, config, mesh.world(), trainer);
      note(fmt::format("weights from {} (Hugging Face)", options.init_from));
      return 0;
    }
    use_newest(donors, note, [&](const Path& donor) {
      attempt_together(mesh.world(), ExitCode::checkpoint, [&] {
        const CheckpointReader checkpoint(donor);
        require_same_model(checkpoint, config);
        require_same_tokenizer(donor, read_state(checkpoint).tokenizer, trainer);
        load_weights(checkpoint, trainer, tensors);
      });
      note(fmt::format("weights from {}", donor.string()));
    });
  }
  return 0;
}

Error with_resume_hint(const Error& error, const Path& checkpoints, const std::string& owner) {
  std::vector<Index> steps;
  try {
    for (const CheckpointEntry& entry : find_checkpoints(checkpoints))
      if (entry.complete && !may_be_of_another(entry, owner))
        steps.push_back(entry.step);
  } catch (const Error&) {
    return error;  // that the directory cannot be read is not why the run ends
  }
  ErrorReport report = error.report();
  if (steps.empty())
    report.todo += "; there is no checkpoint to resume from yet, so the next launch starts over";
  else if (steps.size() == 1)
    report.todo += fmt::format("; there is a checkpoint of step {}: the same command resumes from it", steps.front());
  else
    report.todo += fmt::format(
        "; there are checkpoints of steps {}: the same command resumes from the newest, with --resume {} from an older "
        "one",
        fmt::join(steps, ", "), (checkpoints / "step-XXXXXXXX").string());
  return {error.code(), report};
}

}  // namespace espalier
