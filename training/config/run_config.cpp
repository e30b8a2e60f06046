// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/config/run_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>

#include "core/error.hpp"
#include "core/ops/attention_library.hpp"
#include "core/ops/matmul_library.hpp"
#include "io/config/toml_config.hpp"
#include "training/config/config_sections.hpp"
#include "training/config/config_visitors.hpp"
#include "training/config/emulation.hpp"
#include "training/config/validate_config.hpp"
#include "training/config/with_compute_type.hpp"

namespace espalier {
namespace {

constexpr double not_given = -1;
constexpr Index no_limit = std::numeric_limits<Index>::max();

// Rounded to 12 digits: the resolved config says 3e-05, not 2.9999999999999997e-05.
double tenth(double value) { return std::stod(fmt::format("{:.12g}", value / 10)); }

RunConfig resolve(ConfigReader& reader, int world_size, Libraries libraries, const RunConfig::Emulate& emulate = {}) {
  RunConfig config;
  config.emulate = emulate;
  config.optimizer.minimum_learning_rate = not_given;
  config.layout.micro_batch = 0;  // not given: by layout
  ReadingVisitor read(reader);
  visit_keys(config, read);
  read_emulate_keys(reader, config.emulate);
  config.model.shape = in_one_spelling(config.model.shape);
  reader.check_unknown();
  if (config.optimizer.minimum_learning_rate == not_given) {
    config.optimizer.minimum_learning_rate = tenth(config.optimizer.learning_rate);
    reader.derive("optimizer", "minimum_learning_rate", {"optimizer.learning_rate"});
  }
  if (config.sequence_length == 0) {
    config.sequence_length = config.model.shape.max_sequence_length;
    reader.derive("batch", "sequence_length", {"model.max_sequence_length"});
  }
  if (config.layout.micro_batch == 0)
    reader.derive("batch", "micro_batch_size",
                  {"batch.global_batch_size", "parallel.data", "parallel.tensor", "parallel.pipeline"});
  if (libraries == Libraries::present)
    for (const auto& [key, sentence] : absent_libraries(config))
      reader.problem("run", key, sentence);
  validate_run_config(config, reader, world_size);
  read.report_unread();
  if (config.layout.micro_batch == 0)
    config.layout.micro_batch = fitting_micro_batch(config, world_size);
  reader.finish();
  return config;
}

}  // namespace

std::string RunConfig::model_name() const {
  return model.shape == model_preset(model.preset) ? model.preset : "custom";
}

std::string RunConfig::run_name() const {
  const Path path = std::filesystem::absolute(run.directory).lexically_normal();
  return (path / "").parent_path().filename();  // also of a path that ends with a slash
}

Index RunConfig::total_steps() const {
  const Index by_tokens = run.tokens > 0 ? (run.tokens + tokens_per_step() - 1) / tokens_per_step() : no_limit;
  return std::min(run.steps > 0 ? run.steps : no_limit, by_tokens);
}

LearningRate RunConfig::learning_rate() const {
  LearningRate rate;
  rate.shape = optimizer.schedule;
  rate.peak = optimizer.learning_rate;
  rate.minimum = optimizer.minimum_learning_rate;
  rate.warmup_steps = optimizer.warmup_steps;
  // The config counts steps from 1, LearningRate from 0.
  rate.decay_steps = (optimizer.decay_steps > 0 ? optimizer.decay_steps : total_steps()) - 1;
  rate.stable_until = static_cast<Index>(optimizer.stable_fraction * static_cast<double>(rate.decay_steps + 1)) - 1;
  return rate;
}

RunConfig read_run_config(const Path& file, const std::vector<std::string>& overrides, int world_size,
                          Libraries libraries, const RunConfig::Emulate& emulate) {
  ConfigReader reader(file, overrides);
  reader.refuse("emulate", "is not allowed in a config; give these keys to train with --emulate, as FILE or key=value");
  return resolve(reader, world_size, libraries, emulate);
}

RunConfig parse_run_config(const std::string& text, const std::string& name, const std::vector<std::string>& overrides,
                           int world_size, Libraries libraries) {
  ConfigReader reader(text, name, overrides);
  return resolve(reader, world_size, libraries);
}

std::vector<std::string> settings_of(const Layout& layout) {
  SettingsVisitor settings("batch");
  visit_batch(layout, settings);
  visit_parallel(layout, settings);
  settings.section("precision", "");
  visit_compute(layout, settings);
  return settings.result();
}

std::vector<std::string> settings_of(const ModelConfig& model) {
  SettingsVisitor settings("model");
  visit_model(model, settings);
  return settings.result();
}

std::vector<std::string> model_keys(const ModelConfig& model) {
  std::vector<std::string> keys = settings_of(model);
  const std::vector<std::string> usual = settings_of(ModelConfig{});
  const auto is_size = [](const std::string& key) {
    return std::ranges::any_of(model_size_keys,
                               [&](std::string_view size) { return key.starts_with(fmt::format("model.{}=", size)); });
  };
  std::erase_if(keys, [&](const std::string& key) { return !is_size(key) && std::ranges::count(usual, key) > 0; });
  return keys;
}

std::vector<std::pair<std::string, std::string>> absent_libraries(const RunConfig& config) {
  std::vector<std::pair<std::string, std::string>> absent;
  const auto look = [&](const char* key, const std::string& name, const std::vector<std::string>& present) {
    if (std::find(present.begin(), present.end(), name) == present.end())
      absent.emplace_back(
          key, fmt::format("\"{}\" is not in this build, which has \"{}\"", name, fmt::join(present, "\", \"")));
  };
  look("matmul", config.run.matmul, words_of(matmul_libraries(), {"auto"}));
  look("attention", config.run.attention, words_of(attention_libraries(), {"auto"}));
  return absent;
}

RunConfig read_resolved_config(ConfigReader& reader) {
  RunConfig config;
  ReadingVisitor read(reader);
  visit_keys(config, read);
  read_emulate_keys(reader, config.emulate);
  reader.check_unknown();
  read.report_unread();
  config.model.shape = in_one_spelling(config.model.shape);
  return config;
}

std::string to_toml(const RunConfig& config) {
  WritingVisitor writer;
  visit_keys(config, writer);
  return writer.result() + (config.emulates() ? "\n" + changed_emulate_keys(config.emulate) : "");
}

bool is_dropout(const std::string& key) { return key.starts_with("model.") && key.ends_with("_dropout"); }

const std::vector<std::string>* files_named_by(const std::string& key, const RunConfig::Data& data) {
  return key == "data.train" ? &data.train : key == "data.validation" ? &data.validation : nullptr;
}

bool names_files(const std::string& key) { return files_named_by(key, {}) != nullptr; }

bool may_change_on_resume(const std::string& key) {
  static const std::vector<std::string> frozen = {
      "data.document",           "data.weights",          "data.epochs", "data.validation_fraction",
      "batch.global_batch_size", "batch.sequence_length", "run.seed"};
  const auto is_frozen = [&](const std::string& prefix) { return key.starts_with(prefix); };
  return is_dropout(key) ||
         (!is_model_key(key) && !names_files(key) && std::none_of(frozen.begin(), frozen.end(), is_frozen));
}

}  // namespace espalier
