// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/dry_run.hpp"

#include <fmt/format.h>

#include "app/console.hpp"
#include "models/cost.hpp"
#include "training/trainer.hpp"

namespace espalier {
namespace {

void print_schedule(const RunConfig& config, int replicas) {
  const int microbatches =
      static_cast<int>(config.batch.global_batch_size / (config.batch.micro_batch_size * replicas));
  const PipelineSchedule schedule = single_stage_schedule(microbatches);
  std::string line;
  constexpr std::size_t shown = 16;
  for (std::size_t i = 0; i < schedule.size() && i < shown; ++i)
    line += fmt::format(" {}{}", schedule[i].kind == OperationKind::forward ? 'F' : 'B', schedule[i].microbatch);
  if (schedule.size() > shown)
    line += fmt::format(" ... B{}", schedule.back().microbatch);
  fmt::print("schedule     each rank:{}; gradients are reduced during the last backward\n", line);
}

void print_memory(const MemoryByCategory& memory, Index budget) {
  fmt::print("memory       {} a rank, without library scratch\n", bytes_text(memory.total()));
  for (std::size_t i = 0; i < num_categories; ++i)
    if (memory.bytes[i] > 0)
      fmt::print("  {:<13}{:>12}\n", to_string(static_cast<Category>(i)), bytes_text(memory.bytes[i]));
  if (budget > 0)
    fmt::print("  {:<13}{:>12}  {}\n", "budget", bytes_text(static_cast<std::size_t>(budget)),
               memory.total() <= static_cast<std::size_t>(budget) ? "fits" : "DOES NOT FIT");
}

}  // namespace

int dry_run(const RunConfig& config, int ranks) {
  const MeshLayout layout =
      make_layout(ranks, static_cast<int>(config.parallel.tensor), static_cast<int>(config.parallel.data),
                  static_cast<int>(config.parallel.pipeline));
  const GptConfig& shape = config.model.shape;
  const double flops =
      training_flops_per_token(shape, config.batch.sequence_length) * static_cast<double>(config.tokens_per_step());
  fmt::print("model        {}: {} parameters, {} layers x {} channels, {} heads, vocabulary {}\n", config.model.preset,
             quantity_text(static_cast<double>(num_parameters(shape))), shape.num_layers, shape.hidden_size,
             shape.num_heads, shape.vocab_size);
  fmt::print("mesh         {} ranks: {}\n", ranks, layout.text());
  fmt::print("batch        {} sequences of {} tokens a step = {} micro-batches of {} on each of {} replicas\n",
             config.batch.global_batch_size, config.batch.sequence_length,
             config.batch.global_batch_size / (config.batch.micro_batch_size * layout.degree(Axis::dp)),
             config.batch.micro_batch_size, layout.degree(Axis::dp));
  fmt::print("run          {} steps, {} tokens, {}FLOP a step\n", config.total_steps(),
             quantity_text(static_cast<double>(config.total_steps() * config.tokens_per_step())), quantity_text(flops));
  print_schedule(config, layout.degree(Axis::dp));
  const MemoryByCategory memory = config.precision.compute == "fp64"
                                      ? predict_memory<double>(config, layout.degree(Axis::dp))
                                      : predict_memory<float>(config, layout.degree(Axis::dp));
  print_memory(memory, config.run.device_memory);
  const bool fits =
      config.run.device_memory == 0 || memory.total() <= static_cast<std::size_t>(config.run.device_memory);
  return static_cast<int>(fits ? ExitCode::ok : ExitCode::memory);
}

}  // namespace espalier
