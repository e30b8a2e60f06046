// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/layout_memory.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/ops/cudnn_parts.hpp"
#include "models/block_memory.hpp"
#include "models/logit_rows.hpp"
#include "models/tensor_scratch.hpp"
#include "parallel/reduction_plan.hpp"
#include "planning/accelerator.hpp"
#include "planning/pipeline_time.hpp"
#include "planning/to_double.hpp"

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

// What the reducer of `train` stages of gradients that so many ranks sum: what the others send of the buckets in
// flight. `shards`: ranks of a copy.
double staged_bytes(double gradients, double ranks, double shards) {
  const ReducerOptions options = for_ranks({}, static_cast<int>(shards));
  const double bucket = std::clamp(gradients / options.buckets, to_double(options.smallest_bucket_bytes),
                                   to_double(options.bucket_bytes));
  return std::min(gradients, options.buckets_in_flight * bucket) * (ranks - 1) / ranks;
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
  double blocks = 0;   // of all: in layers
  double largest = 0;  // of what ZeRO gathers or scatters at a time: a block, the embedding, the head
  double table = 0;    // of all: the token table of a tied model, where another stage has it, too
  double again = 0;    // what ZeRO shards more often: experts, which fewer ranks have alike
};

// What `train` keeps for backward beside the slots (ActivationPlan::take_gradients): gradients of one block and of the
// stream on both sides, two sets where they are sent; of a split backward those of all blocks, as often as weight parts
// wait.
double gradient_workspace(const Layout& layout, const Stage& stage, const BlockMemory& block) {
  const double stream = to_double(block.stream);
  double bytes = to_double(block.full);
  if (layout.schedule == ScheduleKind::zero_bubble) {
    const double count = to_double(stage.blocks.front());
    const double waiting = std::min(to_double(layout.num_microbatches()), stage.number + 1.0);
    return bytes + waiting * ((count + 1) * stream + count * to_double(block.gradients + block.read_later));
  }
  bytes += to_double(block.gradients) + 2 * stream;
  for (std::size_t chunk = 0; chunk < stage.blocks.size(); ++chunk) {
    const bool has_embedding = stage.first && chunk == 0;
    const bool has_head = stage.last && chunk + 1 == stage.blocks.size();
    bytes += (has_embedding ? 1 : 2) * ((has_embedding ? 0 : 1) + (has_head ? 0 : 1)) * stream;
  }
  return bytes;
}

class StageMemory {
 public:
  StageMemory(const ModelConfig& model, const Layout& layout, const Implementation& implementation,
              Index sequence_length)
      : model_(model),
        layout_(layout),
        implementation_(implementation),
        replicas_(layout.data * layout.context),
        shards_(layout.zero_stage > 0 ? layout.shards() * layout.context : replicas_),
        rows_(to_double(layout.micro_batch) * to_double(sequence_length) / layout.context),
        stream_(activation_bytes(layout.precision) * rows_ * to_double(model.hidden_size) /
                (layout.sequence_parallel ? layout.tensor : 1)),
        whole_(state_bytes(layout.precision, implementation)),
        each_(sharded_state_bytes(whole_, layout.zero_stage, shards_)),
        attention_workspace_(attention_workspace_on_rank(model, layout, implementation, sequence_length)),
        shape_(block_shape(model, layout, sequence_length)),
        block_(block_memory(shape_, layout.recompute, activation_type(layout.precision))),
        blocks_(blocks_per_part(model, layout)),
        kept_(activation_bytes_per_layer(model, layout, implementation, sequence_length)),
        kept_without_recomputation_(
            activation_bytes_per_layer(model, without_recomputation(layout), implementation, sequence_length)) {}

  MemoryByCategory stage(int number) const {
    const Stage stage = stage_at(number);
    const StageElements elements = elements_of(stage);
    MemoryByCategory memory;
    add_states(memory, elements);
    add_exchange(memory, elements);
    if (implementation_.arenas_of_train)
      add(memory, Category::communication, to_double(tensor_scratch(stage)));
    add_activations(memory, stage);
    if (stage.last)
      add_logits(memory);
    add_block_at_work(memory, stage);
    add(memory, Category::workspace, static_cast<double>(attention_workspace_));
    add_reserve(memory);
    if (implementation_.arenas_of_train)  // the table of rotary positions
      add(memory, Category::workspace,
          to_double(shape_.attention.sequence_length * shape_.rotary) * (layout_.precision == Precision::fp64 ? 8 : 4));
    return memory;
  }

 private:
  static Layout without_recomputation(Layout layout) {
    layout.recompute = Recompute::none;
    return layout;
  }

  Stage stage_at(int number) const {
    Stage stage{.blocks = {}, .number = number, .first = number == 0, .last = layout_.has_head(number)};
    for (int chunk = 0; chunk < layout_.virtual_stages; ++chunk)
      stage.blocks.push_back(blocks_[static_cast<std::size_t>(layout_.part_of(number, chunk))]);
    return stage;
  }

  StageElements elements_of(const Stage& stage) const {
    const double block = parameters_per_layer_on_rank(model_, layout_, implementation_.experts);
    const double embedding = stage.first ? embedding_parameters_on_rank(model_, layout_, implementation_) : 0;
    const double head = stage.last ? head_parameters_on_rank(model_, layout_, implementation_) : 0;
    const bool shares_table = model_.tied_embeddings && stage.first != stage.last;
    const double table =
        shares_table ? vocabulary_on_rank(model_, layout_, implementation_) * to_double(model_.hidden_size) : 0;
    return {.all = stage.num_blocks() * block + embedding + head + (stage.first ? 0 : table),  // again, for the head
            .blocks = stage.num_blocks() * block,
            .largest = shards_layers() ? block : std::max({block, embedding, head}),
            .table = table,
            .again = layout_.zero_stage > 0 ? stage.num_blocks() * (implementation_.experts.parallel - 1) *
                                                  expert_parameters_on_rank(model_, layout_, implementation_.experts)
                                            : 0};
  }

  bool shards_layers() const { return implementation_.arenas_of_train && layout_.zero_stage >= 2 && replicas_ > 1; }

  void add_states(MemoryByCategory& memory, const StageElements& elements) const {
    // `train` shards layers only, and has whole ones in two buffers, or all (parallel.keep_gathered).
    const double whole = shards_layers() ? elements.all - elements.blocks : 0;
    const double gathered = layout_.keep_gathered ? elements.blocks : gathered_layers * elements.largest;
    const bool gathers = shards_layers() && layout_.zero_stage == 3;
    add(memory, Category::weights,
        whole * whole_.weights + (elements.all - whole) * each_.weights + (gathers ? gathered * whole_.weights : 0));
    const double copied = implementation_.copies_gradients ? activation_bytes(layout_.precision) : 0;
    add(memory, Category::gradients,
        whole * whole_.gradients + (elements.all - whole) * each_.gradients + elements.all * copied +
            (shards_layers() ? gathered_layers * elements.largest * whole_.gradients : 0));
    // Both stages of a tied table share its optimizer, where replicas share at all.
    const bool shares =
        implementation_.arenas_of_train && layout_.zero_stage > 0 && layout_.data > 1 && layout_.shard_replicas == 0;
    const double others = shares ? elements.table / 2 : 0;
    add(memory, Category::optimizer, (elements.all - others + elements.again) * each_.optimizer);
  }

  // What lies between a rank and the replicas of its shard, and messages to other stages.
  void add_exchange(MemoryByCategory& memory, const StageElements& elements) const {
    const bool scatters_at_once = layout_.zero_stage >= 2 && replicas_ > 1 && !shards_layers();
    // Gradients of the part at work are whole until they are scattered [Rajbhandari et al. 2020, 5.2].
    if (scatters_at_once)
      add(memory, Category::workspace, elements.largest * whole_.gradients);
    if (scatters_at_once && layout_.zero_stage == 3)
      add(memory, Category::communication, gathered_layers * elements.largest * whole_.weights);
    else if (implementation_.arenas_of_train) {
      const double ends = layout_.shard_replicas > 0 ? 1 : 2;  // of a tied pipeline, within a copy
      const double copies = replicas_ / shards_;
      const double table = elements.table * whole_.gradients;
      const double others = (elements.all - elements.table) * whole_.gradients;
      add(memory, Category::communication,
          staged_bytes(table, ends * shards_, shards_) + staged_bytes(others, shards_, shards_) +
              (copies > 1 ? (staged_bytes(table, 2 * copies, shards_) + staged_bytes(others, copies, shards_)) / shards_
                          : 0));
    } else if (replicas_ > 1 && (layout_.zero_stage > 0 || implementation_.overlaps_reduction)) {
      const double bucket = implementation_.reduces_all ? deepspeed_bucket_elements : bucket_elements;
      add(memory, Category::communication, 2 * std::min(elements.all, bucket) * whole_.gradients);
    }
    if (layout_.pipeline > 1 && !implementation_.arenas_of_train)
      add(memory, Category::communication, 2 * stream_);
  }

  void add_activations(MemoryByCategory& memory, const Stage& stage) const {
    const double slots = slots_in_flight(layout_.schedule, layout_.pipeline, layout_.virtual_stages,
                                         layout_.num_microbatches(), stage.number);
    const double microbatches = slots / layout_.virtual_stages;
    double bytes = microbatches * stage.num_blocks() * kept_;
    if (implementation_.arenas_of_train)
      bytes = slots_of_train(stage, slots);
    else if (stage.last)
      bytes += 2 * stream_;  // inputs of the final norm and of the head
    if (stage.first && model_.embedding_dropout > 0 && !implementation_.fused_attention)
      bytes += microbatches * stream_ / activation_bytes(layout_.precision);  // mask of the embedding's dropout
    add(memory, Category::activations, bytes);
  }

  // Each chunk has slots of its own, or all share as many as they hold together, whichever is less
  // (ActivationPlan::take_slots). A slot holds the blocks, what the chunk received, and the head's input.
  double slots_of_train(const Stage& stage, double slots) const {
    const std::vector<double> held = slots_of_chunks(layout_.schedule, layout_.pipeline, layout_.virtual_stages,
                                                     layout_.num_microbatches(), stage.number);
    double own = 0;
    double largest = 0;
    for (std::size_t chunk = 0; chunk < held.size(); ++chunk) {
      const bool has_head = stage.last && chunk + 1 == held.size();
      const double slot = to_double(stage.blocks[chunk]) * kept_ + (has_head ? 2 : 1) * stream_;
      own += held[chunk] * slot;
      largest = std::max(largest, slot);
    }
    return std::min(own, slots * largest);
  }

  Index rows_of_logits() const {
    return logit_rows(static_cast<Index>(rows_), model_.vocab_size, layout_.tensor, implementation_.logits_at_once);
  }

  Index tensor_scratch(const Stage& stage) const {
    const ScalarType type = activation_type(layout_.precision);
    return TensorScratch{.size = layout_.tensor,
                         .sequence_parallel = layout_.sequence_parallel,
                         .tokens = static_cast<Index>(rows_),
                         .logit_rows = stage.last ? rows_of_logits() : 0,
                         .compute_bytes = static_cast<Index>(size_of(type)),
                         .state_bytes = type == ScalarType::fp64 ? 8 : 4}
        .bytes(model_);
  }

  // With their gradient: of all rows, in fp32 as well; or of a chunk of them.
  void add_logits(MemoryByCategory& memory) const {
    const double e = activation_bytes(layout_.precision);
    const double columns = vocabulary_on_rank(model_, layout_, implementation_);
    if (implementation_.logits_at_once > 0)
      add(memory, Category::workspace, to_double(rows_of_logits()) * columns * e);
    else
      add(memory, Category::workspace,
          rows_ * columns * ((implementation_.copies_logits ? implementation_.logit_bytes : 4) + e));
  }

  // What an allocator holds beyond what is asked of it, and libraries.
  void add_reserve(MemoryByCategory& memory) const {
    const double asked = static_cast<double>(memory[Category::activations] + memory[Category::workspace] +
                                             memory[Category::communication]);
    const int groups = (layout_.tensor > 1 ? 1 : 0) + (replicas_ > 1 ? 1 : 0) + (layout_.pipeline > 1 ? 1 : 0);
    const double libraries = implementation_.library_bytes + groups * implementation_.communicator_bytes;
    add(memory, Category::workspace, (implementation_.reserved_times - 1) * asked + libraries);
  }

  // What recomputation fills again, and gradients of the activations.
  void add_block_at_work(MemoryByCategory& memory, const Stage& stage) const {
    const double e = activation_bytes(layout_.precision);
    add(memory, Category::workspace,
        recomputed_bytes() + (implementation_.arenas_of_train
                                  ? gradient_workspace(layout_, stage, block_)
                                  : 2 * stream_ + e * rows_ * to_double(shape_.up + shape_.ffn)));
  }

  double recomputed_bytes() const {
    if (implementation_.arenas_of_train)
      return to_double(block_.recomputed);
    if (layout_.recompute == Recompute::none || kept_ >= kept_without_recomputation_)
      return 0;
    return kept_without_recomputation_ - (layout_.recompute == Recompute::full ? 0 : kept_);
  }

  const ModelConfig& model_;
  const Layout& layout_;
  const Implementation& implementation_;
  double replicas_;  // ranks whose gradients are summed
  double shards_;    // of them those that share one copy of what ZeRO shards
  double rows_;      // of a micro-batch on a rank
  double stream_;    // bytes of one (rows, C) of the residual stream on a rank
  StateBytes whole_;
  StateBytes each_;
  std::size_t attention_workspace_;  // bytes
  BlockShape shape_;
  BlockMemory block_;          // as `train` lays it
  std::vector<Index> blocks_;  // of each part of the model
  double kept_;                // bytes that a block keeps of a micro-batch
  double kept_without_recomputation_;
};

}  // namespace

std::vector<MemoryByCategory> layout_memory(const ModelConfig& model, const Layout& layout,
                                            const Implementation& implementation, Index sequence_length) {
  const StageMemory memory_of(model, layout, implementation, sequence_length);
  std::vector<MemoryByCategory> memory;
  for (int stage = 0; stage < layout.pipeline; ++stage)
    memory.push_back(memory_of.stage(stage));
  return memory;
}

int peak_stage(const std::vector<MemoryByCategory>& stages) {
  const auto highest = std::ranges::max_element(stages, {}, &MemoryByCategory::total);
  return static_cast<int>(highest - stages.begin());
}

std::size_t peak_bytes(const std::vector<MemoryByCategory>& stages) {
  return stages[static_cast<std::size_t>(peak_stage(stages))].total();
}

}  // namespace espalier
