// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/plan_config.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "planning/layout_memory.hpp"
#include "planning/runnable.hpp"
#include "training/predict_time.hpp"

namespace espalier {
namespace {

bool is_file(const std::string& name) { return name.ends_with(".toml"); }

// What the file says of ranks does not matter here: as on one.
RunConfig config_on_one_rank(const std::string& file) {
  return read_run_config(file,
                         {"parallel.tensor=1", "parallel.pipeline=1", "parallel.data=1", "parallel.virtual_stages=1",
                          "parallel.sequence_parallel=false", "parallel.zero_stage=0", "parallel.schedule=1f1b",
                          "parallel.layers_per_stage=[]", "parallel.recompute_per_stage=[]"},
                         1);
}

}  // namespace

PlannedModel planned_model(const std::string& name_or_file) {
  if (!is_file(name_or_file)) {
    const ModelShape model = model_preset(name_or_file);
    return {.model = model, .global_batch = 0, .sequence_length = model.max_sequence_length};
  }
  const RunConfig config = config_on_one_rank(name_or_file);
  return {.model = model_shape(config.model.shape, config.model_name()),
          .global_batch = config.batch.global_batch_size,
          .sequence_length = config.batch.sequence_length};
}

std::string train_config(const std::string& name_or_file, const PlanProblem& problem, const PlanLayout& layout) {
  if (const std::string reason = why_not_runnable(problem, layout); !reason.empty())
    throw Error(ExitCode::usage, {.what = "no config: train cannot run this layout",
                                  .where = layout.text(),
                                  .got = reason,
                                  .wanted = "a layout that train runs",
                                  .todo = "add --runnable, fix other choices with --fix, or leave --config away"});
  std::vector<std::string> overrides = model_keys(trainable_config(problem.model));
  overrides.insert(overrides.end(), {fmt::format("batch.global_batch_size={}", layout.global_batch),
                                     fmt::format("batch.micro_batch_size={}", layout.micro_batch),
                                     fmt::format("batch.sequence_length={}", problem.sequence_length),
                                     fmt::format("precision.compute={}", to_string(layout.precision))});
  const std::vector<std::string> of_layout = parallel_keys(layout, blocks_per_part(problem.model, layout));
  overrides.insert(overrides.end(), of_layout.begin(), of_layout.end());
  if (is_file(name_or_file))
    return to_toml(read_run_config(name_or_file, overrides, layout.num_devices()));
  overrides.insert(overrides.end(), {"data.train=[\"train.bin\"]", "run.steps=100"});
  return to_toml(parse_run_config("", "plan", overrides, layout.num_devices()));
}

}  // namespace espalier
