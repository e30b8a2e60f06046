// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/plan_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/memory_text.hpp"
#include "io/config/toml_config.hpp"
#include "io/input_limits.hpp"
#include "io/units.hpp"
#include "models/model_section.hpp"
#include "models/part_layers.hpp"
#include "models/presets.hpp"
#include "planning/layout_limits.hpp"
#include "planning/run_cost.hpp"
#include "planning/runnable.hpp"
#include "training/prediction/predict_time.hpp"

namespace espalier {
namespace {

bool is_file(const std::string& name) { return name.ends_with(".toml"); }

std::string key_of(const std::string& setting) {
  std::string key = setting.substr(0, setting.find('='));
  std::erase(key, ' ');
  return key;
}

// The layout decides all of these sections, and the type that it computes in.
bool is_planned(const std::string& key) {
  return is_model_key(key) || key.starts_with("batch.") || key.starts_with("parallel.") || key == "precision.compute";
}

void require_settings(const std::vector<std::string>& settings) {
  std::vector<std::string> keys;
  for (const std::string& setting : settings) {
    const std::string key = key_of(setting);
    const auto refuse = [&](const char* what, const char* wanted, const std::string& todo) {
      throw Error(ExitCode::usage, {.what = what, .where = "--set", .got = setting, .wanted = wanted, .todo = todo});
    };
    if (setting.find('=') == std::string::npos || key.find('.') == std::string::npos)
      refuse("a setting cannot be read", "section.key=value", "--set data.train=train.bin run.steps=1000");
    if (key.starts_with("emulate."))
      refuse("emulation is not allowed in a config", "keys of a config", "give it to train with --emulate");
    if (is_planned(key))
      refuse("the plan decides this setting", "keys of [data], [optimizer], [run] and the like",
             "change --model, --batch or --sequence-length, or fix the choice with --fix or --precision");
    if (std::ranges::find(keys, key) != keys.end())
      refuse("a setting is given twice", "each key once", fmt::format("leave out one {}", key));
    keys.push_back(key);
  }
}

// By its keys: no layout helps there.
void require_trainable(const ModelConfig& model, const std::string& name) {
  std::vector<std::string> got;
  std::vector<std::string> wanted;
  for (const UnsupportedPart& part : unsupported_parts(model)) {
    got.push_back(fmt::format("model.{} = {}", part.key, part.value));
    wanted.push_back(fmt::format("model.{} = {}", part.key, part.wanted));
  }
  if (got.empty())
    return;
  ErrorReport report{.what = "no config: " + why_not_trainable(model), .where = name};
  report.got = fmt::format("{}{}", is_file(name) ? "" : "a preset with ", fmt::join(got, ", "));
  if (is_file(name)) {
    report.wanted = fmt::format("{}", fmt::join(wanted, ", "));
    report.todo = "change these keys of [model] (its preset may set them), or leave out --config";
  } else {
    report.todo = "choose another model, such as gpt3-175b; or leave out --config, because planning works";
  }
  throw Error(ExitCode::usage, std::move(report));
}

void require_runnable(const PlanProblem& problem, const Layout& layout) {
  if (const std::string reason = why_not_runnable(problem, layout); !reason.empty())
    throw Error(ExitCode::usage, {.what = "no config: train cannot run this layout",
                                  .where = layout.text(),
                                  .got = reason,
                                  .wanted = "a layout that train can run",
                                  .todo = "choose another layout (--fix, --precision), or leave out --config"});
}

std::vector<std::string> planned_settings(const PlanProblem& problem, Layout layout) {
  ModelConfig model = problem.model;
  // Without learned positions a model may name no longest sequence. A config of `train` has one.
  model.max_sequence_length = std::max(model.max_sequence_length, problem.sequence_length);
  std::vector<std::string> settings = model_keys(model);
  const std::vector<std::string>& names = trainable_preset_names();
  const bool has_name = std::ranges::find(names, problem.model_name) != names.end();
  settings.push_back("model.preset=" + (has_name ? problem.model_name : RunConfig::Model{}.preset));
  settings.push_back(fmt::format("batch.sequence_length={}", problem.sequence_length));
  if (layout.pipeline > 1)
    layout.layers = part_layers(problem.model, problem.sequence_length, layout);
  const std::vector<std::string> of_layout = settings_of(layout);
  settings.insert(settings.end(), of_layout.begin(), of_layout.end());
  return settings;
}

// The cluster as `train` can name it: of a preset with the nodes that the plan uses.
std::string run_cluster(const std::string& cluster, const Cluster& planned) {
  return is_file(cluster) ? cluster
                          : fmt::format("{}:{}x{}", planned.name, planned.num_nodes, planned.devices_per_node);
}

// What stands in for the user's own, where neither file nor settings say it. What they say wrongly is theirs to
// correct: it is left for the reader of the whole config to refuse.
void fill_in(std::vector<std::string>& settings, std::vector<std::string>& to_fill, const std::string& text,
             const std::string& name) {
  const auto is_set = [given = settings](const char* key) {
    return std::ranges::any_of(given, [&](const std::string& each) { return key_of(each) == key; });
  };
  ConfigReader given(text, name, settings);
  const std::size_t of_other_keys = given.problems().size();
  Index steps = 0;
  Index tokens = 0;
  given.read("run", "steps", steps);
  given.read_count("run", "tokens", tokens);
  const std::size_t wrong = given.problems().size();
  const bool ends = steps > 0 || tokens > 0 || wrong > of_other_keys || is_set("run.steps") || is_set("run.tokens");
  std::vector<std::string> train;
  given.read("data", "train", train);
  if (train.empty() && given.problems().size() == wrong && !is_set("data.train")) {
    settings.emplace_back("data.train=[\"train.bin\"]");
    to_fill.emplace_back("data.train: replace train.bin by your token files (espalier data pack makes them)");
  }
  if (!ends) {
    settings.emplace_back("run.steps=100");
    to_fill.emplace_back("run.steps: replace 100 by the length of your run");
  }
}

// Settings that change time or memory, and that the plan does not know.
std::vector<std::string> unpriced(const std::vector<std::string>& settings) {
  std::vector<std::string> kept;
  for (const std::string& setting : settings)
    if (const std::string key = key_of(setting);
        key.starts_with("precision.") || key == "data.documents" || key == "checkpoint.async" || key == "run.attention")
      kept.push_back(setting);
  return kept;
}

std::string header(const PlanProblem& problem, const LayoutPrice& price, const std::vector<std::string>& settings,
                   const std::vector<std::string>& to_fill) {
  ConfigWriter file;
  file.comment(fmt::format("{}{} on {} of {}", plan_config_begin.substr(2), problem.model_name,
                           counted(price.layout.num_devices(), "device"), problem.cluster.device.name));
  file.comment(price.layout.text());
  file.comment(fmt::format("predicted: {:.4g} s per step ({}), {:.4g} tokens/s, {} of memory", price.step_seconds,
                           interval_text(price.step_interval), price.tokens_per_second,
                           bytes_text(price.memory_bytes)));
  if (!problem.cluster.device.moves_messages)
    file.comment(fmt::format("{} (docs/gpus.md): this is predicted.", gpu_caveat));
  if (const std::string text = unfitted_text(problem.cluster.device); !text.empty())
    file.comment(text);
  if (const std::vector<std::string> more = unpriced(settings); !more.empty())
    file.comment(fmt::format("not in this prediction: {}", fmt::join(more, ", ")));
  if (!to_fill.empty())
    file.comment("To fill in before it trains:");
  for (const std::string& line : to_fill)
    file.comment("  " + line);
  return file.text() + '\n';
}

}  // namespace

TrainConfig train_config(const std::string& model, const std::string& cluster, const std::vector<std::string>& settings,
                         const PlanProblem& problem, const LayoutPrice& price) {
  require_settings(settings);
  require_trainable(problem.model, model);
  require_runnable(problem, price.layout);
  const int devices = price.layout.num_devices();
  const std::string text = is_file(model) ? read_file(model, ExitCode::usage, LargestFile::config) : "";
  const std::string name = is_file(model) ? model : "plan";
  std::vector<std::string> all = settings;
  const auto sets = [&](const char* key) {
    return std::ranges::any_of(settings, [&](const std::string& each) { return key_of(each) == key; });
  };
  if (problem.num_tokens > 0 && !sets("run.steps") && !sets("run.tokens"))
    all.push_back(fmt::format("run.tokens={}", problem.num_tokens));
  TrainConfig config;
  fill_in(all, config.to_fill, text, name);
  if (!sets("run.device_memory") && !ConfigReader(text, name, {}).has("run", "device_memory"))
    all.push_back(fmt::format("run.device_memory={}", free_bytes(problem)));
  if (!sets("run.cluster")) {
    config.cluster = run_cluster(cluster, problem.cluster);
    all.push_back(override_text("run.cluster", config.cluster));
    if (const int described = cluster_from(cluster).num_devices(); is_file(cluster) && described < devices)
      config.to_fill.push_back(fmt::format(
          "run.cluster: {} has {} devices, this layout {}: raise its number of nodes, or no step time is predicted",
          cluster, described, devices));
  }
  const std::vector<std::string> planned = planned_settings(problem, price.layout);
  all.insert(all.end(), planned.begin(), planned.end());
  RunConfig planned_run = parse_run_config(text, name, all, devices, Libraries::known);
  planned_run.emulate = {};  // where the model is that of a run which emulated
  config.toml = header(problem, price, settings, config.to_fill) + to_toml(planned_run);
  return config;
}

}  // namespace espalier
