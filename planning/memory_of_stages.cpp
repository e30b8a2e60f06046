// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/ops/cudnn_parts.hpp"
#include "core/ops/matmul_library.hpp"
#include "planning/price_layout.hpp"

namespace espalier {
namespace {

// What the library of products holds on to.
std::size_t product_workspace(const Implementation& implementation, ScalarType compute) {
  return matmul_workspace_bytes(compute,
                                implementation.on_host ? default_matmul_library(compute) : MatmulLibrary::cublaslt);
}

}  // namespace

std::size_t attention_workspace_on_rank(const PlanProblem& problem, const Layout& layout) {
  const ModelConfig& model = problem.model;
  if (!problem.implementation.cudnn_attention || activation_bytes(layout.precision) != 2 ||
      !why_not_cudnn(model, problem.implementation.separate_documents).empty())
    return 0;
  return cudnn_workspace_bound({.batch = layout.micro_batch,
                                .sequence_length = problem.sequence_length / layout.context,
                                .num_heads = model.num_heads / layout.tensor,
                                .head_size = model.head_size(),
                                .num_kv_heads = std::max<Index>(1, model.kv_heads() / layout.tensor)});
}

std::vector<MemoryByCategory> memory_of_stages(const PlanProblem& problem, const Layout& layout) {
  if (problem.memory_of)
    return problem.memory_of(problem, layout);
  const TrainingTypes types = training_types(problem.implementation, layout.precision);
  return rank_memory(problem.model, with_layers(problem, layout),
                     {.sequence_length = problem.sequence_length,
                      .types = types,
                      .logits = problem.implementation.logits,
                      .separate_documents = problem.implementation.separate_documents,
                      .copies_state = problem.implementation.copies_state,
                      .library_bytes = product_workspace(problem.implementation, types.compute) +
                                       attention_workspace_on_rank(problem, layout)});
}

}  // namespace espalier
