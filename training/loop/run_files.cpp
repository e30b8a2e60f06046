// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/run_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/checkpoint/set_aside.hpp"
#include "io/pack/json_text.hpp"
#include "io/records/run_details.hpp"
#include "io/records/run_progress.hpp"
#include "parallel/collectives/agreement.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/texts.hpp"
#include "training/loop/restarts.hpp"

namespace espalier {

RunFiles::RunFiles(const RunConfig& config, const TrainOptions& options, const Communicator& world, Note note)
    : config_(config),
      options_(options),
      world_(world),
      note_(std::move(note)),
      is_root_(world.rank() == 0),
      path_(config.run.directory) {}

std::string RunFiles::take_directory() {
  attempt_together(world_, ExitCode::write, [&] {
    if (!is_root_)
      return;
    directory_.emplace(path_);
    if (const auto& lost = directory_->lost())
      note_(*lost);
    if (const auto& unfinished = directory_->unfinished()) {
      note_(unfinished->text);
      if (const std::string progress = progress_in(path_, true); !progress.empty())
        note_(progress);
    } else if (const auto& previous = directory_->previous(); previous && previous->state == RunState::failed) {
      note_("the previous launch failed: " + previous->cause);
    }
  });
  return broadcast_text(world_, is_root_ ? directory_->id() : std::string(), 0);
}

void RunFiles::begin_launch(Index resumed_step, const PredictionCheck& prediction) {
  attempt_together(world_, ExitCode::write, [&] {
    if (is_root_)
      begin_launch_on_root(resumed_step, prediction);
  });
  has_begun_launch_ = true;
}

void RunFiles::begin_launch_on_root(Index resumed_step, const PredictionCheck& prediction) {
  const Restarts restarts =
      options_.retry ? Restarts{resumed_step} : count_restarts(directory_->previous(), resumed_step);
  require_progress(restarts, path_, directory_->previous());
  keeps_figures_ = resumed_step >= config_.total_steps() && std::filesystem::exists(path_ / RunFile::config);
  nlohmann::json details = details_of(restarts);
  if (keeps_figures_) {
    directory_->begin_launch();
  } else {
    begin_launch_with_history(*directory_, to_toml(config_), resumed_step + 1);
    write_file_atomically(path_ / RunFile::prediction, json_text(to_json(prediction.record()), 2) + "\n");
    details["stragglers"] = nlohmann::json::array();
    details.update(details_of_steps_done(resumed_step));
  }
  directory_->update(details);
  remove_progress_files(directory_->state());
  if (resumed_step == 0)
    set_aside_records();
  if (world_.size() > 1)
    make_directories(path_ / RunFolder::ranks);
  for (const Path& path : set_aside_checkpoints_after(checkpoints(), resumed_step, directory_->id()))
    note_(fmt::format("set aside {}: this run resumes from an older step", path.string()));
}

// Of a launch that saved no checkpoint: this one takes its steps again.
void RunFiles::set_aside_records() const {
  std::vector<std::string> kept;
  for (const char* const name :
       {RunFile::metrics, RunFile::samples, RunFolder::ranks, RunFolder::trace, RunFolder::tensorboard})
    if (const Path path = set_aside_if_any(path_ / name, Path(name).extension().string()); !path.empty())
      kept.push_back(path.filename().string());
  if (!kept.empty())
    note_(fmt::format("the records of the earlier launch are kept as {}", fmt::join(kept, ", ")));
}

bool RunFiles::was_completed() const {
  const bool here = is_root_ && directory_->previous() && directory_->previous()->state == RunState::completed;
  return all_reduce(world_, Index{here ? 1 : 0}, ReduceOp::max) > 0;
}

void RunFiles::require_in_place() {
  try {
    attempt_together(world_, ExitCode::write, [&] {
      if (is_root_)
        directory_->require_in_place();
    });
  } catch (const Error&) {
    has_begun_launch_ = false;  // what lies at its path now is not ours to write
    throw;
  }
}

void RunFiles::update(const nlohmann::json& details) {
  if (is_root_)
    directory_->update(details);
}

void RunFiles::record_failure(const Error& error) const {
  if (has_begun_launch_)  // else run.json is still that of the launch before
    espalier::record_failure(path_, error.what(), error.code());
}

void RunFiles::end_launch(TrainOutcome outcome, const std::string& cause) {
  if (!is_root_)
    return;
  if (outcome == TrainOutcome::completed)
    directory_->finish(RunState::completed);
  else
    directory_->finish(RunState::preempted, cause);
}

void RunFiles::open_records(Index step) {
  if (!is_root_)
    return;
  records_.reset();  // the table is written anew
  records_.emplace(config_, path_, step);
}

}  // namespace espalier
