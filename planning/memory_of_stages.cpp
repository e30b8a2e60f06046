// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/cudnn_parts.hpp"
#include "core/ops/matmul_library.hpp"
#include "planning/layer_parameters.hpp"
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
  return cudnn_workspace_bound(block_shape(model, layout, problem.sequence_length, {}).attention);
}

std::vector<MemoryByCategory> memory_of_stages(const PlanProblem& problem, const Layout& layout) {
  if (problem.memory_of)
    return problem.memory_of(problem, layout);
  const TrainingTypes types = types_of_program(problem.implementation, layout.precision);
  MemoryOptions options = memory_options(problem.implementation, problem.sequence_length, types);
  options.library_bytes =
      product_workspace(problem.implementation, types.compute) + attention_workspace_on_rank(problem, layout);
  return rank_memory(problem.model, with_layers(problem, layout), options);
}

}  // namespace espalier
