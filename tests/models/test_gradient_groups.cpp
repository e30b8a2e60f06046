// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Over which ranks the gradient of each parameter of a decoder is summed: by key, by brute force from the rule, and by
// the cases that a key replaces. Every layout of up to 64 ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/decoder.hpp"
#include "parallel/mesh/mesh_layout.hpp"

namespace espalier {
namespace {

constexpr AxisOrder reversed{Axis::pp, Axis::dp, Axis::tp};

// Every tp rank holds these whole; under sequence parallelism it applies them to rows of its own.
bool is_applied_to_local_rows(const std::string& name) {
  return name.find("norm") != std::string::npos || name == "embedding.position" ||
         name.ends_with("attention.proj.bias") || name.ends_with("mlp.down.bias");
}

// A parameter as one rank holds it.
struct Held {
  ParameterSpec spec;
  IndexRange range;  // of the dimension that is cut
};

// What the ranks of a stage and a tp coordinate hold; dp does not matter.
class Model {
 public:
  Model(int tensor, int pipeline, bool sequence_parallel, int kv_heads = 0) : tensor_(tensor) {
    const ModelConfig config{.vocab_size = 2 * tensor + 1,
                             .max_sequence_length = 4,
                             .num_layers = pipeline,
                             .hidden_size = 2 * tensor,
                             .num_heads = tensor,
                             .ffn_hidden_size = 3 * tensor,
                             .num_kv_heads = kv_heads,
                             .qk_norm = kv_heads > 0};
    for (int stage = 0; stage < pipeline; ++stage)
      for (int tp = 0; tp < tensor; ++tp) {
        ParameterStore<float> parameters;
        const ChunkLayers chunk{.first = stage, .count = 1, .embedding = stage == 0, .head = stage == pipeline - 1};
        const Decoder<Fp32> decoder(parameters, config, {chunk}, TensorParallel<float>(tp, tensor, sequence_parallel));
        auto& held = held_.emplace_back();
        for (const Parameter& parameter : parameters.parameters()) {
          const ParameterSpec& spec = parameter.spec;
          const auto id =
              static_cast<std::size_t>(ids_.try_emplace(spec.name, static_cast<int>(ids_.size())).first->second);
          held.resize(std::max(held.size(), id + 1));
          held[id] = Held{spec, spec.shard.range(spec.shape[static_cast<std::size_t>(spec.shard.dim)])};
        }
      }
    for (auto& held : held_)
      held.resize(ids_.size());
  }

  /// By number of the parameter: the same on all ranks.
  const std::vector<std::optional<Held>>& of(const PerAxis& coordinates) const {
    return held_[static_cast<std::size_t>(coordinates[Axis::pp] * tensor_ + coordinates[Axis::tp])];
  }

 private:
  int tensor_;
  std::map<std::string, int> ids_;
  std::vector<std::vector<std::optional<Held>>> held_;  // [stage x tp][parameter]
};

/// A gradient is summed over all ranks that hold the same index range of the tensor and whose contributions are parts
/// of the sum: those of other samples, of other rows, or of another use. Ascending.
std::vector<int> by_rule(const MeshLayout& layout, const Model& model, int rank, std::size_t id, bool local_rows) {
  const PerAxis ours = layout.coordinates(rank);
  const Held& held = *model.of(ours)[id];
  std::vector<int> ranks;
  for (int other = 0; other < layout.size(); ++other) {
    const PerAxis coordinates = layout.coordinates(other);
    const std::optional<Held>& theirs = model.of(coordinates)[id];
    const bool is_copy = coordinates[Axis::tp] != ours[Axis::tp] && !local_rows;  // of a rank that is among them
    if (theirs && theirs->range == held.range && !is_copy)
      ranks.push_back(other);
  }
  return ranks;
}

/// The cases that a key replaces, in the order of the sum.
std::vector<int> by_cases(const MeshLayout& layout, int rank, bool tied, bool local_rows) {
  const PerAxis ours = layout.coordinates(rank);
  const int last = layout.degree(Axis::pp) - 1;
  const bool both_ends = tied && last > 0 && (ours[Axis::pp] == 0 || ours[Axis::pp] == last);
  std::vector<int> ranks;
  for (const int stage : both_ends ? std::vector<int>{0, last} : std::vector<int>{ours[Axis::pp]})
    for (int dp = 0; dp < layout.degree(Axis::dp); ++dp)
      for (int tp = 0; tp < layout.degree(Axis::tp); ++tp)
        if (local_rows || tp == ours[Axis::tp])
          ranks.push_back(layout.rank_at(PerAxis::coordinates(tp, dp, stage)));
  return ranks;
}

void expect_groups(const MeshLayout& layout, const Model& model, bool sequence_parallel) {
  for (int rank = 0; rank < layout.size(); ++rank) {
    const auto& held = model.of(layout.coordinates(rank));
    for (std::size_t id = 0; id < held.size(); ++id) {
      if (!held[id])
        continue;
      const ParameterSpec& spec = held[id]->spec;
      const bool local_rows = sequence_parallel && layout.degree(Axis::tp) > 1 && is_applied_to_local_rows(spec.name);
      const std::vector<int> ranks = layout.reduction_ranks(rank, spec.group());
      ASSERT_EQ(ranks, by_cases(layout, rank, spec.name == "embedding.token", local_rows)) << spec.name;
      const GroupRank ours = layout.group_rank(rank, spec.group());
      ASSERT_EQ(static_cast<std::size_t>(ours.size), ranks.size());
      ASSERT_EQ(ranks[static_cast<std::size_t>(ours.rank)], rank);
      std::vector<int> ascending = ranks;
      std::sort(ascending.begin(), ascending.end());
      ASSERT_EQ(ascending, by_rule(layout, model, rank, id, local_rows))
          << spec.name << " on rank " << rank << " of " << layout.text() << " in " << to_string(layout.order);
    }
  }
}

TEST(GradientGroups, AreThoseOfTheRuleOnEveryLayout) {
  for (int tensor = 1; tensor <= 64; ++tensor)
    for (int pipeline = 1; tensor * pipeline <= 64; ++pipeline)
      for (const bool sequence_parallel : {false, true}) {
        const Model model(tensor, pipeline, sequence_parallel);
        for (int data = 1; tensor * data * pipeline <= 64; ++data)
          for (const auto& order : {MeshLayout{}.order, reversed})
            expect_groups({.degrees = PerAxis::degrees(tensor, data, pipeline), .order = order}, model,
                          sequence_parallel);
        if (HasFatalFailure())
          return;
      }
}

// Fewer heads of keys and values than tensor ranks: runs of ranks hold the same, each for its own queries. All ranks
// hold the norms of Q and K, for heads of their own.
TEST(GradientGroups, RanksThatHoldTheSameHeadsOfKeysSumTheirGradients) {
  for (int tensor = 2; tensor <= 32; ++tensor)
    for (int kv_heads = 1; kv_heads < tensor; ++kv_heads) {
      if (tensor % kv_heads != 0)
        continue;
      for (const bool sequence_parallel : {false, true}) {
        const Model model(tensor, 2, sequence_parallel, kv_heads);
        for (const auto& order : {MeshLayout{}.order, reversed}) {
          const MeshLayout layout{
              .degrees = PerAxis::degrees(tensor, 3, 2), .order = order, .kv_copies = tensor / kv_heads};
          for (int rank = 0; rank < layout.size(); ++rank) {
            const auto& held = model.of(layout.coordinates(rank));
            for (std::size_t id = 0; id < held.size(); ++id) {
              if (!held[id])
                continue;
              const ParameterSpec& spec = held[id]->spec;
              const auto is_of = [&](const char* layer) { return spec.name.find(layer) != std::string::npos; };
              const bool parts =
                  is_of("attention.key") || is_of("attention.value") || is_of("_norm.weight") ? !is_of("final") : false;
              const bool local_rows = parts || (sequence_parallel && is_applied_to_local_rows(spec.name));
              std::vector<int> ranks = layout.reduction_ranks(rank, spec.group());
              const GroupRank ours = layout.group_rank(rank, spec.group());
              ASSERT_EQ(static_cast<std::size_t>(ours.size), ranks.size());
              ASSERT_EQ(ranks[static_cast<std::size_t>(ours.rank)], rank);
              ASSERT_TRUE(layout.group_ranks(rank).contains(spec.group())) << spec.name;
              std::sort(ranks.begin(), ranks.end());
              ASSERT_EQ(ranks, by_rule(layout, model, rank, id, local_rows))
                  << spec.name << ", " << kv_heads << " heads of keys, rank " << rank << " of " << layout.text();
            }
          }
        }
      }
    }
}

TEST(GradientGroups, KeysNameTheGroupsOfEachKindOfParameter) {
  const Model plain(2, 2, false);
  const Model sequence_parallel(2, 2, true);
  const auto key_of = [](const Model& model, const std::string& name) {
    for (const int stage : {0, 1})
      for (const auto& held : model.of(PerAxis::coordinates(0, 0, stage)))
        if (held && held->spec.name == name)
          return to_string(held->spec.group());
    return "no parameter " + name;
  };
  for (const Model* const model : {&plain, &sequence_parallel}) {
    EXPECT_EQ(key_of(*model, "embedding.token"), "tied");
    for (const char* const name : {"attention.query.weight", "attention.key.bias", "attention.proj.weight",
                                   "mlp.up.weight", "mlp.up.bias", "mlp.down.weight"})
      EXPECT_EQ(key_of(*model, std::string("h.0.") + name), "dp") << name;
    for (const char* const name : {"embedding.position", "h.0.norm1.weight", "h.0.norm2.bias",
                                   "h.1.attention.proj.bias", "h.1.mlp.down.bias", "final_norm.weight"})
      EXPECT_EQ(key_of(*model, name), model == &plain ? "dp" : "tp+dp") << name;
  }
}

// The order in the flat arrays: what is final last in backward comes first, as arrays are reduced from their end.
TEST(GradientGroups, KeysAreOrdered) {
  const GroupKey tied{.tied = true};
  const GroupKey dp;
  const GroupKey tp_and_dp{.axes = AxisSet{Axis::tp} | token_axes};
  const GroupKey experts{.axes = token_axes.without({Axis::ep})};
  EXPECT_LT(tied, dp);
  EXPECT_LT(dp, tp_and_dp);
  EXPECT_LT(tied, tp_and_dp);
  EXPECT_LT(experts, dp);
  EXPECT_EQ(to_string(dp), "dp");
  EXPECT_EQ(to_string(tp_and_dp), "tp+dp");
  EXPECT_EQ(to_string(experts), "cp+dp");
  EXPECT_EQ(to_string(AxisSet{}), "none");
  EXPECT_EQ(to_string(GroupKey{.axes = tp_and_dp.axes, .tied = true}), "tp+dp+tied");
}

}  // namespace
}  // namespace espalier
