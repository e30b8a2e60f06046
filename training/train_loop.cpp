// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/train_loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/printable_text.hpp"
#include "core/stopwatch.hpp"
#include "io/run_positions.hpp"
#include "io/units.hpp"
#include "models/cost.hpp"
#include "parallel/agreement.hpp"
#include "parallel/collectives.hpp"
#include "parallel/failure.hpp"
#include "training/check_token_files.hpp"
#include "training/checkpoint_saver.hpp"
#include "training/config_warnings.hpp"
#include "training/gemm_rate.hpp"
#include "training/incidents.hpp"
#include "training/loaders.hpp"
#include "training/peak_rate.hpp"
#include "training/predict_memory.hpp"
#include "training/prediction_check.hpp"
#include "training/rank_records.hpp"
#include "training/require_memory.hpp"
#include "training/resume.hpp"
#include "training/rollback.hpp"
#include "training/run_facts.hpp"
#include "training/run_files.hpp"
#include "training/run_tokenizer.hpp"
#include "training/same_start.hpp"
#include "training/stop_agreement.hpp"
#include "training/stragglers.hpp"
#include "training/text_samples.hpp"
#include "training/training_state.hpp"

namespace espalier {
namespace {

// Which limit ends the run: "run.steps = 100".
std::string limit_text(const RunConfig& config) {
  const Index total = config.total_steps();
  return config.run.steps == total ? fmt::format("run.steps = {}", total)
                                   : fmt::format("run.tokens = {} is reached after {}", config.run.tokens, total);
}

bool is_multiple(Index step, Index interval) { return interval > 0 && step % interval == 0; }

template <class P>
class Loop {
 public:
  Loop(const RunConfig& config, const TrainOptions& options, const Layout& layout, const ProcessMesh& mesh,
       const TrainEvents& events, const std::function<std::string()>& stop_request)
      : config_(config),
        options_(options),
        layout_(layout),
        mesh_(mesh),
        events_(events),
        is_root_(mesh.world().rank() == 0),
        files_(config, options, mesh.world(), [this](const std::string& text) { note(text); }),
        rollbacks_(config.stability.max_rollbacks),
        stop_(config, options.stop_after, mesh.world(), stop_request, [this](const std::string& text) { note(text); }) {
  }

  TrainOutcome run() {
    require_same_start(mesh_.world(), to_toml(config_) + fmt::format("[command]\nresume = {}\ninit_from = {}\n",
                                                                     options_.resume, options_.init_from));
    require_memory(config_, layout_, memory_of_a_rank(mesh_.world()));
    const auto tell = [&](const std::string& text) { note(text); };
    const nlohmann::json data_files = check_token_files(config_, mesh_.world(), tell);
    tokenizer_ = find_run_tokenizer(config_, options_.init_from, mesh_.world(), tell);
    // What refuses a start comes before it signs on.
    run_id_ = files_.take_directory();
    if (stop_.agree())
      return TrainOutcome::not_begun;
    agree_on_libraries<Compute<P>>(config_, mesh_.world());
    const auto measure = [&] { gemm_rate_ = measure_gemm_rate<Compute<P>>(mesh_.world()); };
    if (exec_is_host)
      MemoryLedger::instance().record_library_scratch_of(measure);
    else  // what becomes resident is the host's memory, not the accelerator's
      measure();
    prediction_.emplace(config_, layout_, mesh_, gemm_rate_);
    peak_rate_ = peak_rate(config_, mesh_.world());
    MemoryLedger::instance().reset_peak();  // of the training itself
    if (stop_.agree())
      return TrainOutcome::not_begun;
    Trainer<P> trainer(ExecSpace(), config_, layout_, mesh_);
    trainer.set_data_files(data_files);
    trainer.name_tokenizer(tokenizer_.name);
    CheckpointSaver<P> saver(config_, files_.checkpoints(), mesh_, trainer, tell, run_id_, [&] { stop_.agree(); });
    const Index resumed_step = resume_training(options_, files_.checkpoints(), run_id_, config_, mesh_, trainer, tell);
    if (stop_.agree())
      return TrainOutcome::not_begun;
    note_loaders(config_, trainer.loader(), trainer.validation(), tell);
    note(products_text(gemm_rate_, mesh_.world().size()));
    if (!exec_is_host)
      note("attention by " + (why_not_cudnn(config_).empty()
                                  ? describe_attention<Compute<P>>(attention_shape(config_, layout_))
                                  : "own kernels, not cuDNN: " + why_not_cudnn(config_)));
    if (const std::size_t bytes = mesh_.world().context().link_bytes(); bytes > 0)
      note(fmt::format("NCCL has taken about {} of the GPU, which no category counts", bytes_text(bytes)));
    try {
      return train_in_directory(trainer, saver, resumed_step);
    } catch (const Error& error) {
      if (error.code() == ExitCode::write && is_root_ && files_.is_signed_on())
        files_.directory().require_in_place();  // else that is the cause, of a save behind the training
      if (error.code() != ExitCode::numerical)
        throw with_positions(error);
      publish_if_possible(saver);
      throw with_positions(with_way_back(error, files_.checkpoints(), run_id_));
    } catch (const std::exception& exception) {
      files_.sign_off_failed(error_from(exception, ExitCode::defect));
      throw;
    }
  }

 private:
  TrainOutcome train_in_directory(Trainer<P>& trainer, CheckpointSaver<P>& saver, Index resumed_step) {
    if (events_.begins)
      events_.begins();
    stop_.begin();
    files_.sign_on(resumed_step, *prediction_);
    const AtEarlyExit sign_off(
        [path = files_.path()](const std::string& report) { sign_off_failed(path, report, ExitCode::communication); });
    attempt_together(mesh_.world(), ExitCode::write, [&] { tokenizer_.keep_in(files_.path()); });
    const nlohmann::json facts = run_facts(config_, mesh_, options_.program, gemm_rate_, resumed_step + 1);
    if (!files_.keeps_figures())
      files_.update({{"facts", facts}});
    files_.open_records(resumed_step);
    RankRecords records(config_, mesh_, resumed_step);
    trainer.observe_anomalies([&](const StepReport& report) { record_anomaly(trainer, saver, report); });
    if (config_.stability.on_spike == "rollback" && (resumed_step == 0 || options_.resume != "auto"))
      save(saver, resumed_step);  // there is none of this run yet that it could go back to
    StragglerWatch stragglers(config_.stability, mesh_);
    const bool none_left = resumed_step >= config_.total_steps();
    if (none_left)
      note(fmt::format("nothing left to do: {} done, and {}", counted(resumed_step, "step"), limit_text(config_)));
    if (none_left && !has_own_checkpoint(resumed_step)) {
      save(saver, resumed_step);  // it came from another run by --resume
      saver.drain();
    }
    if (none_left && trainer.has_validation() && !files_.was_completed())
      validate(trainer, saver);  // the launch before was stopped or killed in it
    const TrainOutcome outcome = stop_.is_agreed() ? TrainOutcome::stopped : steps(trainer, saver, records, stragglers);
    finish(outcome, trainer.steps_done());
    records.sign_off();
    return outcome;
  }

  // All ranks have ended in the same step, so the save behind them can still be agreed upon. What ended them stays the
  // cause, whatever becomes of it.
  static void publish_if_possible(CheckpointSaver<P>& saver) {
    try {
      saver.drain();
    } catch (const std::exception&) {  // told by the next start: its save was not finished
    }
  }

  void note(const std::string& text) const {
    if (is_root_ && events_.note)
      events_.note(text);
  }

  // A failed or late message is told together with where every rank was: the one that is silent is among them.
  Error with_positions(const Error& error) const {
    ErrorReport report = error.report();
    const std::string positions =
        error.code() == ExitCode::communication ? positions_in(files_.path(), false) : std::string();
    if (!positions.empty())
      report.got += "\n" + positions;
    Error whole(error.code(), report);
    files_.sign_off_failed(whole);
    return whole;
  }

  TrainOutcome steps(Trainer<P>& trainer, CheckpointSaver<P>& saver, RankRecords& records, StragglerWatch& stragglers) {
    const Index total = config_.total_steps();
    Index steps_of_this_start = 0;
    double saving_seconds = 0;
    const Stopwatch since_first_step;
    while (trainer.steps_done() < total) {
      records.before_step(trainer.steps_done() + 1);
      saving_seconds += saver.take_seconds();  // after the step before, also one that was taken back
      stop_.step_begins();
      StepReport report = trainer.step([&] { return stop_.is_asked(); });
      saver.take_seconds();  // while an anomaly was kept: the step has counted that
      MemoryLedger::instance().check_budget();
      ++steps_of_this_start;
      if (report.rollback) {
        stop_.agree_to(report.stop);
        go_back(trainer, saver, records, report);
        if (stop_.is_agreed())
          return stop_after(trainer.steps_done(), saver, records);
        continue;
      }
      report.seconds[Phase::checkpoint] += std::exchange(saving_seconds, 0.0);
      const bool last = report.step == total;
      const bool is_validated =
          trainer.has_validation() && (last || is_multiple(report.step, config_.run.eval_interval));
      TrainProgress progress = progress_of(report, total);
      const double pace = since_first_step.seconds() / static_cast<double>(steps_of_this_start);
      progress.seconds_left = pace * static_cast<double>(total - report.step);
      progress.seconds_to_save = pace * static_cast<double>(steps_to_save(report.step, total));
      records.after_step(report);
      prediction_->add(report);
      tell_stragglers(stragglers, report);
      if (is_root_)
        files_.records().add_step(report, progress, is_validated);
      if (is_root_ && events_.step)
        events_.step(report, progress);
      stop_.agree_to(report.stop);
      if (save_if_due(saver, report.step, last) && !last)
        stop_.agree();  // it may have waited long for the save before
      if (is_validated && !stop_.is_agreed())
        validate(trainer, saver);
      if (is_multiple(report.step, config_.run.sample_interval) && !stop_.is_agreed())
        write_samples(trainer, saver);
      if (stop_.is_agreed() && (is_validated || !last))
        return stop_after(report.step, saver, records);
    }
    return TrainOutcome::completed;
  }

  TrainOutcome stop_after(Index step, CheckpointSaver<P>& saver, RankRecords& records) {
    save_unless_saved(saver, step);
    saver.drain();
    records.end_trace();
    return TrainOutcome::stopped;
  }

  // What is saved is not lost with a launch that is killed in the validation that follows. True: a save was due.
  bool save_if_due(CheckpointSaver<P>& saver, Index step, bool last) {
    const bool is_due = last || stop_.is_agreed() || is_multiple(step, config_.checkpoint.interval);
    if (is_due)
      save(saver, step);
    else
      saver.poll();
    if (last || stop_.is_agreed())
      saver.drain();
    return is_due;
  }

  void validate(Trainer<P>& trainer, CheckpointSaver<P>& saver) {
    constexpr double seconds_between_lines = 10;
    Stopwatch since_line;
    mesh_.world().observers().operation_begins(-1, "validation", -1, -1);
    const std::optional<double> loss = trainer.evaluate([&](Index done, Index batches) {
      saver.poll();
      if (since_line.seconds() >= seconds_between_lines) {
        since_line = {};
        note(fmt::format("validation: {} of {}", done, counted(batches, "batch")));
      }
      return stop_.agree();
    });
    if (loss)
      saver.judge(*loss);
    if (!loss || !is_root_)
      return;
    files_.records().add_validation(trainer.steps_done(), *loss);
    if (events_.validation)
      events_.validation(trainer.steps_done(), *loss);
  }

  void write_samples(Trainer<P>& trainer, CheckpointSaver<P>& saver) {
    mesh_.world().observers().operation_begins(-1, "samples", -1, -1);
    const auto samples = sample_texts(trainer, config_, tokenizer_.tokenizer.get(), mesh_.world(), [&] {
      saver.poll();
      return stop_.agree();
    });
    if (!samples || !is_root_)
      return;
    for (const TextSample& sample : *samples)
      note(fmt::format("step {}: {}", trainer.steps_done(), printable_line(sample.prompt + sample.text)));
    files_.records().add_samples(trainer.steps_done(), *samples);
  }

  // A spike that cannot be kept is no reason to end the run.
  void record_anomaly(const Trainer<P>& trainer, CheckpointSaver<P>& saver, const StepReport& report) {
    const Incident incident = incident_of(report, config_, layout_.short_text());
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
      files_.update(stragglers.named());
  }

  void go_back(Trainer<P>& trainer, CheckpointSaver<P>& saver, RankRecords& records, const StepReport& report) {
    saver.drain();  // it may be the checkpoint to go back to
    const Index step =
        rollbacks_.go_back(report, config_, run_id_, mesh_, trainer, [&](const std::string& text) { note(text); });
    files_.open_records(step);
    saved_step_ = -1;  // the steps after it are taken again
    records.go_back_to(step);
  }

  TrainProgress progress_of(const StepReport& report, Index total) const {
    TrainProgress progress;
    progress.total_steps = total;
    progress.tokens_per_second = static_cast<double>(config_.tokens_per_step()) / report.step_seconds;
    progress.gemm_fraction = prediction_->seconds_at_gemm_rate(report.counts.attention_share) / report.step_seconds;
    if (peak_rate_)
      progress.mfu =
          progress.tokens_per_second *
          model_flops_per_token(config_.model.shape, config_.sequence_length, report.counts.attention_share) /
          *peak_rate_;
    return progress;
  }

  Index steps_to_save(Index step, Index total) const {
    const Index interval = config_.checkpoint.interval;
    return interval > 0 ? std::min(interval - step % interval, total - step) : total - step;
  }

  void save(CheckpointSaver<P>& saver, Index step) {
    files_.require_in_place();
    saver.save();
    saved_step_ = step;
    rollbacks_.checkpoint_saved();
  }

  bool has_own_checkpoint(Index step) const {
    const std::vector<CheckpointEntry> entries =
        is_root_ ? find_checkpoints(files_.checkpoints()) : std::vector<CheckpointEntry>();
    const bool found = std::any_of(entries.begin(), entries.end(), [&](const CheckpointEntry& entry) {
      return entry.complete && entry.step == step && !may_be_of_another(entry, run_id_);
    });
    return all_reduce(mesh_.world(), Index{found ? 1 : 0}, ReduceOp::max) > 0;
  }

  void save_unless_saved(CheckpointSaver<P>& saver, Index step) {
    if (saved_step_ != step)
      save(saver, step);
  }

  void compare_with_prediction(Index steps_done) {
    PredictionCheck::Comparison comparison = prediction_->compare();
    if (files_.keeps_figures())
      return;
    for (const std::string& text : comparison.notes)
      note(text);
    comparison.details["steps_done"] = steps_done;
    files_.update(comparison.details);
  }

  void finish(TrainOutcome outcome, Index steps_done) {
    compare_with_prediction(steps_done);
    barrier(mesh_.world());  // signed off only when every rank has come to the end
    files_.sign_off(outcome, stop_.cause());
  }

  const RunConfig& config_;
  const TrainOptions& options_;
  const Layout& layout_;
  const ProcessMesh& mesh_;
  const TrainEvents& events_;
  bool is_root_;
  RunFiles files_;
  RunTokenizer tokenizer_;
  std::string run_id_;
  Rollbacks rollbacks_;
  double gemm_rate_ = 0;
  std::optional<double> peak_rate_;
  std::optional<PredictionCheck> prediction_;
  StopAgreement stop_;
  Index saved_step_ = -1;  // of this launch
};

}  // namespace

template <class P>
TrainOutcome train(const RunConfig& config, const TrainOptions& options, const Layout& layout, const ProcessMesh& mesh,
                   const TrainEvents& events, const std::function<std::string()>& stop_request) {
  return Loop<P>(config, options, layout, mesh, events, stop_request).run();
}

#define ESPALIER_INSTANTIATE(P)                                                                            \
  template TrainOutcome train<P>(const RunConfig&, const TrainOptions&, const Layout&, const ProcessMesh&, \
                                 const TrainEvents&, const std::function<std::string()>&);
ESPALIER_FOR_PRECISIONS(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
