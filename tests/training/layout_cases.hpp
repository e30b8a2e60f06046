// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/training/tiny_run.hpp"

namespace espalier::test {

using Overrides = std::vector<std::string>;

// Four layers, eight where as many stages want one each. Neither 2 nor 4 nor 8 ranks divide the 61 rows of the table.
inline RunConfig split_config(const SharedFolder& folder, Overrides more = {}) {
  Overrides overrides = {fmt::format("model.num_layers={}", world().size() == 8 ? 8 : 4), "model.num_heads=8",
                         "batch.micro_batch_size=2"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return tiny_config(folder, 1, overrides);
}

inline Overrides degrees(int tensor, int data, int pipeline, Overrides more = {}) {
  Overrides overrides = {fmt::format("parallel.tensor={}", tensor), fmt::format("parallel.data={}", data),
                         fmt::format("parallel.pipeline={}", pipeline)};
  if (data == 8)
    overrides.emplace_back("batch.micro_batch_size=1");
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

// All that this number of ranks has. Of several copies also two micro-batches, after the last of which they are summed.
inline std::vector<RunConfig> configs_to_verify(const RunConfig& base) {
  std::vector<RunConfig> configs;
  for (Overrides overrides : settings_to_verify(base, world().size())) {
    for (const char* const several : {"parallel.data=8", "parallel.shard_over=node"})
      if (std::ranges::count(overrides, several) > 0)
        overrides.emplace_back("batch.micro_batch_size=1");
    configs.push_back(laid_out(base, overrides));
  }
  return configs;
}

// Layouts that between them have all kinds of cuts.
inline std::vector<Overrides> some_layouts() {
  const Overrides sp = {"parallel.sequence_parallel=true"}, zb = {"parallel.schedule=zero_bubble"},
                  zero = {"parallel.zero_stage=3", "parallel.recompute=selective"};
  if (world().size() == 2)
    return {degrees(2, 1, 1), degrees(2, 1, 1, sp), degrees(1, 1, 2, zb), degrees(1, 2, 1, zero)};
  if (world().size() == 4)
    return {
        degrees(4, 1, 1, sp), degrees(2, 1, 2, zb), degrees(2, 2, 1, zero), degrees(1, 1, 4),
        degrees(1, 2, 2, {"parallel.schedule=interleaved", "parallel.virtual_stages=2", "parallel.recompute=full"})};
  return {degrees(2, 2, 2, sp), degrees(4, 1, 2, zb), degrees(4, 2, 1, zero), degrees(1, 2, 4)};
}

// Shapes that do not come out even, each against one rank with the same model and batch.
struct OddLayout {
  const char* what;
  Overrides model;  // and batch
  Overrides layout;
};

inline std::vector<OddLayout> odd_layouts(int ranks) {
  const auto pipeline = [&](const char* schedule, Overrides more = {}) {
    more.push_back(fmt::format("parallel.schedule={}", schedule));
    return degrees(1, ranks / 2, 2, more);
  };
  const auto stages = [&](const char* schedule, Overrides more = {}) {
    more.push_back(fmt::format("parallel.schedule={}", schedule));
    return degrees(1, 1, ranks, more);
  };
  const std::string six_layers = "model.num_layers=6";
  std::vector<OddLayout> layouts = {
      {"uneven layers", {six_layers}, pipeline("1f1b", {"parallel.layers_per_stage=[1,5]"})},
      {"uneven layers", {six_layers}, pipeline("zero_bubble", {"parallel.layers_per_stage=[4,2]"})},
      {"uneven chunks",
       {six_layers},
       pipeline("interleaved", {"parallel.virtual_stages=2", "parallel.layers_per_stage=[1,2,2,1]"})},
      {"round robin", {six_layers}, pipeline("interleaved", {"parallel.assignment=round_robin"})},
      {"round robin", {six_layers}, pipeline("gpipe", {"parallel.assignment=round_robin"})},
      {"fewer micro-batches than stages", {"batch.global_batch_size=8"}, stages("1f1b", {"batch.micro_batch_size=8"})},
      {"fewer micro-batches than stages", {}, stages("zero_bubble", {"batch.micro_batch_size=8"})},
      {"fewer micro-batches than stages", {}, stages("gpipe", {"batch.micro_batch_size=8"})},
      {"fewer micro-batches than stages", {}, stages("sequential", {"batch.micro_batch_size=8"})},
      {"many buckets of gradients", {}, degrees(1, ranks, 1, {"emulate.message_scale=5000", "parallel.zero_stage=1"})},
      {"many buckets of gradients", {}, pipeline("1f1b", {"emulate.message_scale=5000"})},
      {"a vocabulary of which the last rank has least", {"model.vocab_size=65"}, degrees(ranks, 1, 1)},
      {"a vocabulary of which the last rank has least",
       {"model.vocab_size=65"},
       degrees(ranks, 1, 1, {"parallel.sequence_parallel=true"})},
  };
  if (ranks == 4) {
    layouts.push_back({"micro-batches that stages do not divide",
                       {"model.num_layers=8", "batch.global_batch_size=10"},
                       stages("interleaved", {"parallel.virtual_stages=2"})});
    layouts.push_back({"two micro-batches on four stages",
                       {"model.num_layers=8"},
                       stages("interleaved", {"parallel.virtual_stages=2", "batch.micro_batch_size=4"})});
    for (const char* const order : {"pp,tp,dp", "dp,pp,tp", "pp,dp,tp", "dp,tp,pp", "tp,pp,dp"})
      layouts.push_back(
          {"another order of the axes",
           {},
           degrees(2, 1, 2, {fmt::format("parallel.order=\"{}\"", order), "parallel.schedule=zero_bubble"})});
  }
  if (ranks == 8)
    for (const char* const order : {"pp,dp,tp", "dp,pp,tp"})
      layouts.push_back({"another order of the axes",
                         {},
                         degrees(2, 2, 2,
                                 {fmt::format("parallel.order=\"{}\"", order), "parallel.sequence_parallel=true",
                                  "parallel.zero_stage=1"})});
  return layouts;
}

}  // namespace espalier::test
