// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/train_loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/stopwatch.hpp"
#include "io/checkpoint_directory.hpp"
#include "io/metrics.hpp"
#include "io/run_directory.hpp"
#include "io/run_positions.hpp"
#include "io/units.hpp"
#include "models/cost.hpp"
#include "parallel/agreement.hpp"
#include "parallel/collectives.hpp"
#include "parallel/failure.hpp"
#include "parallel/texts.hpp"
#include "planning/report.hpp"
#include "training/check_token_files.hpp"
#include "training/checkpoint_saver.hpp"
#include "training/gemm_rate.hpp"
#include "training/incidents.hpp"
#include "training/metrics_line.hpp"
#include "training/predict_memory.hpp"
#include "training/prediction_check.hpp"
#include "training/rank_records.hpp"
#include "training/require_memory.hpp"
#include "training/restarts.hpp"
#include "training/resume.hpp"
#include "training/rollback.hpp"
#include "training/run_facts.hpp"
#include "training/same_start.hpp"
#include "training/stragglers.hpp"
#include "training/training_state.hpp"

namespace espalier {
namespace {

// Which limit ends the run: "run.steps = 100".
std::string limit_text(const RunConfig& config) {
  const Index total = config.total_steps();
  return config.run.steps == total ? fmt::format("run.steps = {}", total)
                                   : fmt::format("run.tokens = {} is reached after {}", config.run.tokens, total);
}

// What only rank 0 has: the run's directory and its metrics.
struct RunFiles {
  std::optional<RunDirectory> directory;
  std::optional<MetricsWriter> metrics;
};

template <class T>
class Loop {
 public:
  Loop(const RunConfig& config, const TrainOptions& options, const RunLayout& layout, const ProcessMesh& mesh,
       const TrainEvents& events)
      : config_(config),
        options_(options),
        layout_(layout),
        mesh_(mesh),
        events_(events),
        is_root_(mesh.world().rank() == 0),
        rollbacks_(config.stability.max_rollbacks) {}

  TrainOutcome run(const std::function<std::string()>& stop_request) {
    require_same_start(mesh_.world(), to_toml(config_) + fmt::format("[command]\nresume = {}\ninit_from = {}\n",
                                                                     options_.resume, options_.init_from));
    require_memory(config_, layout_, memory_of_a_rank(mesh_.world()));
    const auto tell = [&](const std::string& text) { note(text); };
    const nlohmann::json data_files = check_token_files(config_, mesh_.world(), tell);
    // What refuses a start comes before it signs on.
    const std::string run_id = open_directory();
    agree_on_libraries<T>(config_, mesh_.world());
    const auto measure = [&] { gemm_rate_ = measure_gemm_rate<T>(mesh_.world()); };
    if (exec_is_host)
      MemoryLedger::instance().record_library_scratch_of(measure);
    else  // what becomes resident is the host's memory, not the accelerator's
      measure();
    prediction_.emplace(config_, layout_, mesh_, gemm_rate_);
    MemoryLedger::instance().reset_peak();  // of the training itself
    Trainer<T> trainer(ExecSpace(), config_, layout_, mesh_);
    trainer.set_data_files(data_files);
    CheckpointSaver<T> saver(config_, run_path() / "checkpoints", mesh_, trainer, tell, run_id);
    const Index resumed_step = resume_training(options_, run_path() / "checkpoints", config_, mesh_, trainer, tell);
    note(products_text(gemm_rate_, mesh_.world().size()));
    if (!exec_is_host)
      note("attention by " + describe_attention<T>(attention_shape(config_, layout_)));
    if (const std::size_t bytes = mesh_.world().context().link_bytes(); bytes > 0)
      note(fmt::format("NCCL has taken about {} of the GPU, which no category counts", bytes_text(bytes)));
    try {
      return train_in_directory(trainer, saver, resumed_step, stop_request);
    } catch (const Error& error) {
      if (error.code() == ExitCode::write && is_root_ && signed_on_)
        files_.directory->require_in_place();  // else that is the cause, of a save behind the training
      if (error.code() != ExitCode::numerical)
        throw with_positions(error);
      publish_if_possible(saver);
      throw with_positions(with_way_back(error, run_path() / "checkpoints"));
    } catch (const std::exception& exception) {
      const Error error = error_from(exception, ExitCode::defect);
      if (signed_on_)
        sign_off_failed(run_path(), error.what(), error.code());
      throw;
    }
  }

 private:
  TrainOutcome train_in_directory(Trainer<T>& trainer, CheckpointSaver<T>& saver, Index resumed_step,
                                  const std::function<std::string()>& stop_request) {
    sign_on(resumed_step);
    signed_on_ = true;
    const AtEarlyExit sign_off(
        [path = run_path()](const std::string& report) { sign_off_failed(path, report, ExitCode::communication); });
    const nlohmann::json facts = run_facts(config_, mesh_, options_.program, gemm_rate_, resumed_step + 1);
    if (is_root_ && !keeps_figures_)
      files_.directory->update({{"facts", facts}});
    if (is_root_)
      files_.metrics.emplace(files_.directory->metrics(), resumed_step);
    RankRecords records(config_, mesh_, resumed_step);
    trainer.observe_anomalies([&](const StepReport& report) { record_anomaly(trainer, saver, report); });
    if (config_.stability.on_spike == "rollback" && (resumed_step == 0 || options_.resume != "auto"))
      save(saver);  // there is none of this run yet that it could go back to
    StragglerWatch stragglers(config_.stability, mesh_);
    if (resumed_step >= config_.total_steps())
      note(fmt::format("nothing left to do: {} done, and {}", counted(resumed_step, "step"), limit_text(config_)));
    const TrainOutcome outcome = steps(trainer, saver, records, stragglers, stop_request);
    finish(outcome, trainer.steps_done());
    records.sign_off();
    return outcome;
  }

  // All ranks have ended in the same step: the save behind them can be agreed upon. What ended them stays the cause.
  static void publish_if_possible(CheckpointSaver<T>& saver) {
    try {
      saver.drain();
    } catch (const std::exception&) {  // told by the next start: its save was not finished
    }
  }

  Path run_path() const { return config_.run.directory; }

  void note(const std::string& text) const {
    if (is_root_ && events_.note)
      events_.note(text);
  }

  // A failed or late message is told together with where every rank was: the one that is silent is among them.
  Error with_positions(const Error& error) const {
    ErrorReport report = error.report();
    const std::string positions =
        error.code() == ExitCode::communication ? positions_in(run_path(), false) : std::string();
    if (!positions.empty())
      report.got += "\n" + positions;
    Error whole(error.code(), report);
    if (signed_on_)  // else run.json is still that of the start before
      sign_off_failed(run_path(), whole.what(), error.code());
    return whole;
  }

  // On all ranks the id of the run.
  std::string open_directory() {
    attempt_together(mesh_.world(), ExitCode::write, [&] {
      if (!is_root_)
        return;
      files_.directory.emplace(run_path());
      if (const auto& lost = files_.directory->lost())
        note(*lost);
      if (const auto& unfinished = files_.directory->unfinished()) {
        note(unfinished->text);
        if (const std::string positions = positions_in(run_path(), true); !positions.empty())
          note(positions);
      } else if (const auto& previous = files_.directory->previous(); previous && previous->state == "failed") {
        note("the previous start failed: " + previous->cause);
      }
    });
    return broadcast_text(mesh_.world(), is_root_ ? files_.directory->id() : std::string(), 0);
  }

  void sign_on(Index resumed_step) {
    attempt_together(mesh_.world(), ExitCode::write, [&] {
      if (!is_root_)
        return;
      const Restarts restarts =
          options_.retry ? Restarts{resumed_step} : count_restarts(files_.directory->previous(), resumed_step);
      require_progress(restarts, run_path(), files_.directory->previous());
      keeps_figures_ = resumed_step >= config_.total_steps() && std::filesystem::exists(run_path() / "config.toml");
      nlohmann::json details = to_json(restarts);
      if (keeps_figures_) {
        files_.directory->sign_on();
      } else {
        sign_on_with_history(*files_.directory, to_toml(config_), resumed_step + 1);
        write_file_atomically(run_path() / "prediction.json", prediction_->json());
        details.update({{"stragglers", nlohmann::json::array()}, {"steps_done", resumed_step}});
      }
      files_.directory->update(details);
      remove_positions(files_.directory->state());
      if (resumed_step == 0 && set_aside_metrics(files_.directory->metrics()))
        note("the metrics of the earlier start are kept as metrics.abandoned.jsonl");
      if (mesh_.world().size() > 1)
        make_directories(run_path() / "ranks");
      for (const Path& path : set_aside_checkpoints_after(files_.directory->checkpoints(), resumed_step))
        note(fmt::format("set aside {}: this run goes on from an older step", path.string()));
    });
  }

  bool must_stop(Index steps_of_this_start, const std::function<std::string()>& stop_request) {
    const std::string request = stop_request ? stop_request() : std::string();
    if (!request.empty())
      cause_ = mesh_.world().size() == 1
                   ? "asked to stop by " + request
                   : fmt::format("rank {} was asked to stop by {}", mesh_.world().rank(), request);
    else if (options_.stop_after > 0 && steps_of_this_start + 1 >= options_.stop_after)
      cause_ = fmt::format("stopped after {}", counted(options_.stop_after, "step"));
    else if (config_.run.max_duration > 0 && since_start_.seconds() >= config_.run.max_duration)
      cause_ = "run.max_duration is over";
    else
      return false;
    return true;
  }

  TrainOutcome steps(Trainer<T>& trainer, CheckpointSaver<T>& saver, RankRecords& records, StragglerWatch& stragglers,
                     const std::function<std::string()>& stop_request) {
    const Index total = config_.total_steps();
    Index steps_of_this_start = 0;
    double saving_seconds = 0;
    const Stopwatch since_first_step;
    while (trainer.steps_done() < total) {
      records.before_step(trainer.steps_done() + 1);
      saving_seconds += saver.take_seconds();  // after the step before, also one that was taken back
      StepReport report = trainer.step(must_stop(steps_of_this_start, stop_request));
      saver.take_seconds();  // while an anomaly was kept: the step has counted that
      MemoryLedger::instance().check_budget();
      ++steps_of_this_start;
      if (report.rollback) {
        go_back(trainer, saver, records, report);
        continue;
      }
      report.seconds[Phase::checkpoint] += std::exchange(saving_seconds, 0.0);
      const bool last = report.step == total;
      TrainProgress progress = progress_of(report, total);
      if (trainer.has_validation() &&
          (last || (config_.run.eval_interval > 0 && report.step % config_.run.eval_interval == 0)))
        saver.judge(progress.validation_loss.emplace(trainer.evaluate()));
      const double pace = since_first_step.seconds() / static_cast<double>(steps_of_this_start);
      progress.seconds_left = pace * static_cast<double>(total - report.step);
      progress.seconds_to_save = pace * static_cast<double>(steps_to_save(report.step, total));
      records.after_step(report);
      prediction_->add(report);
      tell_stragglers(stragglers, report);
      if (is_root_)
        files_.metrics->append(metrics_line(report, progress));
      if (is_root_ && events_.step)
        events_.step(report, progress);
      if (last || report.stop || (config_.checkpoint.interval > 0 && report.step % config_.checkpoint.interval == 0))
        save(saver);
      else
        saver.poll();
      if (last || report.stop)
        saver.drain();
      if (report.stop && !last)
        return TrainOutcome::stopped;
    }
    return TrainOutcome::completed;
  }

  // A spike that cannot be kept is no reason to end the run.
  void record_anomaly(const Trainer<T>& trainer, CheckpointSaver<T>& saver, const StepReport& report) {
    const Incident incident = incident_of(report, config_, layout_.text());
    note(to_text(incident));
    if (config_.stability.keep_incidents > 0)
      saver.drain();  // one save at a time
    try {
      if (const Path folder = store_incident(incident, trainer, config_, mesh_); !folder.empty())
        note(fmt::format("kept as {}: espalier train --replay {}", folder.string(), folder.string()));
    } catch (const Error& error) {
      if (error.code() != ExitCode::write)
        throw;
      note(fmt::format("the incident could not be kept: {}", error.what()));
    }
  }

  void tell_stragglers(StragglerWatch& stragglers, const StepReport& report) {
    const std::vector<std::string> lines = stragglers.after_step(report);
    for (const std::string& line : lines)
      note(line);
    if (!lines.empty())
      files_.directory->update(stragglers.named());
  }

  void go_back(Trainer<T>& trainer, CheckpointSaver<T>& saver, RankRecords& records, const StepReport& report) {
    saver.drain();  // it may be the checkpoint to go back to
    const Index step =
        rollbacks_.go_back(report, config_, mesh_, trainer, [&](const std::string& text) { note(text); });
    if (is_root_)
      files_.metrics.emplace(files_.directory->metrics(), step);
    records.go_back_to(step);
  }

  TrainProgress progress_of(const StepReport& report, Index total) const {
    TrainProgress progress;
    progress.total_steps = total;
    progress.tokens_per_second = static_cast<double>(config_.tokens_per_step()) / report.step_seconds;
    progress.mfu = prediction_->seconds_at_gemm_rate() / report.step_seconds;
    return progress;
  }

  Index steps_to_save(Index step, Index total) const {
    const Index interval = config_.checkpoint.interval;
    return interval > 0 ? std::min(interval - step % interval, total - step) : total - step;
  }

  void require_directory_in_place() {
    try {
      attempt_together(mesh_.world(), ExitCode::write, [&] {
        if (is_root_)
          files_.directory->require_in_place();
      });
    } catch (const Error&) {
      signed_on_ = false;  // what lies at its path now is not ours to sign off
      throw;
    }
  }

  void save(CheckpointSaver<T>& saver) {
    require_directory_in_place();
    saver.save();
    rollbacks_.checkpoint_saved();
  }

  void compare_with_prediction(Index steps_done) {
    PredictionCheck::Comparison comparison = prediction_->compare();
    if (keeps_figures_)
      return;
    for (const std::string& text : comparison.notes)
      note(text);
    comparison.details["steps_done"] = steps_done;
    if (is_root_)
      files_.directory->update(comparison.details);
  }

  void sign_off(TrainOutcome outcome) {
    if (outcome == TrainOutcome::completed)
      files_.directory->finish(RunEnd::completed);
    else
      files_.directory->finish(RunEnd::preempted, cause_);
    if (const std::string problem = write_report_at_end(run_path()); !problem.empty())
      note(problem);
  }

  // Of the first rank that has one: a signal may have come to one rank only.
  std::string cause_of_all() const {
    const std::vector<std::string> causes = gather_texts(mesh_.world(), cause_);
    const auto first = std::ranges::find_if(causes, [](const std::string& cause) { return !cause.empty(); });
    return first == causes.end() ? std::string() : *first;
  }

  void finish(TrainOutcome outcome, Index steps_done) {
    compare_with_prediction(steps_done);
    if (outcome == TrainOutcome::stopped)
      cause_ = cause_of_all();
    barrier(mesh_.world());  // signed off only when every rank has come to the end
    if (is_root_)
      sign_off(outcome);
  }

  const RunConfig& config_;
  const TrainOptions& options_;
  const RunLayout& layout_;
  const ProcessMesh& mesh_;
  const TrainEvents& events_;
  bool is_root_;
  bool signed_on_ = false;
  bool keeps_figures_ = false;  // on rank 0: config, facts and times stay those of the steps that were taken
  RunFiles files_;
  Rollbacks rollbacks_;
  double gemm_rate_ = 0;
  std::optional<PredictionCheck> prediction_;
  std::string cause_;  // of a stop: on a rank that asks for one, at the end on rank 0
  Stopwatch since_start_;
};

}  // namespace

template <class T>
TrainOutcome train(const RunConfig& config, const TrainOptions& options, const RunLayout& layout,
                   const ProcessMesh& mesh, const TrainEvents& events,
                   const std::function<std::string()>& stop_request) {
  return Loop<T>(config, options, layout, mesh, events).run(stop_request);
}

#define ESPALIER_INSTANTIATE(T)                                                                               \
  template TrainOutcome train<T>(const RunConfig&, const TrainOptions&, const RunLayout&, const ProcessMesh&, \
                                 const TrainEvents&, const std::function<std::string()>&);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
