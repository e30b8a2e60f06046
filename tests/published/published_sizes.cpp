// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/published/published_sizes.hpp"

#include <algorithm>

#include "core/scalars.hpp"
#include "models/cost.hpp"

namespace espalier {

void round_sizes_up(ModelConfig& model, Index ranks) {
  Index& kv_heads = model.num_kv_heads;  // 0: as many as heads
  if (model.num_heads < 1 || (kv_heads > 0 && model.num_heads % kv_heads != 0))
    return;  // no model
  model.head_dim = model.head_size();
  while (kv_heads > 0 && kv_heads % ranks != 0 && ranks % kv_heads != 0)
    ++kv_heads;
  while (model.num_heads % ranks != 0 || (kv_heads > 0 && model.num_heads % kv_heads != 0))
    ++model.num_heads;
  model.ffn_hidden_size = (model.ffn_hidden_size + ranks - 1) / ranks * ranks;
}

std::vector<Index> published_blocks(Index num_layers, int parts) {
  std::vector<Index> blocks(static_cast<std::size_t>(parts), num_layers / parts);
  const Index rest = num_layers % parts;
  if (rest == 0)
    return blocks;
  if ((num_layers + 2) % parts == 0) {
    blocks.assign(static_cast<std::size_t>(parts), (num_layers + 2) / parts);
    --blocks.front();
    --blocks.back();
    return blocks;
  }
  for (Index i = 0; i < rest; ++i)  // the longer parts in the middle: first and last have embedding and head
    ++blocks[static_cast<std::size_t>((parts - rest) / 2 + i)];
  return blocks;
}

std::vector<Index> published_blocks(Index num_layers, const Layout& layout) {
  return layout.layers.empty() ? published_blocks(num_layers, layout.num_parts()) : layout.layers;
}

bool divides_blocks(Index num_layers, int parts) { return num_layers % parts == 0 || (num_layers + 2) % parts == 0; }

std::vector<Index> balanced_blocks(const ModelConfig& model, int parts) {
  const double block = to_double(matrix_parameters_per_layer(model));
  const double all = to_double(model.num_layers) * block + to_double(head_parameters(model));
  std::vector<Index> blocks(static_cast<std::size_t>(parts), 0);
  std::size_t part = 0;
  for (Index i = 1; i <= model.num_layers; ++i) {
    ++blocks[part];
    if (part + 1 < blocks.size() && to_double(i) * block > all * to_double(static_cast<Index>(part + 1)) / parts)
      ++part;
  }
  return blocks;
}

}  // namespace espalier
