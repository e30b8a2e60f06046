// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/prediction/predict_memory.hpp"

#include <algorithm>

#include "core/ops/attention_library.hpp"
#include "core/ops/matmul_library.hpp"
#include "models/embedding.hpp"
#include "training/config/config_warnings.hpp"
#include "training/config/emulation.hpp"
#include "training/prediction/gemm_rate.hpp"

namespace espalier {
namespace {

// What the libraries of products and attention hold on to; 0 of one that this build lacks.
std::uint64_t library_workspaces(const RunConfig& config, ScalarType compute, const AttentionShape& attention) {
  const auto absent = absent_libraries(config);
  const auto is_here = [&](const char* key) {
    return std::ranges::none_of(absent, [&](const auto& library) { return library.first == key; });
  };
  return (is_here("matmul") ? matmul_workspace_bytes(compute, wanted_matmul_library(config, compute)) : 0) +
         (is_here("attention") && why_not_cudnn(config).empty()
              ? attention_workspace_bytes(compute, parse_attention_library(config.run.attention), attention)
              : 0);
}

}  // namespace

AttentionShape attention_shape(const RunConfig& config, const Layout& layout) {
  return make_block_shape(config.model.shape, layout.tensor, false, config.layout.micro_batch, config.sequence_length)
      .attention;
}

MemoryOptions memory_options(const RunConfig& config, const Layout& layout, TrainingTypes types) {
  types.wire = wire_type(config);
  MemoryOptions options =
      memory_options(espalier_implementation(exec_is_host, train_settings(config)), config.sequence_length, types);
  options.message_scale = message_scale(config.emulate, Axis::dp);
  options.library_bytes = library_workspaces(config, types.compute, attention_shape(config, layout));
  return options;
}

std::vector<MemoryByCategory> predict_memory(const RunConfig& config, const Layout& layout,
                                             const TrainingTypes& types) {
  return rank_memory(config.model.shape, layout, memory_options(config, layout, types));
}

std::vector<MemoryByCategory> predict_memory(const RunConfig& config, const Layout& layout) {
  return predict_memory(config, layout, types_of_run(config));
}

}  // namespace espalier
