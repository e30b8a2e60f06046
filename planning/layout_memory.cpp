// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/layout_memory.hpp"

#include <algorithm>
#include <cmath>

#include "models/head.hpp"
#include "parallel/reduction_plan.hpp"
#include "planning/pipeline_time.hpp"
#include "planning/real.hpp"

namespace espalier {
namespace {

constexpr double bucket_elements = 4 << 20;  // of a gradient bucket under reduction
constexpr double gathered_layers = 2;        // ZeRO-3: the block at work and the next one

// Sums of the few addends of a stage stay countable.
void add(MemoryByCategory& memory, Category category, double bytes) {
  constexpr double beyond_any_device = 0x1p58;
  memory.bytes[static_cast<std::size_t>(category)] +=
      static_cast<std::size_t>(std::clamp(bytes, 0.0, beyond_any_device));
}

// What the reducer of `train` stages of gradients that so many ranks sum: what the others send of the buckets in
// flight.
double staged_bytes(double gradients, double ranks) {
  const ReducerOptions options;
  const double bucket =
      std::clamp(gradients / options.buckets, real(options.smallest_bucket_bytes), real(options.bucket_bytes));
  return std::min(gradients, options.buckets_in_flight * bucket) * (ranks - 1) / ranks;
}

// A stage of the model.
struct Stage {
  std::vector<Index> blocks;  // of its chunks
  int number = 0;
  bool first = false;
  bool last = false;
};

// What `train` keeps for backward beside the slots (GptStack::take_workspace): gradients of one block and of the stream
// on both sides, two sets where they are sent; of a split backward those of all blocks, as often as weight parts wait.
double gradient_workspace(const ModelShape& model, const PlanLayout& layout, const Stage& stage, double rows) {
  const double e = activation_bytes(layout.precision);
  const double c = real(model.hidden_size);
  const double f = real(model.ffn_hidden_size);
  const double t = layout.tensor;
  const double stream = e * rows * c / (layout.sequence_parallel ? t : 1);
  const double block = 3 * stream + e * rows * (2 * c + 2 * t * kv_size_on_rank(model, layout) + f) / t;
  double bytes = layout.sequence_parallel ? e * rows * c : 0;
  if (layout.schedule == PlanSchedule::zero_bubble) {
    const double again = layout.recompute == Recompute::full ? 3 * stream + e * rows * (c + f) / t : 0;
    const double count = real(stage.blocks.front());
    const double waiting = std::min(real(layout.num_microbatches()), stage.number + 1.0);
    return bytes + waiting * ((count + 1) * stream + count * (block + again));
  }
  bytes += block + 2 * stream;
  for (std::size_t chunk = 0; chunk < stage.blocks.size(); ++chunk) {
    const bool has_embedding = stage.first && chunk == 0;
    const bool has_head = stage.last && chunk + 1 == stage.blocks.size();
    bytes += (has_embedding ? 1 : 2) * ((has_embedding ? 0 : 1) + (has_head ? 0 : 1)) * stream;
  }
  return bytes;
}

}  // namespace

StateBytes state_bytes(Precision precision, const Implementation& implementation) {
  if (precision == Precision::fp32 || precision == Precision::tf32)
    return {.weights = 4, .gradients = 4, .optimizer = 8};
  return {.weights = 2,
          .gradients = static_cast<double>(implementation.gradient_bytes),
          .optimizer = 12.0 + implementation.extra_state_bytes};
}

StateBytes sharded_state_bytes(StateBytes bytes, int zero_stage, double replicas) {
  if (zero_stage >= 1)
    bytes.optimizer /= replicas;
  if (zero_stage >= 2)
    bytes.gradients /= replicas;
  if (zero_stage >= 3)
    bytes.weights /= replicas;
  return bytes;
}

double activation_bytes_per_layer(const ModelShape& model, const PlanLayout& layout,
                                  const Implementation& implementation, Index sequence_length) {
  const double e = activation_bytes(layout.precision);
  const double rows = real(layout.micro_batch) * real(sequence_length) / layout.context;
  const double t = layout.tensor;
  const double replicated = layout.sequence_parallel ? t : 1;
  const double c = real(model.hidden_size);
  const double f = real(model.ffn_hidden_size);
  const double kv = t * kv_size_on_rank(model, layout);
  const double heads = real(model.num_heads) / t;
  const double mask = model.dropout ? 1 : 0;
  const bool own_selective = layout.recompute == Recompute::selective && !implementation.recomputes_attention;

  // Block input, h between attention and feed-forward, both norm outputs, masks of both output dropouts.
  double shared = (own_selective ? 2 : 4) * e * c + 2 * mask * c;
  // Q, K, V, heads; feed-forward before and after the activation function.
  double split = e * (2 * c + 2 * kv) + e * f * (model.gated_ffn ? 2 : 1) + (own_selective ? 0 : e * f);
  double scores = 0;
  if (implementation.fused_attention)
    split += 4 * heads * t;  // the softmax denominators
  else if (layout.recompute != Recompute::selective)
    scores = (2 * e + mask) * heads * rows * real(sequence_length);  // softmax, its mask, the dropped-out softmax
  const double kept = rows * (shared / replicated + split / t) + scores;
  if (layout.recompute == Recompute::full) {
    const double input = e * rows * c / replicated;
    return layout.recompute_share * input + (1 - layout.recompute_share) * kept;
  }
  return kept;
}

double kv_size_on_rank(const ModelShape& model, const PlanLayout& layout) {
  return real(model.head_size()) * std::ceil(real(model.num_kv_heads) / layout.tensor);
}

double parameters_per_layer_on_rank(const ModelShape& model, const PlanLayout& layout) {
  const double norms = (model.rms_norm ? 2 : 4) * real(model.hidden_size);
  const double copied_columns = 2 * (kv_size_on_rank(model, layout) - real(model.kv_size()) / layout.tensor);
  return norms + (parameters_per_layer(model) - norms) / layout.tensor + real(model.hidden_size) * copied_columns;
}

double embedding_parameters_on_rank(const ModelShape& model, const PlanLayout& layout) {
  return real(model.hidden_size) * (real(model.vocab_size) / layout.tensor + real(model.max_sequence_length));
}

double head_parameters_on_rank(const ModelShape& model, const PlanLayout& layout) {
  const double norm = (model.rms_norm ? 1 : 2) * real(model.hidden_size);
  return norm + (head_parameters(model) - norm) / layout.tensor;
}

std::vector<Index> blocks_per_part(Index num_layers, int parts) {
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

std::vector<Index> blocks_per_part(const ModelShape& model, const PlanLayout& layout) {
  return layout.blocks_given.empty() ? blocks_per_part(model.num_layers, layout.pipeline * layout.virtual_stages)
                                     : layout.blocks_given;
}

std::vector<MemoryByCategory> layout_memory(const ModelShape& model, const PlanLayout& layout,
                                            const Implementation& implementation, Index sequence_length) {
  const int stages = layout.pipeline;
  const int chunks = layout.virtual_stages;
  const double t = layout.tensor;
  const double rows = real(layout.micro_batch) * real(sequence_length) / layout.context;
  const double c = real(model.hidden_size);
  const double e = activation_bytes(layout.precision);
  const double replicated = layout.sequence_parallel ? t : 1;
  const StateBytes whole = state_bytes(layout.precision, implementation);
  const StateBytes each = sharded_state_bytes(whole, layout.zero_stage, layout.data * layout.context);
  const std::vector<Index> blocks = blocks_per_part(model, layout);
  const double kept = activation_bytes_per_layer(model, layout, implementation, sequence_length);
  PlanLayout without = layout;
  without.recompute = Recompute::none;
  const double block_at_work = activation_bytes_per_layer(model, without, implementation, sequence_length);
  const double layer = parameters_per_layer_on_rank(model, layout);

  std::vector<MemoryByCategory> memory(static_cast<std::size_t>(stages));
  for (int stage = 0; stage < stages; ++stage) {
    MemoryByCategory& mine = memory[static_cast<std::size_t>(stage)];
    const bool first = stage == 0;
    // ZB-V lays both ends on the first stage.
    const bool last = layout.schedule == PlanSchedule::zero_bubble_v ? first : stage == stages - 1;
    Stage here{.blocks = {}, .number = stage, .first = first, .last = last};
    double count = 0;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int part = chunk * stages + stage;
      here.blocks.push_back(blocks[static_cast<std::size_t>(part)]);
      count += real(here.blocks.back());
    }
    double elements = count * layer;
    double largest = layer;
    if (first) {
      const double embedding = embedding_parameters_on_rank(model, layout);
      elements += embedding;
      largest = std::max(largest, embedding);
    }
    const double table = model.tied_embeddings && stages > 1 && (first || last) ? real(model.vocab_size) * c / t : 0;
    if (last) {  // a tied table stands on the last stage a second time
      elements += head_parameters_on_rank(model, layout);
      if (!first)
        elements += table;
    }
    add(mine, Category::weights, elements * each.weights);
    add(mine, Category::gradients, elements * each.gradients);
    // Both stages of a tied table share its optimizer.
    const double shared = implementation.arenas_of_train && layout.zero_stage > 0 ? table / 2 : 0;
    add(mine, Category::optimizer, (elements - shared) * each.optimizer);
    if (layout.zero_stage == 3) {
      add(mine, Category::communication, gathered_layers * largest * whole.weights);
      add(mine, Category::workspace, largest * whole.gradients);
    } else if (implementation.arenas_of_train) {
      const double replicas = layout.data * layout.context;
      add(mine, Category::communication,
          staged_bytes(table * whole.gradients, 2 * replicas) +
              staged_bytes((elements - table) * whole.gradients, replicas));
    } else if (layout.data * layout.context > 1) {
      add(mine, Category::communication,
          layout.zero_stage > 0 || implementation.overlaps_reduction ? 2 * bucket_elements * whole.gradients : 0);
    }

    const double slots = slots_in_flight(layout.schedule, stages, chunks, layout.num_microbatches(), stage);
    const double microbatches = slots / chunks;
    const double stream = e * rows * c / replicated;  // one (rows, C) of the residual stream
    double activations = slots * count / chunks * kept;
    if (implementation.arenas_of_train) {
      const std::vector<double> held =
          slots_of_chunks(layout.schedule, stages, chunks, layout.num_microbatches(), stage);
      activations = 0;
      double largest_slot = 0;
      for (std::size_t chunk = 0; chunk < held.size(); ++chunk) {
        const bool has_head = last && chunk + 1 == held.size();
        const double slot = real(here.blocks[chunk]) * kept + (has_head ? 2 : 1) * stream;
        activations += held[chunk] * slot;
        largest_slot = std::max(largest_slot, slot);
      }
      activations = std::min(activations, slots * largest_slot);  // chunks may share them (GptStack::take_slots)
    }
    if (first && model.dropout)
      activations += microbatches * rows * c / replicated;  // mask of the embedding's dropout
    if (last) {
      // final norm's input and the head's; the logits with their gradient, all or a chunk of them
      if (!implementation.arenas_of_train)
        activations += 2 * stream;
      const double columns = real(model.vocab_size) / t;
      const double at_once = implementation.chunked_loss
                                 ? real(logit_rows(static_cast<Index>(rows), model.vocab_size, layout.tensor))
                                 : rows;
      const double logits = at_once * columns;
      add(mine, Category::workspace, implementation.chunked_loss ? logits * e : logits * (4 + e));
    }
    add(mine, Category::activations, activations);
    // Gradients of the block at work, and what recomputation fills again.
    double work = 0;
    if (layout.recompute != Recompute::none && kept < block_at_work)
      work += layout.recompute != Recompute::full ? block_at_work - kept
              : implementation.arenas_of_train    ? block_at_work - stream  // its input lies in the slot
                                                  : block_at_work;
    work += implementation.arenas_of_train ? gradient_workspace(model, layout, here, rows)
                                           : 2 * stream + 2 * e * rows * real(model.ffn_hidden_size) / t;
    add(mine, Category::workspace, work);
    if (stages > 1 && !implementation.arenas_of_train)
      add(mine, Category::communication, 2 * stream);
  }
  return memory;
}

std::size_t peak_bytes(const std::vector<MemoryByCategory>& stages) {
  std::size_t most = 0;
  for (const MemoryByCategory& stage : stages)
    most = std::max(most, stage.total());
  return most;
}

}  // namespace espalier
