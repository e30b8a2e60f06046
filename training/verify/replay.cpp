// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/verify/replay.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/ops/matmul_library.hpp"
#include "core/with_scalar_type.hpp"
#include "io/checkpoint/checkpoint_directory.hpp"
#include "training/checkpoint/stored_state.hpp"
#include "training/checkpoint/training_state.hpp"
#include "training/config/stored_config.hpp"
#include "training/loop/resume.hpp"
#include "training/prediction/gemm_rate.hpp"
#include "training/step/matmul_choices.hpp"
#include "training/step/typed_trainer.hpp"
#include "training/verify/layouts_to_verify.hpp"

namespace espalier {
namespace {

// NaN is above everything, and infinity above every number.
bool is_larger(double a, double b) { return std::isnan(a) ? !std::isnan(b) : a > b; }

std::vector<TensorNorm> gradient_norms(const Trainer& trainer, double loss_scale) {
  std::vector<SquaredNorm::Range> ranges;
  std::vector<TensorNorm> norms;
  for (const Parameter& parameter : trainer.parameters()) {
    ranges.push_back({parameter.offset, parameter.size});
    norms.push_back({parameter.spec.name, 0});
  }
  const ExecSpace exec;
  const SquaredNorm squares(exec, ranges);
  const FlatArray gradients = trainer.arrays().gradients;
  with_state_type(gradients.type, [&]<class S>() { squares.compute<S>(exec, gradients.values<S>()); });
  const auto host = Kokkos::create_mirror_view(squares.sums());
  Kokkos::deep_copy(exec, host, squares.sums());
  compat::fence(exec, "espalier::replay: the norms are read on the host");
  for (std::size_t i = 0; i < norms.size(); ++i)
    norms[i].norm = std::sqrt(host(i)) / loss_scale;
  std::stable_sort(norms.begin(), norms.end(),
                   [](const TensorNorm& a, const TensorNorm& b) { return is_larger(a.norm, b.norm); });
  return norms;
}

// A trainer with the incident's weights and loss scale.
class ReplayTrainer {
 public:
  ReplayTrainer(const RunConfig& config, const ProcessMesh& mesh, const CheckpointReader& checkpoint)
      : trainer_(make_trainer(ExecSpace(), config, make_run_layout(config, 1), mesh)) {
    const StoredState state = read_state(checkpoint);
    load_weights(checkpoint, *trainer_, names_of(trainer_->parameters()));
    if (trainer_->loss_scaler().is_active())
      trainer_->loss_scaler().restore(state.loss_scaler);
  }

  StepReport compute(Index step, Index first_sample) {
    trainer_->restore(step - 1, first_sample, 0);
    return trainer_->compute_gradients();
  }

  const Trainer& trainer() const { return *trainer_; }

 private:
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace

RunConfig replay_config(const Path& incident, const std::vector<std::string>& overrides) {
  const CheckpointReader checkpoint(resolve_checkpoint(incident));
  std::vector<std::string> all = one_rank_settings();
  all.emplace_back("run.device_memory=0");  // a budget was that of the ranks it came from
  all.insert(all.end(), overrides.begin(), overrides.end());
  RunConfig config = parse_run_config(stored_config(checkpoint), checkpoint.path().string(), all, 1);
  config.emulate = {};
  return config;
}

Replay replay(const Path& incident_path, const Incident& incident, const RunConfig& config, const ProcessMesh& mesh,
              const std::function<void(const std::string&)>& note) {
  const CheckpointReader checkpoint(resolve_checkpoint(incident_path));
  require_same_model(checkpoint, config);
  set_libraries(config);
  const StoredState state = read_state(checkpoint);
  restore_matmul_library(state, config, note);
  restore_matmul_choices(state.matmul_kernels, mesh.world().rank(), note);
  Replay result;
  {
    ReplayTrainer whole(config, mesh, checkpoint);
    const StepReport report = whole.compute(incident.step, incident.samples.begin);
    result.loss = report.loss;
    result.gradient_norm = report.gradient_norm;
    result.tensors = gradient_norms(whole.trainer(), report.loss_scale);
  }
  RunConfig one_sample = config;
  one_sample.layout.global_batch = 1;
  one_sample.layout.micro_batch = 1;
  ReplayTrainer single(one_sample, mesh, checkpoint);
  for (Index sample = incident.samples.begin; sample < incident.samples.end; ++sample) {
    const StepReport report = single.compute(incident.step, sample);
    const SampleIndex::Location location = single.trainer().locate(sample);
    result.samples.push_back({.sample = sample,
                              .file = location.file->info().path.string(),
                              .first_token = location.first_token,
                              .loss = report.loss,
                              .gradient_norm = report.gradient_norm,
                              .largest = gradient_norms(single.trainer(), report.loss_scale).front()});
  }
  return result;
}

bool is_reproduced(double recorded, double replayed, double tolerance) {
  if (!std::isfinite(recorded) || !std::isfinite(replayed))
    return std::isfinite(recorded) == std::isfinite(replayed);
  return std::abs(recorded - replayed) <= tolerance * std::max(std::abs(recorded), std::abs(replayed));
}

}  // namespace espalier
