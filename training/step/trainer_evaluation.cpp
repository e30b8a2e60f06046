// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// The part of Trainer that only runs forward: losses of data that it is not trained on, and logits for samples of text.
#include <algorithm>

#include "core/kokkos_compat.hpp"
#include "core/stopwatch.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/launch/failure.hpp"
#include "training/step/trainer.hpp"

namespace espalier {

void Trainer::run_forward(const std::vector<Batch>& batches, double weight) {
  forward(transfers_.stage(exec_, batches, weight));
}

double Trainer::mean_loss(const std::function<bool()>& forward_all) {
  Kokkos::deep_copy(exec_, element(loss()), 0.0);
  double mean = 0;
  const EvaluationScope no_step(mesh_->world().observers());
  abort_links_on_error(mesh_->world(), [&] {
    if (!forward_all())
      return;
    const bool has_loss = mesh_->pp().rank() == mesh_->pp().size() - 1 && mesh_->tp().rank() == 0;
    mean = all_reduce(mesh_->world(), has_loss ? transfers_.read(exec_, {element(loss())}).front() : 0.0);
  });
  return mean;
}

double Trainer::mean_loss(const std::vector<Batch>& batches, Index max_tokens) {
  return mean_loss([&] {
    run_forward(batches, token_weight(counts_of(batches, max_tokens).valid_tokens));
    return true;
  });
}

std::optional<double> Trainer::evaluate(const std::function<bool(Index, Index)>& must_stop) {
  ESPALIER_ASSERT(validation_, "the config names no validation files");
  // Tokens wait in memory that no prediction counts: not all at once, and enough to keep the stages busy.
  constexpr double seconds_at_a_time = 0.5;
  const Index stages = mesh_->pp().size();
  const Index most = 16 * stages;
  const Index total = validation_->num_batches();
  const Index max_tokens = validation_->valid_tokens();
  Index valid_tokens = validation_->all_targets_count() ? max_tokens : 0;
  Index at_a_time = stages;
  Index done = 0;
  const double loss = mean_loss([&] {
    while (done < total) {
      if (must_stop && must_stop(done, total))
        return false;
      const Stopwatch stopwatch;
      std::vector<Batch> batches;
      for (const Index end = std::min(done + at_a_time, total); done < end; ++done)
        batches.push_back(validation_->batch(done));
      run_forward(batches, token_weight(max_tokens));
      if (!validation_->all_targets_count())
        valid_tokens += count_tokens(batches, config_.model.shape, mesh_->dp()).valid_tokens;
      compat::fence(exec_, "espalier::Trainer::evaluate: a stop is asked for between batches");
      const double seconds = all_reduce(mesh_->world(), stopwatch.seconds(), ReduceOp::max);  // one size on all ranks
      const double wanted = static_cast<double>(std::ssize(batches)) * seconds_at_a_time / std::max(seconds, 1e-9);
      at_a_time = std::clamp(static_cast<Index>(std::min(wanted, 1e9)), stages, most);
    }
    return true;
  });
  if (done < total)
    return std::nullopt;
  require_valid(valid_tokens);
  return loss / (static_cast<double>(valid_tokens) / static_cast<double>(max_tokens));
}

double Trainer::next_loss(Index num_samples) {
  return mean_loss(loader_.preview(num_samples), num_samples * config_.sequence_length);
}

double Trainer::past_loss(Index num_samples) {
  const Index position = loader_.position();
  loader_.seek(position - config_.layout.global_batch);
  const std::vector<Batch> batches = loader_.preview(num_samples);
  loader_.seek(position);
  return mean_loss(batches, num_samples * config_.sequence_length);
}

std::vector<float> Trainer::next_logits(const Batch& batch, std::span<const Index> rows) {
  const Index vocab = config_.model.shape.vocab_size;
  const int last = mesh_->pp().size() - 1;
  std::vector<float> logits(rows.size() * static_cast<std::size_t>(vocab));  // (rows, V)
  const EvaluationScope no_step(mesh_->world().observers());
  abort_links_on_error(mesh_->world(), [&] {
    run_forward({batch}, 1);  // no target counts
    for (std::size_t i = 0; mesh_->pp().rank() == last && i < rows.size(); ++i)
      std::ranges::copy(logits_of(rows[i]), logits.begin() + static_cast<Index>(i) * vocab);
    broadcast(mesh_->world(), std::span<float>(logits), mesh_->layout().first_rank_of_stage(last));
    require_links_alive(mesh_->world());
  });
  return logits;
}

}  // namespace espalier
