// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// How layers are dealt out to the parts of a pipeline, against all ways to do it.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "models/layer_partition.hpp"

namespace espalier {
namespace {

double costliest_part(const std::vector<Index>& layers, const std::vector<LayerCosts>& costs) {
  double most = 0;
  for (std::size_t part = 0; part < layers.size(); ++part) {
    double cost = static_cast<double>(layers[part]) * costs[part].block;
    cost += part == 0 ? costs[part].embedding : 0;
    cost += part + 1 == layers.size() ? costs[part].head : 0;
    most = std::max(most, cost);
  }
  return most;
}

// Of all ways to give at least one layer to each part.
double cheapest(Index num_layers, const std::vector<LayerCosts>& costs, std::vector<Index>& layers) {
  const Index left = num_layers - std::accumulate(layers.begin(), layers.end(), Index{0});
  if (layers.size() + 1 == costs.size()) {
    layers.push_back(left);
    const double cost = costliest_part(layers, costs);
    layers.pop_back();
    return cost;
  }
  double best = std::numeric_limits<double>::infinity();
  const auto others = static_cast<Index>(costs.size() - layers.size() - 1);
  for (Index count = 1; count <= left - others; ++count) {
    layers.push_back(count);
    best = std::min(best, cheapest(num_layers, costs, layers));
    layers.pop_back();
  }
  return best;
}

TEST(LayerPartition, no_other_split_has_a_cheaper_costliest_part) {
  for (const double embedding : {0.0, 0.4, 3.0})
    for (const double head : {0.0, 0.7, 6.5})
      for (const std::vector<double>& blocks :
           std::vector<std::vector<double>>{{1}, {1, 1}, {1.33, 1}, {1, 1, 1}, {1.33, 1, 1}, {1, 2.5, 0.7, 1.33}})
        for (auto num_layers = static_cast<Index>(blocks.size()); num_layers <= 9; ++num_layers) {
          std::vector<LayerCosts> costs;
          for (const double block : blocks)
            costs.push_back({.embedding = embedding, .block = block, .head = head});
          const std::vector<Index> layers = balance_layers(num_layers, costs);
          ASSERT_EQ(layers.size(), blocks.size());
          EXPECT_EQ(std::accumulate(layers.begin(), layers.end(), Index{0}), num_layers);
          EXPECT_GE(*std::min_element(layers.begin(), layers.end()), 1);
          std::vector<Index> none;
          EXPECT_NEAR(costliest_part(layers, costs), cheapest(num_layers, costs, none), 1e-9)
              << num_layers << " layers on " << blocks.size() << " parts, embedding " << embedding << ", head " << head;
        }
}

TEST(LayerPartition, as_even_as_the_costliest_part_allows) {
  EXPECT_EQ(balance_layers(10, 4, {}), (std::vector<Index>{2, 2, 3, 3}));
  EXPECT_EQ(balance_layers(12, 4, {.embedding = 0, .block = 1, .head = 1.5}), (std::vector<Index>{3, 3, 4, 2}));
  EXPECT_EQ(balance_layers(8, {{.block = 1}, {.block = 3}}), (std::vector<Index>{6, 2}));
}

}  // namespace
}  // namespace espalier
