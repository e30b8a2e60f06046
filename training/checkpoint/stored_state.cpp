// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/stored_state.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "io/checkpoint/checkpoint_names.hpp"
#include "io/config/key_reader.hpp"
#include "io/input_limits.hpp"
#include "io/json_fields.hpp"
#include "io/tokens/token_loader.hpp"
#include "models/declared_parameters.hpp"
#include "models/largest_model.hpp"
#include "models/model_section.hpp"
#include "training/config/data_files.hpp"
#include "training/config/run_config.hpp"
#include "training/config/stored_config.hpp"
#include "training/config/with_compute_type.hpp"
#include "training/step/loss_scaler.hpp"
#include "training/step/matmul_choices.hpp"
#include "training/step/spike_guard.hpp"

namespace espalier {
namespace {

using nlohmann::json;

// The keys of the config that the rest of the state must agree with.
struct StoredKeys {
  Index seed = 0;
  Index global_batch = 0;
  Index sequence_length = 0;
};

StoredKeys keys_of(const std::string& config) {
  ConfigReader reader(config, "config", {});
  StoredKeys keys;
  const bool all = reader.read("run", "seed", keys.seed, {.min = 0}) &&
                   reader.read("batch", "global_batch_size", keys.global_batch, {1, LargestModel::batch}) &&
                   reader.read("batch", "sequence_length", keys.sequence_length, {1, LargestModel::positions});
  if (!all || reader.has_problems())
    throw std::runtime_error(
        "\"config\": " +
        (all ? reader.problems().front() : "run.seed, batch.global_batch_size or batch.sequence_length is missing"));
  return keys;
}

// Damaged or forged where they disagree: else a model is built that the checkpoint cannot fill.
void require_model_of_tensors(const std::string& config, const CheckpointReader& checkpoint) {
  ConfigReader reader(config, "config", {});
  ModelConfig shape;
  KeyReader keys(reader);
  keys.section("model", "");
  visit_model(shape, keys);
  Index size = 0;
  bool all = true;
  for (const std::string_view key : model_size_keys)
    all = all && reader.read("model", key, size, {1, Index{1} << 31});
  if (!all || reader.has_problems())
    throw std::runtime_error("\"config\": " + (all ? reader.problems().front() : "[model] is not whole"));
  if (const std::vector<BrokenRule> broken = broken_rules(shape); !broken.empty())
    throw std::runtime_error("\"config\": " + broken.front().sentence());
  const auto require_shape = [&](const std::string& name, const std::vector<Index>& wanted) {
    const std::string stored = tensor_name(weights_group, name);
    if (!checkpoint.contains(stored) || checkpoint.tensor(stored).global_shape != wanted)
      throw std::runtime_error(fmt::format(
          "\"config\" needs {} of ({}), which is {}", name, fmt::join(wanted, ", "),
          checkpoint.contains(stored) ? fmt::format("({})", fmt::join(checkpoint.tensor(stored).global_shape, ", "))
                                      : "not there"));
  };
  const auto stored = std::ranges::count_if(checkpoint.tensors(), [](const TensorInfo& tensor) {
    return tensor.name.starts_with(tensor_name(weights_group, ""));
  });
  if (shape.num_layers > stored)  // before parameters of so many are made
    throw std::runtime_error(
        fmt::format("\"config\" has {} layers, and the checkpoint has {} tensors", shape.num_layers, stored));
  const std::vector<Parameter> wanted = whole_parameters(shape);
  for (const Parameter& parameter : wanted)
    require_shape(parameter.spec.name, parameter.spec.shape);
  if (stored > std::ssize(wanted))
    throw std::runtime_error(fmt::format("\"config\" has {} layers and {} tensors, and the checkpoint has {}",
                                         shape.num_layers, wanted.size(), stored));
}

std::vector<IndexRange> passed_over_in(const json& state) {
  constexpr std::size_t most = 10'000;
  std::vector<IndexRange> ranges;
  if (!state.contains("passed_over"))  // older programs passed over nothing
    return ranges;
  for (const json& pair : list_field(state, "passed_over", most)) {
    if (!pair.is_array() || pair.size() != 2)
      refuse_field("passed_over", pair, "pairs of samples");
    const Index begin = value_from<Index>(pair[0], "passed_over", steps_range);
    ranges.push_back({begin, value_from<Index>(pair[1], "passed_over", {begin, steps_range.max})});
  }
  std::ranges::sort(ranges, {}, &IndexRange::begin);
  for (std::size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].begin < ranges[i - 1].end)
      refuse_field("passed_over", state.at("passed_over"), "ranges that share no sample");
  return ranges;
}

std::optional<StoredState::NextLoss> next_loss_in(const json& state, Index global_batch) {
  if (!state.contains("next_loss"))
    return std::nullopt;
  const json& stored = object_field(state, "next_loss");
  StoredState::NextLoss next{.samples = field<Index>(stored, "samples", IntegerRange{1, global_batch}),
                             .loss = field<double>(stored, "loss"),
                             .compute = field_or(stored, "compute", std::string())};
  if (!next.compute.empty() && std::ranges::count(compute_type_names(), next.compute) == 0)
    refuse_field("compute", stored.at("compute"), "a compute type");
  return next;
}

void require_equal(const char* what, Index stated, Index wanted, const std::string& by) {
  if (stated != wanted)
    throw std::runtime_error(fmt::format("\"{}\" is {}, wanted {}, by {}", what, stated, wanted, by));
}

StoredState state_from(const json& json, Index step) {
  StoredState state;
  const bool is_reference = json.contains(reference_files_key);
  state.step = is_reference ? step : field<Index>(json, "step", steps_range);
  require_equal("step", state.step, step, "the manifest");
  state.config = field<std::string>(json, "config", LargestFile::config);
  if (model_section(state.config).empty())
    throw std::runtime_error("\"config\" has no section [model]");
  const StoredKeys keys = keys_of(state.config);
  state.data_position = field<Index>(json, "data_position", steps_range);
  state.passed_over = passed_over_in(json);
  state.loss = field<double>(json, "loss");
  state.seed = field<Index>(json, "seed", IntegerRange{.min = 0});
  require_equal("seed", state.seed, keys.seed, "its config");
  state.tokenizer = field_or(json, "tokenizer", std::string());
  state.matmul = field_or(json, "matmul", std::string());
  state.next_loss = next_loss_in(json, keys.global_batch);
  state.kokkos = field_or(json, "kokkos", Index{0}, count_range);
  state.loss_scaler = object_field(json, "loss_scale");
  LossScaler scaler;
  scaler.restore(state.loss_scaler);
  state.data_files = json.value(data_files_key, nlohmann::json());
  const Index left_out = samples_before(state.passed_over, state.data_position);
  state.tokens = field_or(json, "tokens", Index{0}, IntegerRange{.min = 0});  // older programs did not count them
  if (json.contains("tokens"))
    require_equal("tokens", state.tokens, (state.data_position - left_out) * keys.sequence_length,
                  "\"data_position\" and its config");
  // An incident's checkpoint is of the middle of a step, whose samples are taken.
  const Index steps_taken = (state.data_position - left_out) / keys.global_batch;
  if (is_reference)
    return state;
  if (steps_taken * keys.global_batch + left_out != state.data_position || steps_taken < step || steps_taken > step + 1)
    require_equal("data_position", state.data_position, step * keys.global_batch + left_out, "\"step\" and its config");
  SpikeGuard guard({});
  if (json.contains("spike_guard")) {  // older programs wrote none
    state.spike_guard = object_field(json, "spike_guard");
    guard.restore(state.spike_guard);
  }
  if (const Index skipped = scaler.skipped() + guard.skipped(); skipped > steps_taken)
    throw std::runtime_error(fmt::format("\"skipped\" is {} in all, and {} steps are taken", skipped, steps_taken));
  if (json.contains("matmul_kernels")) {
    state.matmul_kernels = list_field(json, "matmul_kernels");
    kernels_for_rank(state.matmul_kernels, "", 0);
  }
  return state;
}

}  // namespace

json to_json(const StoredState& state) {
  json passed_over = json::array();
  for (const IndexRange& samples : state.passed_over)
    passed_over.push_back({samples.begin, samples.end});
  json all = {{"step", state.step},
              {"data_position", state.data_position},
              {"passed_over", passed_over},
              {"tokens", state.tokens},
              {"loss", state.loss},
              {"seed", state.seed},
              {"tokenizer", state.tokenizer},
              {"matmul", state.matmul},
              {"config", state.config},
              {"kokkos", state.kokkos},
              {"loss_scale", state.loss_scaler}};
  if (!state.spike_guard.is_null())
    all["spike_guard"] = state.spike_guard;
  if (state.next_loss)
    all["next_loss"] = {
        {"samples", state.next_loss->samples}, {"loss", state.next_loss->loss}, {"compute", state.next_loss->compute}};
  if (!state.data_files.is_null())
    all[data_files_key] = state.data_files;
  if (!state.matmul_kernels.empty())
    all["matmul_kernels"] = state.matmul_kernels;
  return all;
}

StoredState read_state(const CheckpointReader& checkpoint) {
  const auto refusal = [&](const std::string& reason) {
    return Error(ExitCode::checkpoint,
                 {.what = "the state of a checkpoint cannot be used",
                  .where = (checkpoint.path() / manifest_name).string(),
                  .got = reason,
                  .wanted = "the fields of docs/checkpoint_format.md, each in its range and consistent with the others",
                  .todo = "use an older checkpoint; this one was damaged or forged"});
  };
  try {
    StoredState state = state_from(checkpoint.state(), checkpoint.info().step);
    require_model_of_tensors(state.config, checkpoint);
    return state;
  } catch (const Error& error) {  // of the config
    throw refusal(fmt::format("\"config\": {}", error.report().what));
  } catch (const std::runtime_error& error) {
    throw refusal(error.what());
  }
}

}  // namespace espalier
