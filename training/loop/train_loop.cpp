// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/train_loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "io/records/run_positions.hpp"
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
#include "training/loop/same_start.hpp"
#include "training/loop/step_lines.hpp"
#include "training/loop/stop_agreement.hpp"
#include "training/loop/stragglers.hpp"
#include "training/loop/text_samples.hpp"
#include "training/loop/validation.hpp"
#include "training/prediction/gemm_rate.hpp"
#include "training/prediction/predict_memory.hpp"
#include "training/prediction/require_memory.hpp"
#include "training/step/loaders.hpp"

namespace espalier {
namespace {

/// The steps of a launch.
template <class P>
class Loop {
 public:
  /// Collective. The run's directory is there, with its records open after the step that the trainer goes on after.
  Loop(const RunContext& run, const TrainEvents& events, Trainer<P>& trainer, CheckpointSaver<P>& saver,
       PredictionCheck& prediction, std::optional<double> peak_rate, const Tokenizer* tokenizer)
      : run_(run),
        trainer_(trainer),
        rank_records_(run.config, run.mesh, trainer.steps_done()),
        prediction_(run, prediction),
        stragglers_(run),
        step_lines_(run, events, prediction, peak_rate),
        saves_(run, trainer, saver),
        validation_(run, events, trainer, saver),
        samples_(run, trainer, saver, tokenizer),
        incidents_(run, trainer, saver) {
    trainer_.observe_anomalies([this](const StepReport& report) { tell(&LoopObserver::before_anomaly, report); });
  }

  TrainOutcome run() {
    const Index total = run_.config.total_steps();
    while (trainer_.steps_done() < total) {
      tell(&LoopObserver::before_step, trainer_.steps_done() + 1);
      run_.stop.step_begins();
      StepReport report = trainer_.step([&] { return run_.stop.is_asked(); });
      MemoryLedger::instance().check_budget();
      if (report.rollback) {
        run_.stop.agree_to(report.stop);
        tell(&LoopObserver::went_back_to, saves_.go_back(report));
      } else {
        report.seconds[Phase::checkpoint] += saves_.take_seconds();
        tell(&LoopObserver::after_step, LoopStep{report, report.step == total, validation_.is_due(report.step)});
      }
      const bool is_whole = trainer_.steps_done() == total && !validation_.is_due(total);
      if (run_.stop.is_agreed() && !is_whole) {
        saves_.save_and_drain();
        return TrainOutcome::stopped;
      }
    }
    return TrainOutcome::completed;
  }

  /// Beside the steps: of the weights that the trainer has now.
  void save() { saves_.save(); }
  void validate() { validation_.validate(); }

  void end() { tell(&LoopObserver::loop_ends, trainer_.steps_done()); }

  /// After the run itself: until then this rank's position tells where it is.
  void sign_off() { rank_records_.sign_off(); }

 private:
  template <class Event, class Value>
  void tell(Event event, const Value& value) const {
    for (LoopObserver* const observer : observers_)
      (observer->*event)(value);
  }

  const RunContext& run_;
  Trainer<P>& trainer_;
  RankRecords rank_records_;
  PredictionNotes prediction_;
  StragglerNotes stragglers_;
  StepLines step_lines_;
  RunSaves<P> saves_;
  Validation<P> validation_;
  SampleNotes<P> samples_;
  IncidentNotes<P> incidents_;
  // What happened is written before anything can fail; a step is saved before its validation, in which a launch may be
  // killed.
  const std::vector<LoopObserver*> observers_ = {&rank_records_, &prediction_, &stragglers_, &step_lines_,
                                                 &saves_,        &validation_, &samples_,    &incidents_};
};

/// A launch of a run: what comes before its loop, and what is left in its directory after it.
template <class P>
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
    require_same_start(world, to_toml(config) + fmt::format("[command]\nresume = {}\ninit_from = {}\n", options_.resume,
                                                            options_.init_from));
    require_cluster(config);
    require_memory(config, run_.layout, memory_of_a_rank(world));
    const nlohmann::json data_files = check_token_files(config, world, note_);
    tokenizer_ = find_run_tokenizer(config, options_.init_from, world, note_);
    // What refuses a start comes before it signs on.
    run_.id = files_.take_directory();
    if (stop_.agree())
      return TrainOutcome::not_begun;
    measure_machine();
    if (stop_.agree())
      return TrainOutcome::not_begun;
    Trainer<P> trainer(ExecSpace(), config, run_.layout, run_.mesh);
    trainer.set_data_files(data_files);
    trainer.name_tokenizer(tokenizer_.name);
    CheckpointSaver<P> saver(config, files_.checkpoints(), run_.mesh, trainer, note_, run_.id, [&] { stop_.agree(); });
    resume_training(options_, files_.checkpoints(), run_.id, config, run_.mesh, trainer, note_);
    if (stop_.agree())
      return TrainOutcome::not_begun;
    note_loaders(config, trainer.loader(), trainer.validation(), note_);
    note_machine();
    try {
      return train_in_directory(trainer, saver);
    } catch (const Error& error) {
      if (error.code() == ExitCode::write && run_.is_root() && files_.is_signed_on())
        files_.directory().require_in_place();  // else that is the cause, of a save behind the training
      if (error.code() != ExitCode::numerical)
        throw with_positions(error);
      publish_if_possible(saver);
      throw with_positions(with_way_back(error, files_.checkpoints(), run_.id));
    } catch (const std::exception& exception) {
      files_.sign_off_failed(error_from(exception, ExitCode::defect));
      throw;
    }
  }

 private:
  void measure_machine() {
    const Communicator& world = run_.mesh.world();
    agree_on_libraries<Compute<P>>(run_.config, world);
    const auto measure = [&] { gemm_rate_ = measure_gemm_rate<Compute<P>>(world); };
    if (exec_is_host)
      MemoryLedger::instance().record_library_scratch_of(measure);
    else  // what becomes resident is the host's memory, not the accelerator's
      measure();
    prediction_.emplace(run_.config, run_.layout, run_.mesh, gemm_rate_);
    peak_rate_ = peak_rate(run_.config, world);
    MemoryLedger::instance().reset_peak();  // of the training itself
  }

  void note_machine() const {
    note_(products_text(gemm_rate_, run_.mesh.world().size()));
    if (!exec_is_host)
      note_("attention by " + (why_not_cudnn(run_.config).empty()
                                   ? describe_attention<Compute<P>>(attention_shape(run_.config, run_.layout))
                                   : "own kernels, not cuDNN: " + why_not_cudnn(run_.config)));
    if (const std::size_t bytes = run_.mesh.world().context().link_bytes(); bytes > 0)
      note_(fmt::format("NCCL has taken about {} of the GPU, which no category counts", bytes_text(bytes)));
  }

  TrainOutcome train_in_directory(Trainer<P>& trainer, CheckpointSaver<P>& saver) {
    const RunConfig& config = run_.config;
    const Communicator& world = run_.mesh.world();
    const Index resumed_step = trainer.steps_done();
    if (events_.begins)
      events_.begins();
    stop_.begin();
    files_.sign_on(resumed_step, *prediction_);
    const AtEarlyExit sign_off(
        [path = files_.path()](const std::string& report) { sign_off_failed(path, report, ExitCode::communication); });
    attempt_together(world, ExitCode::write, [&] { tokenizer_.keep_in(files_.path()); });
    const nlohmann::json facts = run_facts(config, run_.mesh, options_.program, gemm_rate_, resumed_step + 1);
    if (!files_.keeps_figures())
      files_.update({{"facts", facts}});
    files_.open_records(resumed_step);
    Loop<P> loop(run_, events_, trainer, saver, *prediction_, peak_rate_, tokenizer_.tokenizer.get());
    if (config.stability.on_spike == "rollback" && (resumed_step == 0 || options_.resume != "auto"))
      loop.save();  // there is none of this run yet that it could go back to
    if (resumed_step >= config.total_steps())
      nothing_left(loop, saver, trainer);
    const TrainOutcome outcome = stop_.is_agreed() ? TrainOutcome::stopped : loop.run();
    loop.end();
    barrier(world);  // signed off only when every rank has come to the end
    files_.sign_off(outcome, stop_.cause());
    loop.sign_off();
    return outcome;
  }

  void nothing_left(Loop<P>& loop, CheckpointSaver<P>& saver, const Trainer<P>& trainer) const {
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

  // All ranks have ended in the same step, so the save behind them can still be agreed upon. What ended them stays the
  // cause, whatever becomes of it.
  static void publish_if_possible(CheckpointSaver<P>& saver) {
    try {
      saver.drain();
    } catch (const std::exception&) {  // told by the next start: its save was not finished
    }
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

template <class P>
TrainOutcome train(const RunConfig& config, const TrainOptions& options, const Layout& layout, const ProcessMesh& mesh,
                   const TrainEvents& events, const std::function<std::string()>& stop_request) {
  return Launch<P>(config, options, layout, mesh, events, stop_request).run();
}

#define ESPALIER_INSTANTIATE(P)                                                                            \
  template TrainOutcome train<P>(const RunConfig&, const TrainOptions&, const Layout&, const ProcessMesh&, \
                                 const TrainEvents&, const std::function<std::string()>&);
ESPALIER_FOR_PRECISIONS(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
