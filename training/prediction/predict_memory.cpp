// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/prediction/predict_memory.hpp"

#include <algorithm>

#include "core/ops/attention_library.hpp"
#include "core/ops/matmul_library.hpp"
#include "models/embedding.hpp"
#include "training/config/config_warnings.hpp"
#include "training/config/emulation.hpp"
#include "training/config/with_compute_type.hpp"
#include "training/prediction/gemm_rate.hpp"

namespace espalier {
namespace {

// What the libraries of products and attention hold on to; 0 of one that this build lacks.
template <class T>
std::uint64_t library_workspaces(const RunConfig& config, const AttentionShape& attention) {
  const auto absent = absent_libraries(config);
  const auto is_here = [&](const char* key) {
    return std::ranges::none_of(absent, [&](const auto& library) { return library.first == key; });
  };
  return (is_here("matmul") ? matmul_workspace_bytes<T>(wanted_matmul_library<T>(config)) : 0) +
         (is_here("attention") && why_not_cudnn(config).empty()
              ? attention_workspace_bytes<T>(parse_attention_library(config.run.attention), attention)
              : 0);
}

}  // namespace

AttentionShape attention_shape(const RunConfig& config, const Layout& layout) {
  return make_block_shape(config.model.shape, layout.tensor, false, config.layout.micro_batch, config.sequence_length)
      .attention;
}

template <class P>
MemoryOptions memory_options(const RunConfig& config, const Layout& layout) {
  return {.sequence_length = config.sequence_length,
          .types = {.compute = scalar_type_of<Compute<P>>(),
                    .residual = scalar_type_of<Residual<P>>(),
                    .wire = wire_type(config)},
          .logits = logits_here,
          .separate_documents = config.data.separates_documents(),
          .copies_state = config.checkpoint.async && exec_is_host,  // on a GPU the copy lies in the memory of the host
          .message_scale = message_scale(config.emulate, Axis::dp),
          .library_bytes = library_workspaces<Compute<P>>(config, attention_shape(config, layout))};
}

template <class P>
std::vector<MemoryByCategory> predict_memory(const RunConfig& config, const Layout& layout) {
  return rank_memory(config.model.shape, layout, memory_options<P>(config, layout));
}

std::vector<MemoryByCategory> predict_memory(const RunConfig& config, const Layout& layout) {
  return with_precision(config, [&]<class P>() { return predict_memory<P>(config, layout); });
}

#define ESPALIER_INSTANTIATE(P)                                              \
  template MemoryOptions memory_options<P>(const RunConfig&, const Layout&); \
  template std::vector<MemoryByCategory> predict_memory<P>(const RunConfig&, const Layout&);
ESPALIER_FOR_PRECISIONS(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
