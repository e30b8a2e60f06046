// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// The part of Trainer that gives logits, for samples of text.
#include <algorithm>

#include "parallel/collectives.hpp"
#include "parallel/failure.hpp"
#include "training/logits_to_host.hpp"
#include "training/trainer.hpp"

namespace espalier {

template <class P>
std::vector<float> Trainer<P>::next_logits(const Batch& batch, std::span<const Index> rows) {
  const Index vocab = config_.model.shape.vocab_size;
  const int last = mesh_->pp().size() - 1;
  std::vector<float> logits(rows.size() * static_cast<std::size_t>(vocab));  // (rows, V)
  const Evaluation no_step(mesh_->world().observers());
  or_abandon_links(mesh_->world(), [&] {
    forward({batch}, 1);  // no target counts
    for (std::size_t i = 0; mesh_->pp().rank() == last && i < rows.size(); ++i)
      std::ranges::copy(logits_to_host(exec_, model_.evaluated_logits(exec_, rows[i]), vocab, &mesh_->tp()),
                        logits.begin() + static_cast<Index>(i) * vocab);
    broadcast(mesh_->world(), std::span<float>(logits), mesh_->layout().first_rank_of_stage(last));
    require_links_alive(mesh_->world());
  });
  return logits;
}

#define ESPALIER_INSTANTIATE(P) \
  template std::vector<float> Trainer<P>::next_logits(const Batch&, std::span<const Index>);
ESPALIER_FOR_PRECISIONS(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
