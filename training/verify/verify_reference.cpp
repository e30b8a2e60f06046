// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/verify/verify_reference.hpp"

#include "io/json_reader.hpp"
#include "io/pack/json_text.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/texts.hpp"
#include "training/config/shard_over.hpp"
#include "training/step/typed_trainer.hpp"
#include "training/verify/logical_tensors.hpp"

namespace espalier {

void share_numbers(Snapshot& snapshot, const Communicator& world) {
  std::array<double, 2> shared = {snapshot.loss, snapshot.gradient_norm};
  broadcast(world, std::span<double>(shared), 0);
  snapshot.loss = shared[0];
  snapshot.gradient_norm = shared[1];
  std::array<Index, 2> counts = {snapshot.steps_done, snapshot.data_position};
  broadcast(world, std::span<Index>(counts), 0);
  snapshot.steps_done = counts[0];
  snapshot.data_position = counts[1];
  snapshot.loss_scaler = parse_json(broadcast_text(world, json_text(snapshot.loss_scaler), 0));
}

Reference::Reference(const RunConfig& config, const VerifyOptions& options, const Communicator& world)
    : world_(world), group_(world.split(options.reference.empty() ? world.rank() : 0, world.rank(), "reference")) {
  takes_part_ = !options.reference.empty() || world.rank() == 0;
  if (!takes_part_)
    return;
  RunConfig own = parse_run_config(to_toml(config), "the reference", options.reference, group_.size());
  resolve_ranks_per_node(own, group_);
  const Layout layout = make_run_layout(own, group_.size());
  text_ = layout.short_text();
  mesh_.emplace(group_, layout.mesh());
  trainer_ = make_trainer(ExecSpace(), own, layout, *mesh_);
}

Snapshot Reference::step() {
  Snapshot snapshot;
  while (takes_part_ && !taken(snapshot)) {  // a step that is skipped compares nothing; the next has a lower loss scale
  }
  share_numbers(snapshot, world_);
  return snapshot;
}

bool Reference::taken(Snapshot& snapshot) {
  Trainer& trainer = *trainer_;
  const TrainedArrays arrays = trainer.arrays();
  const auto weights = [&] { return copy_of(trainer, master_weights(trainer), arrays.has_master_weights()); };
  snapshot.steps_done = trainer.steps_done();
  snapshot.data_position = trainer.data_position();
  snapshot.loss_scaler = trainer.loss_scaler().state();
  snapshot[SnapshotArray::weights_before] = weights();
  snapshot[SnapshotArray::exp_avg] = copy_of(trainer, scattered(arrays.exp_avg, arrays.flat_size), true);
  snapshot[SnapshotArray::exp_avg_sq] = copy_of(trainer, scattered(arrays.exp_avg_sq, arrays.flat_size), true);
  StepReport report = trainer.compute_gradients();
  snapshot.loss = report.loss;
  snapshot.gradient_norm = report.gradient_norm;
  snapshot[SnapshotArray::gradients] = copy_of(trainer, scattered(arrays.gradients, arrays.flat_size), true);
  trainer.update(report);
  snapshot[SnapshotArray::weights_after] = weights();
  return !report.skipped;
}

}  // namespace espalier
