// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/checkpoint_saver.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <future>
#include <stop_token>
#include <thread>

#include "core/stopwatch.hpp"
#include "io/checkpoint/checkpoint_directory.hpp"
#include "parallel/collectives/agreement.hpp"
#include "parallel/collectives/collectives.hpp"
#include "training/checkpoint/sharded_save.hpp"

namespace espalier {
namespace {

// Work on a thread of its own. Asked to stop and waited for when it goes out of scope.
class BackgroundTask {
 public:
  explicit BackgroundTask(std::function<void(std::stop_token)> work);

  bool is_done() const;

  // Until the end, but no longer than this.
  void wait_for(std::chrono::milliseconds most) const { result_.wait_for(most); }

  // Waits for the end, once. @throws what the work threw.
  void get() { result_.get(); }

 private:
  std::packaged_task<void(std::stop_token)> work_;
  std::future<void> result_;
  std::jthread thread_;  // last: joined before the others go
};

BackgroundTask::BackgroundTask(std::function<void(std::stop_token)> work)
    : work_(std::move(work)), result_(work_.get_future()), thread_([this](std::stop_token stop) { work_(stop); }) {}

bool BackgroundTask::is_done() const { return result_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

}  // namespace

struct CheckpointSaver::BackgroundSave {
  ShardedSave save;
  Index step = 0;
  double copy_seconds = 0;
  double held_up = 0;  // seconds, before the first turn
  Stopwatch since_start = {};
  int turn = 0;
  std::optional<BackgroundTask> task = {};  // of this turn; last: it uses the save

  void start_turn() {
    task.emplace([this](const std::stop_token& stop) { save.write(turn, stop); });
  }
};

CheckpointSaver::CheckpointSaver(const RunConfig& config, const Path& checkpoints, const ProcessMesh& mesh,
                                 Trainer& trainer, Note note, std::string owner, std::function<void()> while_waiting)
    : config_(config),
      checkpoints_(checkpoints),
      mesh_(mesh),
      trainer_(trainer),
      note_(std::move(note)),
      owner_(std::move(owner)),
      while_waiting_(std::move(while_waiting)) {
  if (config.checkpoint.async)
    copy_.emplace(trainer.parameters(), unique_arrays(trainer, ownership_of(trainer)));
}

CheckpointSaver::~CheckpointSaver() = default;

void CheckpointSaver::save() {
  wait_for_the_one_before();
  const Stopwatch since_start;
  const AddSeconds held_up(seconds_);
  mesh_.world().observers().operation_begins(-1, "save", -1, -1);
  if (!copy_) {
    const Path path =
        save_training_state(checkpoints_, trainer_, config_, mesh_, config_.run_name(), ownership_of(trainer_), owner_);
    prune(trainer_.steps_done());
    note_(fmt::format("saved {} in {:.1f} s", path.string(), since_start.seconds()));
    return;
  }
  copy_->take(ExecSpace());
  const double copy_seconds = since_start.seconds();
  in_flight_.reset(  // NOLINT(modernize-make-unique): an aggregate that cannot be moved
      new BackgroundSave{.save = {checkpoints_, checkpoint_info(trainer_, config_, mesh_, config_.run_name(), owner_),
                                  copy_->state().blocks, copy_->state().tensors, mesh_.world(),
                                  config_.checkpoint.ranks_per_file, kept_checkpoints(config_)},
                         .step = trainer_.steps_done(),
                         .copy_seconds = copy_seconds,
                         .held_up = since_start.seconds(),
                         .since_start = since_start});
  in_flight_->start_turn();
}

void CheckpointSaver::wait_for_the_one_before() {
  if (!in_flight_)
    return;
  const Index before = in_flight_->step;
  const Stopwatch waiting;
  drain();
  const double seconds = waiting.seconds();
  constexpr double worth_advice = 0.1;
  note_(fmt::format("the save of step {} waited {:.1f} s for that of step {} (wait {} of this launch){}",
                    trainer_.steps_done(), seconds, before, ++waits_,
                    seconds < worth_advice ? "" : ": use a longer checkpoint.interval or a faster disk"));
}

void CheckpointSaver::poll() {
  if (!in_flight_)
    return;
  const AddSeconds held_up(seconds_);
  if (!is_writing())
    end_turn();
}

bool CheckpointSaver::is_writing() {
  return all_reduce(mesh_.world(), Index{in_flight_->task->is_done() ? 0 : 1}, ReduceOp::max) > 0;
}

void CheckpointSaver::drain() {
  const AddSeconds held_up(seconds_);
  if (in_flight_)
    mesh_.world().observers().operation_begins(-1, "save", -1, -1);
  while (in_flight_) {
    while (is_writing()) {
      if (while_waiting_)
        while_waiting_();
      in_flight_->task->wait_for(std::chrono::milliseconds(200));
    }
    end_turn();
  }
}

void CheckpointSaver::judge(double validation_loss) {
  if (std::isfinite(validation_loss))
    return;
  const Index step = trainer_.steps_done();
  if (in_flight_ && in_flight_->step == step) {
    in_flight_->task.reset();  // on every rank, before rank 0 removes the files
    barrier(mesh_.world());
    in_flight_.reset();
  }
  attempt_together(mesh_.world(), ExitCode::write, [&] {
    if (mesh_.world().rank() == 0)
      for (const Path& path : set_aside_checkpoints_after(checkpoints_, step - 1, owner_))
        note_(fmt::format("set aside {}: its validation loss is not finite", path.string()));
  });
  throw Error(ExitCode::numerical,
              {.what = "the training diverged: the validation loss is not finite",
               .where = fmt::format("after step {}", step),
               .got = fmt::format("{}", std::abs(validation_loss)),
               .wanted = "a finite number",
               .todo = fmt::format("nothing resumes from this step; {}; in fp16, try precision.compute=bf16",
                                   todo_when_diverged)});
}

void CheckpointSaver::end_turn() {
  const Stopwatch ending;
  std::unique_ptr<BackgroundSave> ended = std::move(in_flight_);  // gone, when a rank has failed
  attempt_together(mesh_.world(), ExitCode::write, [&] { ended->task->get(); });
  if (++ended->turn < ended->save.num_turns()) {
    ended->start_turn();
    in_flight_ = std::move(ended);
    return;
  }
  const Path path = ended->save.publish();
  prune(ended->step);
  note_(fmt::format("saved {} in {:.1f} s during training, which was delayed by {:.2f} s ({:.2f} s to copy)",
                    path.string(), ended->since_start.seconds(), ended->held_up + ending.seconds(),
                    ended->copy_seconds));
}

void CheckpointSaver::prune(Index newest) {
  attempt_together(mesh_.world(), ExitCode::write, [&] {
    if (mesh_.world().rank() == 0)
      prune_checkpoints(checkpoints_, kept_checkpoints(config_), newest, owner_);
  });
}

}  // namespace espalier
