// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/declared_parameters.hpp"

#include <algorithm>
#include <list>
#include <utility>

#include "models/decoder.hpp"
#include "models/embedding.hpp"
#include "models/head.hpp"
#include "models/transformer_block.hpp"

namespace espalier {
namespace {

DeclaredParameters laid_out(ParameterStore<float>& store) {
  store.lay_out();
  DeclaredParameters declared{
      .parameters = store.parameters(), .segments = store.segments(), .flat_size = store.flat_size()};
  for (Parameter& parameter : declared.parameters) {
    parameter.spec.name.clear();
    parameter.spec.init_stream.clear();
    parameter.spec.shape.clear();
  }
  return declared;
}

// Elements of the matrices that have this in their names.
Index matrix_elements(ParameterStore<float>& store, std::string_view in_name) {
  Index sum = 0;
  for (const Parameter& parameter : store.parameters())
    if (parameter.local_shape.size() == 2 && parameter.spec.name.find(in_name) != std::string::npos)
      sum += parameter.size;
  return sum;
}

}  // namespace

Index DeclaredParameters::num_elements() const {
  Index sum = 0;
  for (const Parameter& parameter : parameters)
    sum += parameter.size;
  return sum;
}

Index DeclaredParameters::num_tensors() const {
  return std::ranges::count_if(parameters, [](const Parameter& parameter) { return !parameter.spec.joins_previous; });
}

Index DeclaredParameters::num_stored() const {
  Index sum = 0;
  for (const Parameter& parameter : parameters)
    sum += parameter.padded_rows() * (parameter.size / parameter.local_shape[0]);
  return sum;
}

// What layers declare depends on no precision.
ParameterRecording::ParameterRecording(const ModelConfig& model, const TensorPart& part)
    : tied_(model.tied_embeddings) {
  const TensorParallel<float> tensor(part.rank, part.size, part.sequence_parallel);
  ParameterStore<float> embedding, table, block, head;
  const VocabParallelEmbedding<Fp32> first(embedding, tensor, model, {}, part.row_multiple);
  declare_token_embedding<float>(table, tensor, model, {}, part.row_multiple);
  const RotaryTable<float> rotary(model);
  const TransformerBlock<Fp32> layer(block, tensor, rotary, 0, model, {});
  int of_head = 0;
  if (!tied_)
    of_head = declare_token_embedding<float>(head, tensor, model, {}, part.row_multiple, "head.weight");
  const Head<Fp32> last(head, tensor, model, {}, of_head);
  embedding_ = laid_out(embedding);
  table_ = laid_out(table);
  block_ = laid_out(block);
  block_matrices_ = matrix_elements(block, "");
  feed_forward_matrices_ = matrix_elements(block, ".mlp.");
  head_ = laid_out(head);
}

// A chunk's parameters lie in the order of its positions, each of which begins a segment.
DeclaredParameters ParameterRecording::of(const std::vector<ChunkLayers>& chunks) const {
  DeclaredParameters all;
  const auto append = [&](const DeclaredParameters& part, std::size_t chunk, Index block) {
    const Index begin = (all.flat_size + Segment::alignment - 1) / Segment::alignment * Segment::alignment;
    for (Segment segment : part.segments) {
      segment.chunk = static_cast<int>(chunk);
      segment.block = static_cast<int>(block);
      segment.offset += begin;
      all.segments.push_back(segment);
    }
    for (const Parameter& parameter : part.parameters) {
      all.parameters.push_back(parameter);
      all.parameters.back().offset += begin;
    }
    all.flat_size = begin + part.flat_size;
  };
  const auto has = [&](bool ChunkLayers::*end) {
    return std::ranges::any_of(chunks, [=](const ChunkLayers& chunk) { return chunk.*end; });
  };
  if (tied_ && has(&ChunkLayers::head) && !has(&ChunkLayers::embedding))
    append(table_, 0, 0);
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    if (chunks[c].embedding)
      append(embedding_, c, 0);
    for (Index i = 0; i < chunks[c].count; ++i)
      append(block_, c, i + 1);
    if (chunks[c].head)
      append(head_, c, chunks[c].count + 1);
  }
  return all;
}

std::vector<Parameter> whole_parameters(const ModelConfig& model) {
  ParameterStore<float> store;
  const Decoder<Fp32> decoder(store, model);
  store.lay_out();
  return store.parameters();
}

const ParameterRecording& parameter_recording(const ModelConfig& model, const TensorPart& part) {
  thread_local ModelConfig recorded;
  thread_local std::list<std::pair<TensorPart, ParameterRecording>> recordings;
  if (recorded != model) {
    recordings.clear();
    recorded = model;
  }
  const auto known = std::ranges::find(recordings, part, &std::pair<TensorPart, ParameterRecording>::first);
  return known != recordings.end() ? known->second
                                   : recordings.emplace_back(part, ParameterRecording(model, part)).second;
}

}  // namespace espalier
