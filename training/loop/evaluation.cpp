// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/evaluation.hpp"

#include "core/kokkos_compat.hpp"
#include "parallel/collectives/collectives.hpp"
#include "training/step/token_counts.hpp"

namespace espalier {

std::optional<MeanLoss> evaluate_loss(const ExecSpace& exec, const Tensor<double, 0>& loss,
                                      const std::function<void(const Batch&, double)>& add_loss,
                                      const EvaluationData& data, const Communicator& world,
                                      const std::function<bool(Index, Index)>& must_stop) {
  const Tensor<double, 1> sum = element(loss);  // of this rank
  Kokkos::deep_copy(exec, sum, 0.0);
  const double token_weight = 1.0 / static_cast<double>(data.valid_tokens);
  Index valid_tokens = 0;  // of this rank
  const Index total = data.num_batches;
  for (Index done = 0; done < total; ++done) {
    if (must_stop(done, total))
      return std::nullopt;
    const Batch batch = data.batch(done);
    add_loss(batch, token_weight);
    valid_tokens += count_valid(batch);
    compat::fence(exec, "espalier::evaluate_loss: a stop is asked for between batches");
  }
  if (must_stop(total, total))
    return std::nullopt;
  const auto host = Kokkos::create_mirror_view(sum);
  Kokkos::deep_copy(exec, host, sum);
  compat::fence(exec, "espalier::evaluate_loss: the loss is read on the host");
  valid_tokens = all_reduce(world, valid_tokens);
  require_valid(valid_tokens);
  const double share = static_cast<double>(valid_tokens) / static_cast<double>(data.valid_tokens);
  return MeanLoss{all_reduce(world, host(0)) / share, valid_tokens};
}

}  // namespace espalier
