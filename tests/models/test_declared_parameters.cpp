// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "models/cost.hpp"
#include "models/declared_parameters.hpp"
#include "models/decoder.hpp"
#include "models/presets.hpp"

namespace espalier {
namespace {

void expect_declared(const ModelConfig& model, const TensorPart& part, const std::vector<ChunkLayers>& chunks) {
  ParameterStore<float> store;
  const Decoder<Fp32> decoder(store, model, chunks,
                              TensorParallel<float>(part.rank, part.size, part.sequence_parallel));
  store.lay_out();
  const DeclaredParameters declared = ParameterRecording(model, part).of(chunks);
  EXPECT_EQ(declared.flat_size, store.flat_size());
  ASSERT_EQ(declared.segments.size(), store.segments().size());
  for (std::size_t i = 0; i < declared.segments.size(); ++i) {
    const Segment& ours = declared.segments[i];
    const Segment& wanted = store.segments()[i];
    EXPECT_EQ(ours.flat_range(), wanted.flat_range()) << "segment " << i;
    EXPECT_EQ(ours.chunk, wanted.chunk) << "segment " << i;
    EXPECT_EQ(ours.block, wanted.block) << "segment " << i;
    EXPECT_EQ(ours.group, wanted.group) << "segment " << i;
  }
  ASSERT_EQ(declared.parameters.size(), store.parameters().size());
  for (std::size_t i = 0; i < declared.parameters.size(); ++i) {
    EXPECT_EQ(declared.parameters[i].flat_range(), store.parameters()[i].flat_range()) << "parameter " << i;
    EXPECT_EQ(declared.parameters[i].local_shape, store.parameters()[i].local_shape) << "parameter " << i;
  }
}

// One layer of each kind stands for all: flat arrays as those of a decoder with these chunks.
TEST(DeclaredParameters, lie_as_in_a_decoder) {
  for (const char* const name : {"byte-1m", "llama-tiny", "mistral-tiny", "qwen2-tiny", "qwen3-tiny"}) {
    const ModelConfig model = model_preset(name);
    for (const bool sequence_parallel : {false, true})
      for (const int rank : {0, 1})
        for (const auto& stages : {partition_layers({model.num_layers}, 1, 1), partition_layers({2, 1, 3}, 3, 1),
                                   partition_layers({2, 1, 1, 2}, 2, 2)})
          for (const std::vector<ChunkLayers>& chunks : stages) {
            SCOPED_TRACE(fmt::format("{}, rank {}, sequence parallel {}, from layer {}", name, rank, sequence_parallel,
                                     chunks.front().first));
            expect_declared(model, {rank, 2, sequence_parallel, logits_here.multiple}, chunks);
          }
  }
}

TEST(DeclaredParameters, are_as_many_as_counted) {
  for (const char* const name : {"gpt2-124m", "llama3-8b", "qwen3-0.6b"}) {
    const ModelConfig model = model_preset(name);
    EXPECT_EQ(ParameterRecording(model, {}).of(one_chunk(model.num_layers)).num_elements(), num_parameters(model))
        << name;
  }
}

}  // namespace
}  // namespace espalier
