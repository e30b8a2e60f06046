// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/published/published_memory.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/scalars.hpp"
#include "models/activation_memory.hpp"
#include "parallel/schedule/pipeline_slots.hpp"
#include "planning/accelerator.hpp"
#include "planning/layer_parameters.hpp"
#include "tests/published/published_sizes.hpp"

namespace espalier {
namespace {

constexpr double bucket_elements = 4 << 20;        // of a gradient bucket under reduction
constexpr double deepspeed_bucket_elements = 5e8;  // its reduce_bucket_size
constexpr double gathered_layers = 2;              // ZeRO-3: the block at work and the next one

void add(MemoryByCategory& memory, Category category, double bytes) {
  constexpr double beyond_any_device = 0x1p58;  // sums of the few addends of a stage stay countable
  memory.bytes[static_cast<std::size_t>(category)] +=
      static_cast<std::size_t>(std::clamp(bytes, 0.0, beyond_any_device));
}

// A stage of the model.
struct Stage {
  std::vector<Index> blocks;  // of its chunks
  int number = 0;
  bool first = false;
  bool last = false;

  double num_blocks() const { return to_double(std::accumulate(blocks.begin(), blocks.end(), Index{0})); }
};

// Elements of the weights of a stage.
struct StageElements {
  double all = 0;
  double largest = 0;  // of what ZeRO gathers or scatters at a time: a block, the embedding, the head
  double again = 0;    // what ZeRO shards more often: experts, which fewer ranks have alike
};

// Arrays begin at multiples of this.
double no_less(Index bytes) { return to_double((bytes + 255) / 256 * 256); }

Layout without_recomputation(Layout layout) {
  layout.recompute = Recompute::none;
  return layout;
}

class StageMemory {
 public:
  StageMemory(const PlanProblem& problem, const PublishedMemory& program, const Layout& layout)
      : model_(problem.model),
        layout_(layout),
        implementation_(problem.implementation),
        program_(program),
        replicas_(layout.gradient_ranks()),
        shards_(layout.zero_stage > 0 ? layout.shards() * layout.context : replicas_),
        rows_(to_double(layout.micro_batch) * to_double(problem.sequence_length) / layout.context),
        stream_(activation_bytes(layout.precision) * rows_ * to_double(model_.hidden_size) /
                (layout.sequence_parallel ? layout.tensor : 1)),
        whole_(published_states(layout.precision, implementation_.gradient_bytes, program.extra_state_bytes)),
        each_(sharded_states(whole_, layout.zero_stage, shards_)),
        shape_(block_shape(model_, layout, problem.sequence_length, implementation_.logits)),
        blocks_(published_blocks(model_.num_layers, layout)),
        kept_(activation_bytes_per_layer(problem, program, layout)),
        kept_without_recomputation_(activation_bytes_per_layer(problem, program, without_recomputation(layout))) {}

  MemoryByCategory stage(int number) const {
    const Stage stage = stage_at(number);
    const StageElements elements = elements_of(stage);
    MemoryByCategory memory;
    add_states(memory, elements);
    add_exchange(memory, elements);
    add_activations(memory, stage);
    if (stage.last)
      add_logits(memory);
    add_block_at_work(memory);
    add_reserve(memory);
    return memory;
  }

 private:
  Stage stage_at(int number) const {
    Stage stage{.blocks = {}, .number = number, .first = number == 0, .last = layout_.has_head(number)};
    for (int chunk = 0; chunk < layout_.virtual_stages; ++chunk)
      stage.blocks.push_back(blocks_[static_cast<std::size_t>(layout_.part_of(number, chunk))]);
    return stage;
  }

  StageElements elements_of(const Stage& stage) const {
    const LayerElements each = layer_elements(model_, layout_, implementation_);
    const double embedding = stage.first ? each.embedding : 0;
    const double head = stage.last ? each.head : 0;
    const bool holds_table_again = model_.tied_embeddings && stage.last && !stage.first;  // for the head
    return {.all = stage.num_blocks() * each.block + embedding + head + (holds_table_again ? each.table : 0),
            .largest = std::max({each.block, embedding, head}),
            .again = layout_.zero_stage > 0 ? stage.num_blocks() * (implementation_.experts.parallel - 1) * each.experts
                                            : 0};
  }

  void add_states(MemoryByCategory& memory, const StageElements& elements) const {
    add(memory, Category::weights, elements.all * each_.weights);
    const double copied = program_.copies_gradients ? activation_bytes(layout_.precision) : 0;
    add(memory, Category::gradients, elements.all * (each_.gradients + copied));
    add(memory, Category::optimizer, (elements.all + elements.again) * each_.optimizer);
  }

  // What lies between a rank and the replicas of its shard, and messages to other stages.
  void add_exchange(MemoryByCategory& memory, const StageElements& elements) const {
    const bool scatters_at_once = layout_.zero_stage >= 2 && replicas_ > 1;
    // Gradients of the part at work are whole until they are scattered [Rajbhandari et al. 2020, 5.2].
    if (scatters_at_once)
      add(memory, Category::workspace, elements.largest * whole_.gradients);
    if (scatters_at_once && layout_.zero_stage == 3)
      add(memory, Category::communication, gathered_layers * elements.largest * whole_.weights);
    else if (replicas_ > 1 && (layout_.zero_stage > 0 || implementation_.overlaps_reduction)) {
      const double bucket = implementation_.reduces_all ? deepspeed_bucket_elements : bucket_elements;
      add(memory, Category::communication, 2 * std::min(elements.all, bucket) * whole_.gradients);
    }
    if (layout_.pipeline > 1)
      add(memory, Category::communication, 2 * stream_);
  }

  void add_activations(MemoryByCategory& memory, const Stage& stage) const {
    const double slots = pipeline_slots(layout_.pipeline_shape(), stage.number).together;
    const double microbatches = slots / layout_.virtual_stages;
    double bytes = microbatches * stage.num_blocks() * kept_;
    if (stage.last)
      bytes += 2 * stream_;  // inputs of the final norm and of the head
    if (stage.first && model_.embedding_dropout > 0 && !implementation_.fused_attention)
      bytes += microbatches * stream_ / activation_bytes(layout_.precision);  // mask of the embedding's dropout
    add(memory, Category::activations, bytes);
  }

  // With their gradient, in fp32 as well.
  void add_logits(MemoryByCategory& memory) const {
    const double columns = to_double(shape_.logit_columns);
    add(memory, Category::workspace,
        rows_ * columns * ((program_.copies_logits ? program_.logit_bytes : 4) + activation_bytes(layout_.precision)));
  }

  // What an allocator holds beyond what is asked of it, and libraries.
  void add_reserve(MemoryByCategory& memory) const {
    const double asked = static_cast<double>(memory[Category::activations] + memory[Category::workspace] +
                                             memory[Category::communication]);
    const int groups = (layout_.tensor > 1 ? 1 : 0) + (replicas_ > 1 ? 1 : 0) + (layout_.pipeline > 1 ? 1 : 0);
    const double libraries = program_.library_bytes + groups * program_.communicator_bytes;
    add(memory, Category::workspace, (program_.reserved_times - 1) * asked + libraries);
  }

  // What recomputation fills again, and gradients of the activations.
  void add_block_at_work(MemoryByCategory& memory) const {
    add(memory, Category::workspace,
        recomputed_bytes() + 2 * stream_ +
            activation_bytes(layout_.precision) * rows_ * to_double(shape_.up + shape_.ffn));
  }

  double recomputed_bytes() const {
    if (layout_.recompute == Recompute::none || kept_ >= kept_without_recomputation_)
      return 0;
    return kept_without_recomputation_ - (layout_.recompute == Recompute::full ? 0 : kept_);
  }

  const ModelConfig& model_;
  const Layout& layout_;
  const Implementation& implementation_;
  const PublishedMemory& program_;
  double replicas_;  // ranks whose gradients are summed
  double shards_;    // of them those that share one copy of what ZeRO shards
  double rows_;      // of a micro-batch on a rank
  double stream_;    // bytes of one (rows, C) of the residual stream on a rank
  PublishedStates whole_;
  PublishedStates each_;
  BlockShape shape_;
  std::vector<Index> blocks_;  // of each part of the model
  double kept_;                // bytes that a block keeps of a micro-batch
  double kept_without_recomputation_;
};

}  // namespace

PublishedStates published_states(Precision precision, int gradient_bytes, int extra_state_bytes) {
  if (precision == Precision::fp32 || precision == Precision::tf32)
    return {.weights = 4, .gradients = 4, .optimizer = 8};
  return {.weights = 2, .gradients = static_cast<double>(gradient_bytes), .optimizer = 12.0 + extra_state_bytes};
}

PublishedStates sharded_states(PublishedStates states, int zero_stage, double replicas) {
  if (zero_stage >= 1)
    states.optimizer /= replicas;
  if (zero_stage >= 2)
    states.gradients /= replicas;
  if (zero_stage >= 3)
    states.weights /= replicas;
  return states;
}

double activation_bytes_per_layer(const PlanProblem& problem, const PublishedMemory& program, const Layout& layout) {
  const ModelConfig& model = problem.model;
  const Implementation& implementation = problem.implementation;
  const BlockShape shape = block_shape(model, layout, problem.sequence_length);
  const ScalarType type = types_of_precision(layout.precision).compute;
  const ActivationRecording recording = record_activations(shape, type, type);
  const bool of_attention = layout.recompute == Recompute::selective && implementation.recomputes_attention;
  const Recompute mode = layout.recompute == Recompute::full || of_attention ? Recompute::none : layout.recompute;
  double kept = to_double(recording.block.at(static_cast<std::size_t>(mode)).kept);
  constexpr Index statistic = 4;  // bytes: of a row's mean or rstd, and of a softmax denominator
  kept -= (model.norm == Norm::layernorm ? 4 : 2) * no_less(statistic * shape.rows);  // left out by the formulas
  // Frameworks that do not fuse attention store a byte for each value that dropout may drop.
  const double masks = model.residual_dropout > 0 && !implementation.fused_attention ? 1 : 0;
  kept += 2 * masks * to_double(shape.rows * shape.channels);
  if (!implementation.fused_attention) {
    kept -= no_less(statistic * shape.attention.num_heads * shape.tokens());
    if (!of_attention)  // softmax, its mask, the dropped-out softmax
      kept += (2 * activation_bytes(layout.precision) + masks) * to_double(shape.attention.num_heads) *
              to_double(shape.tokens()) * to_double(problem.sequence_length);
  }
  const double e = activation_bytes(layout.precision);
  if (program.keeps_rows && layout.sequence_parallel)  // before attention and before the feed-forward
    kept += 2 * e * to_double(shape.rows * shape.channels) * (layout.tensor - 1);
  if (program.copies_logits && model.gated() && layout.recompute != Recompute::full)
    kept += e * to_double(shape.tokens() * shape.ffn);
  if (layout.recompute == Recompute::full && implementation.keeps_products) {
    const Index products = shape.qkv_channels() + shape.up + 2 * shape.channels;
    return to_double(recording.stream) +
           e * to_double(shape.tokens()) *
               (to_double(shape.q_channels()) + (1 - implementation.recompute_share) * to_double(products));
  }
  if (layout.recompute == Recompute::full)
    return implementation.recompute_share * to_double(recording.stream) + (1 - implementation.recompute_share) * kept;
  return kept;
}

std::vector<MemoryByCategory> published_memory(const PlanProblem& problem, const PublishedMemory& program,
                                               const Layout& layout) {
  const StageMemory memory_of(problem, program, layout);
  std::vector<MemoryByCategory> memory;
  for (int stage = 0; stage < layout.pipeline; ++stage)
    memory.push_back(memory_of.stage(stage));
  return memory;
}

}  // namespace espalier
