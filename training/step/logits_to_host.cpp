// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/step/logits_to_host.hpp"

#include <algorithm>

#include "core/parameter_spec.hpp"
#include "parallel/collectives/collectives.hpp"

namespace espalier {

std::vector<float> gather_columns(std::vector<float> local, Index rows, Index vocab_size, const Communicator& tensor) {
  const auto columns_of = [&](int rank) { return Shard{0, rank, tensor.size()}.range(vocab_size); };
  local.resize(static_cast<std::size_t>(columns_of(0).size() * rows));
  std::vector<float> shares(local.size() * static_cast<std::size_t>(tensor.size()));  // (tp, rows * ceil(V/tp))
  all_gather(tensor, std::span<float>(shares), std::span<const float>(local));
  std::vector<float> all(static_cast<std::size_t>(rows * vocab_size));
  for (int rank = 0; rank < tensor.size(); ++rank) {
    const IndexRange columns = columns_of(rank);
    for (Index row = 0; row < rows; ++row)
      std::copy_n(shares.begin() + rank * std::ssize(local) + row * columns.size(), columns.size(),
                  all.begin() + row * vocab_size + columns.begin);
  }
  return all;
}

}  // namespace espalier
