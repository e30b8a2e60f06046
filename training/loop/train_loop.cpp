// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/train_loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "io/records/run_details.hpp"
#include "io/records/run_progress.hpp"
#include "io/units.hpp"
#include "parallel/collectives/agreement.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/launch/failure.hpp"
#include "training/config/config_warnings.hpp"
#include "training/loop/check_token_files.hpp"
#include "training/loop/incidents.hpp"
#include "training/loop/prediction_check.hpp"
#include "training/loop/rank_records.hpp"
#include "training/loop/resume.hpp"
#include "training/loop/run_facts.hpp"
#include "training/loop/run_files.hpp"
#include "training/loop/run_saves.hpp"
#include "training/loop/run_tokenizer.hpp"
#include "training/loop/same_launch.hpp"
#include "training/loop/step_lines.hpp"
#include "training/loop/stop_agreement.hpp"
#include "training/loop/stragglers.hpp"
#include "training/loop/text_samples.hpp"
#include "training/loop/validation.hpp"
#include "training/prediction/gemm_rate.hpp"
#include "training/prediction/predict_memory.hpp"
#include "training/prediction/require_memory.hpp"
#include "training/step/loaders.hpp"
#include "training/step/typed_trainer.hpp"

namespace espalier {
namespace {

/// The steps of a launch.
class Loop {
 public:
  /// Collective. The run's directory is there, with its records open after the step that the trainer resumes after.
  Loop(const RunContext& run, const TrainEvents& events, Trainer& trainer, CheckpointSaver& saver,
       PredictionCheck& prediction, double gemm_rate, std::optional<double> peak_rate, const Tokenizer* tokenizer)
      : run_(run),
        trainer_(trainer),
        rank_records_(run.config, run.mesh, trainer.steps_done()),
        prediction_(run, prediction),
        stragglers_(run),
        step_lines_(run, events, gemm_rate, peak_rate),
        saves_(run, trainer, saver),
        validation_(run, events, trainer, saver),
        samples_(run, trainer, saver, tokenizer),
        incidents_(run, trainer, saver) {
    trainer_.observe_anomalies([this](const StepReport& report) { notify(&LoopObserver::before_anomaly, report); });
  }

  TrainOutcome run() {
    const Index total = run_.config.total_steps();
    while (trainer_.steps_done() < total) {
      notify(&LoopObserver::before_step, trainer_.steps_done() + 1);
      run_.stop.step_begins();
      StepReport report = trainer_.step([&] { return run_.stop.is_asked(); });
      MemoryLedger::instance().check_budget();
      if (report.rollback) {
        run_.stop.agree_to(report.stop);
        notify(&LoopObserver::rolled_back_to, saves_.roll_back(report));
      } else {
        report.seconds[Phase::checkpoint] += saves_.take_seconds();
        notify(&LoopObserver::after_step, LoopStep{report, report.step == total, validation_.is_due(report.step)});
      }
      const bool is_complete = trainer_.steps_done() == total && !validation_.is_due(total);
      if (run_.stop.is_agreed() && !is_complete) {
        saves_.save_and_drain();
        return TrainOutcome::stopped;
      }
    }
    return TrainOutcome::completed;
  }

  /// Outside of run(): save and validate the present weights.
  void save() { saves_.save(); }
  void validate() { validation_.validate(); }

  void end() { notify(&LoopObserver::loop_ends, trainer_.steps_done()); }

  /// After the run itself: until then this rank's progress says where it is.
  void mark_finished() { rank_records_.mark_finished(); }

 private:
  template <class Event, class Value>
  void notify(Event event, const Value& value) const {
    for (LoopObserver* const observer : observers_)
      (observer->*event)(value);
  }

  const RunContext& run_;
  Trainer& trainer_;
  RankRecords rank_records_;
  PredictionNotes prediction_;
  StragglerNotes stragglers_;
  StepLines step_lines_;
  RunSaves saves_;
  Validation validation_;
  SampleNotes samples_;
  IncidentNotes incidents_;
  // What happened is written before anything can fail; a step is saved before its validation, in which a launch may be
  // killed.
  const std::vector<LoopObserver*> observers_ = {&rank_records_, &prediction_, &stragglers_, &step_lines_,
                                                 &saves_,        &validation_, &samples_,    &incidents_};
};

/// A launch of a run: what comes before its loop, and what is left in its directory after it.
class Launch {
 public:
  Launch(const RunConfig& config, const TrainOptions& options, const Layout& layout, const ProcessMesh& mesh,
         const TrainEvents& events, const std::function<std::string()>& stop_request)
      : options_(options),
        events_(events),
        note_([&events, is_root = mesh.world().rank() == 0](const std::string& text) {
          if (is_root && events.note)
            events.note(text);
        }),
        files_(config, options, mesh.world(), note_),
        stop_(config, options.stop_after, mesh.world(), stop_request, note_),
        run_{config, layout, mesh, files_, stop_, note_} {}

  TrainOutcome run() {
    const RunConfig& config = run_.config;
    const Communicator& world = run_.mesh.world();
    require_same_launch(world, to_toml(config) + fmt::format("[command]\nresume = {}\ninit_from = {}\n",
                                                             options_.resume, options_.init_from));
    require_cluster(config);
    require_memory(config, run_.layout, memory_of_a_rank(world));
    const nlohmann::json data_files = check_token_files(config, world, note_);
    tokenizer_ = find_run_tokenizer(config, options_.init_from, world, note_);
    // Whatever can refuse the launch comes before begin_launch(), which changes the files of the run.
    run_.id = files_.take_directory();
    if (stop_.agree())
      return TrainOutcome::not_begun;
    measure_machine();
    if (stop_.agree())
      return TrainOutcome::not_begun;
    const std::unique_ptr<Trainer> owned = make_trainer(ExecSpace(), config, run_.layout, run_.mesh);
    Trainer& trainer = *owned;
    trainer.set_data_files(data_files);
    trainer.name_tokenizer(tokenizer_.name);
    CheckpointSaver saver(config, files_.checkpoints(), run_.mesh, trainer, note_, run_.id, [&] { stop_.agree(); });
    resume_training(options_, files_.checkpoints(), run_.id, config, run_.mesh, trainer, note_);
    if (stop_.agree())
      return TrainOutcome::not_begun;
    note_loaders(config, trainer.loader(), trainer.validation(), note_);
    note_machine();
    try {
      return train_in_directory(trainer, saver);
    } catch (const Error& error) {
      if (error.code() == ExitCode::write && run_.is_root() && files_.has_begun_launch())
        files_.directory().require_in_place();  // a moved directory is why a background save could not write
      if (error.code() != ExitCode::numerical)
        throw with_progress(error);
      publish_if_possible(saver);
      throw with_progress(with_resume_hint(error, files_.checkpoints(), run_.id));
    } catch (const std::exception& exception) {
      files_.record_failure(error_from(exception, ExitCode::defect));
      throw;
    }
  }

 private:
  void measure_machine() {
    const Communicator& world = run_.mesh.world();
    const ScalarType compute = types_of_run(run_.config).compute;
    agree_on_libraries(run_.config, world);
    const auto measure = [&] { gemm_rate_ = measure_gemm_rate(compute, world); };
    if (exec_is_host)
      MemoryLedger::instance().record_library_scratch_of(measure);
    else  // what becomes resident is the host's memory, not the accelerator's
      measure();
    prediction_.emplace(run_.config, run_.layout, run_.mesh, gemm_rate_);
    peak_rate_ = peak_rate(run_.config, world);
    MemoryLedger::instance().reset_peak();  // of the training itself
  }

  void note_machine() const {
    note_(matmuls_text(gemm_rate_, run_.mesh.world().size()));
    if (!exec_is_host)
      note_("attention by " +
            (why_not_cudnn(run_.config).empty()
                 ? describe_attention(types_of_run(run_.config).compute, attention_shape(run_.config, run_.layout))
                 : "own kernels, not cuDNN: " + why_not_cudnn(run_.config)));
    if (const std::size_t bytes = run_.mesh.world().context().link_bytes(); bytes > 0)
      note_(fmt::format("NCCL uses about {} of GPU memory, which no category includes", bytes_text(bytes)));
  }

  TrainOutcome train_in_directory(Trainer& trainer, CheckpointSaver& saver) {
    const RunConfig& config = run_.config;
    const Communicator& world = run_.mesh.world();
    const Index resumed_step = trainer.steps_done();
    if (events_.begins)
      events_.begins();
    stop_.begin();
    files_.begin_launch(resumed_step, *prediction_);
    const AtEarlyExit at_early_exit(
        [path = files_.path()](const std::string& report) { record_failure(path, report, ExitCode::communication); });
    attempt_together(world, ExitCode::write, [&] { tokenizer_.keep_in(files_.path()); });
    const RunFacts facts = gather_run_facts(config, run_.mesh, options_.program, gemm_rate_, resumed_step + 1);
    if (!files_.keeps_figures())
      files_.update(details_of(facts));
    files_.open_records(resumed_step);
    Loop loop(run_, events_, trainer, saver, *prediction_, gemm_rate_, peak_rate_, tokenizer_.tokenizer.get());
    if (config.stability.on_spike == SpikePolicy::rollback && (resumed_step == 0 || options_.resume != "auto"))
      loop.save();  // there is none of this run yet that it could go back to
    if (resumed_step >= config.total_steps())
      nothing_left(loop, saver, trainer);
    const TrainOutcome outcome = stop_.is_agreed() ? TrainOutcome::stopped : loop.run();
    loop.end();
    barrier(world);  // the launch has ended only when every rank has come to the end
    files_.end_launch(outcome, stop_.cause());
    loop.mark_finished();
    return outcome;
  }

  void nothing_left(Loop& loop, CheckpointSaver& saver, const Trainer& trainer) const {
    const Index step = trainer.steps_done();
    const Index total = run_.config.total_steps();
    const std::string limit = run_.config.run.steps == total
                                  ? fmt::format("run.steps = {}", total)
                                  : fmt::format("run.tokens = {} is reached after {}", run_.config.run.tokens, total);
    note_(fmt::format("nothing left to do: {} done, and {}", counted(step, "step"), limit));
    if (!has_own_checkpoint(step)) {
      loop.save();  // it came from another run by --resume
      saver.drain();
    }
    if (trainer.has_validation() && !files_.was_completed())
      loop.validate();  // the launch before was stopped or killed in it
  }

  bool has_own_checkpoint(Index step) const {
    const std::vector<CheckpointEntry> entries =
        run_.is_root() ? find_checkpoints(files_.checkpoints()) : std::vector<CheckpointEntry>();
    const bool found = std::ranges::any_of(entries, [&](const CheckpointEntry& entry) {
      return entry.complete && entry.step == step && !may_be_of_another(entry, run_.id);
    });
    return all_reduce(run_.mesh.world(), Index{found ? 1 : 0}, ReduceOp::max) > 0;
  }

  // Publishes a background save. All ranks have stopped in the same step, so they can agree on it. If it fails, the
  // error that stopped them is still the one reported.
  static void publish_if_possible(CheckpointSaver& saver) {
    try {
      saver.drain();
    } catch (const std::exception&) {  // the next launch reports that its save was not finished
    }
  }

  // A failed or late message is reported with where every rank was: the one that is silent is among them.
  Error with_progress(const Error& error) const {
    ErrorReport report = error.report();
    const std::string progress =
        error.code() == ExitCode::communication ? progress_in(files_.path(), false) : std::string();
    if (!progress.empty())
      report.got += "\n" + progress;
    Error whole(error.code(), report);
    files_.record_failure(whole);
    return whole;
  }

  const TrainOptions& options_;
  const TrainEvents& events_;
  std::function<void(const std::string&)> note_;
  RunFiles files_;
  StopAgreement stop_;
  RunContext run_;
  RunTokenizer tokenizer_;
  double gemm_rate_ = 0;
  std::optional<double> peak_rate_;
  std::optional<PredictionCheck> prediction_;
};

}  // namespace

TrainOutcome train(const RunConfig& config, const TrainOptions& options, const Layout& layout, const ProcessMesh& mesh,
                   const TrainEvents& events, const std::function<std::string()>& stop_request) {
  return Launch(config, options, layout, mesh, events, stop_request).run();
}

}  // namespace espalier
