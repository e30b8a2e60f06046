// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/config/config_warnings.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/ops/attention_library.hpp"
#include "core/types.hpp"
#include "io/units.hpp"
#include "training/config/run_layout.hpp"

namespace espalier {
namespace {

// Libraries that are named, and have no kernels for the compute type: a run takes others in their place.
void warn_of_other_libraries(const RunConfig& c, std::vector<std::string>& warnings) {
  const auto warn = [&](const char* key, const std::string& name, const char* does, const char* instead) {
    warnings.push_back(fmt::format("run.{} = \"{}\" {}, and compute is {}: {}", key, name, does,
                                   to_string(c.layout.precision), instead));
  };
  const std::string& matmul = c.run.matmul;
  if (matmul == "cublaslt_tf32" && c.layout.precision != Precision::fp32)
    warn("matmul", matmul, "rounds only fp32 matmuls", "it does what \"cublaslt\" does");
  if (matmul == "onednn" && c.layout.precision == Precision::fp64)
    warn("matmul", matmul, "has no fp64 matmuls", "another library multiplies");
  if (!exec_is_host && matmul == "kokkos_kernels" && is_16_bits(c.layout.precision))
    warn("matmul", matmul, "has no 16-bit matmuls on GPUs", "our own kernel multiplies");
  if (c.run.attention == to_string(AttentionLibrary::cudnn) && !is_16_bits(c.layout.precision))
    warn("attention", c.run.attention, "computes only in 16 bits", "our own kernels do its work");
  if (const std::string reason = why_not_cudnn(c);
      !exec_is_host && !reason.empty() && train_settings(c).cudnn_attention && is_16_bits(c.layout.precision))
    warnings.push_back(
        fmt::format("cuDNN cannot be used: {}; our own kernels compute attention, many times slower", reason));
}

}  // namespace

std::vector<std::string> compute_warnings(const RunConfig& c) {
  std::vector<std::string> warnings;
  if (c.layout.precision != Precision::fp16 && c.precision.loss_scale != LossScaleConfig{})
    warnings.push_back(fmt::format("the loss scale of [precision] does nothing: compute is {}, which needs none",
                                   to_string(c.layout.precision)));
  if (!is_16_bits(c.layout.precision) &&
      (c.precision.residual != NumberType::compute || c.precision.gradient_reduction != NumberType::state))
    warnings.push_back(fmt::format(
        "precision.residual and precision.gradient_reduction do nothing: compute is {}, and so is the state",
        to_string(c.layout.precision)));
  warn_of_other_libraries(c, warnings);
  for (const auto& [key, sentence] : absent_libraries(c))
    warnings.push_back(fmt::format("run.{}: {}: a run needs one that has it; memory is predicted without its workspace",
                                   key, sentence));
  return warnings;
}

std::vector<std::string> config_warnings(const RunConfig& c, int world_size) {
  std::vector<std::string> warnings = compute_warnings(c);
  const Index replicas = world_size / (c.layout.tensor * c.layout.pipeline);
  if (c.layout.zero_stage > 0 && replicas == 1)
    warnings.emplace_back("parallel.zero_stage does nothing: there is only one replica");
  if (c.layout.keep_gathered && c.layout.zero_stage < 3)
    warnings.emplace_back("parallel.keep_gathered does nothing: zero_stage is not 3");
  if (c.layout.shard_over == ShardOver::node && c.layout.zero_stage == 0)
    warnings.emplace_back("parallel.shard_over does nothing: zero_stage is 0");
  else if (c.layout.shard_over == ShardOver::node && replicas > 1) {
    const Layout layout = make_run_layout(c, world_size);
    if (layout.zero_stage == 0)
      warnings.emplace_back("parallel.zero_stage does nothing: with shard_over = \"node\", a node has one replica");
    else if (layout.shards() == layout.data)
      warnings.emplace_back("parallel.shard_over = \"node\" does nothing: all replicas are on one node");
  }
  if (c.layout.sequence_parallel && c.layout.tensor == 1)
    warnings.emplace_back("parallel.sequence_parallel does nothing: tensor is 1");
  if (c.layout.pipeline == 1 && !c.layout.layers.empty())
    warnings.emplace_back("parallel.layers_per_stage does nothing: there is one stage");
  if (!c.layout.recompute_per_stage.empty() && c.layout.recompute != Recompute::none)
    warnings.emplace_back("parallel.recompute does nothing: recompute_per_stage says what each stage does");
  const Index microbatches = c.layout.global_batch / std::max<Index>(1, c.layout.micro_batch * replicas);
  if (c.layout.pipeline > 1 && microbatches < c.layout.pipeline)
    warnings.push_back(
        fmt::format("with {}, at most {} of {} stages are busy: lower batch.micro_batch_size, or raise "
                    "batch.global_batch_size",
                    counted(microbatches, "micro-batch"), microbatches, c.layout.pipeline));
  if (c.optimizer.warmup_steps >= c.total_steps())
    warnings.push_back(
        fmt::format("the run ends inside the warm-up of the learning rate: optimizer.warmup_steps is {}, and it has {}",
                    c.optimizer.warmup_steps, counted(c.total_steps(), "step")));
  if (!c.data.validates())
    for (const auto& [key, value] :
         {std::pair("run.eval_interval", c.run.eval_interval), std::pair("run.eval_samples", c.run.eval_samples)})
      if (value > 0)
        warnings.push_back(
            fmt::format("{} does nothing: data.validation names no files, and data.validation_fraction is 0", key));
  return warnings;
}

}  // namespace espalier
