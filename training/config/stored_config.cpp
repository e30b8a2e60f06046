// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/config/stored_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <utility>

#include "io/checkpoint/checkpoint_names.hpp"
#include "io/config/toml_config.hpp"
#include "io/input_limits.hpp"
#include "io/json_fields.hpp"
#include "io/records/metrics.hpp"
#include "io/records/run_paths.hpp"
#include "models/model_section.hpp"
#include "training/config/config_sections.hpp"

namespace espalier {
namespace {

std::string text_of(const ConfigDifference& difference) {
  const auto value = [](const std::string& text) { return text.empty() ? "absent" : text; };
  return fmt::format("{}: {} -> {}", difference.key, value(difference.old_value), value(difference.new_value));
}

// One line for each difference that `is_allowed` does not allow.
template <class IsAllowed>
std::string refused_lines(const std::vector<ConfigDifference>& differences, const IsAllowed& is_allowed) {
  std::string lines;
  for (const ConfigDifference& difference : differences)
    if (!is_allowed(difference.key))
      lines += "\n  " + text_of(difference);
  return lines;
}

// Do two lists name the same files, under whatever paths?
bool same_files(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const std::string& left, const std::string& right) {
    std::error_code missing;
    return left == right || std::filesystem::equivalent(left, right, missing);
  });
}

RunConfig::Data stored_data(const std::string& stored) {
  ConfigReader reader(stored, "the stored config", {});
  KeyReader keys(reader);
  RunConfig::Data data;
  visit_data(data, keys);
  return data;
}

// May a run resume, or begin again, with another value of this key? The same files may be found under other paths.
class MayChange {
 public:
  MayChange(const std::string& stored, const RunConfig& config, DataPaths paths = DataPaths::same_files)
      : before_(stored_data(stored)), now_(config.data), paths_(paths) {}
  bool operator()(const std::string& key) const {
    if (const std::vector<std::string>* const now = files_named_by(key, now_);
        now != nullptr && may_be(*files_named_by(key, before_), *now))
      return true;
    return may_change_on_resume(key) || (paths_ == DataPaths::any && key.starts_with("data."));
  }

 private:
  bool may_be(const std::vector<std::string>& before, const std::vector<std::string>& files) const {
    return (paths_ == DataPaths::as_many && before.size() == files.size()) || same_files(before, files);
  }

  RunConfig::Data before_;
  const RunConfig::Data& now_;
  DataPaths paths_;
};

// The section [model] of the stored config, and what the overrides add, as a config to use here.
RunConfig parse_stored(const CheckpointReader& checkpoint, std::vector<std::string> overrides) {
  overrides.insert(overrides.end(), {"data.train=[\"any\"]", "run.steps=1"});
  try {
    return parse_run_config(model_section(stored_config(checkpoint)), (checkpoint.path() / manifest_name).string(),
                            overrides, 1);
  } catch (const Error& error) {
    throw Error(ExitCode::checkpoint, error.report());
  }
}

// A preset is only a name for the keys that follow it.
bool leaves_the_model(const std::string& key) { return !is_model_key(key) || key == "model.preset" || is_dropout(key); }

}  // namespace

std::string stored_config(const CheckpointReader& checkpoint) {
  try {
    auto config = field<std::string>(checkpoint.state(), "config", LargestFile::config);
    if (model_section(config).empty())
      throw std::runtime_error("\"config\" without a section [model]");
    diff_configs(config, "");  // is it TOML?
    return config;
  } catch (const std::runtime_error& error) {
    const auto* const own = dynamic_cast<const Error*>(&error);
    throw Error(ExitCode::checkpoint, {.what = "the checkpoint does not describe its model",
                                       .where = (checkpoint.path() / manifest_name).string(),
                                       .got = own != nullptr ? own->report().what : error.what(),
                                       .wanted = "the config of its run, with a section [model]",
                                       .todo = "use a checkpoint that `espalier train` has written"});
  }
}

ModelConfig stored_model(const CheckpointReader& checkpoint) { return parse_stored(checkpoint, {}).model.shape; }

RunConfig stored_forward(const CheckpointReader& checkpoint, const std::string& precision) {
  ConfigReader reader(stored_config(checkpoint), "the stored config", {});
  const auto word = [&](const char* key) {
    std::string value;
    reader.read("precision", key, value);
    return value;
  };
  const std::string compute = precision.empty() ? word("compute") : precision;
  const std::string residual = word("residual");
  Index length = 0;
  Index micro_batch = 0;
  reader.read("batch", "sequence_length", length);
  reader.read("batch", "micro_batch_size", micro_batch);
  std::string documents = to_string(DocumentMode::joined);  // also of what was imported, and of older versions
  Index document_end = -1;
  reader.read("data", "documents", documents);
  reader.read("data", "document_end", document_end);
  std::vector<std::string> overrides = {fmt::format("batch.sequence_length={}", length), "data.documents=" + documents,
                                        fmt::format("data.document_end={}", document_end)};
  if (!compute.empty())
    overrides.push_back("precision.compute=" + compute);
  if (!residual.empty())
    overrides.push_back("precision.residual=" + residual);
  RunConfig config = parse_stored(checkpoint, overrides);
  config.layout.micro_batch = std::max<Index>(micro_batch, 1);
  return config;
}

std::string model_section(const std::string& config) {
  std::string sections;
  for (const char* const header : {"[model]\n", "[rotary]\n"}) {
    const std::size_t begin = config.find(header);
    if (begin == std::string::npos)
      break;  // no model; or no rotary positions, in older versions
    if (!sections.empty())
      sections += '\n';
    sections.append(config, begin, config.find("\n[", begin) - begin);
  }
  return sections;
}

std::string changed_model_section(const std::string& config) {
  const std::string usual = model_section(to_toml(RunConfig{}));
  std::istringstream lines(model_section(config));
  std::string text, heading;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('['))
      heading = (text.empty() ? "" : "\n") + line + "\n";
    else if (!line.empty() && !line.starts_with('#') && !line.starts_with("preset =") &&
             usual.find("\n" + line + "\n") == std::string::npos)
      text += std::exchange(heading, "") + line + "\n";
  }
  return text;
}

std::vector<ConfigDifference> differences_from(const std::string& stored, const RunConfig& config) {
  std::vector<ConfigDifference> differences = diff_configs(stored, to_toml(config));
  const std::vector<ConfigDifference> defaults = diff_configs("", to_toml(RunConfig{}));
  std::erase_if(differences, [&](const ConfigDifference& difference) {
    return difference.old_value.empty() &&
           std::any_of(defaults.begin(), defaults.end(), [&](const ConfigDifference& standard) {
             return standard.key == difference.key && standard.new_value == difference.new_value;
           });
  });
  return differences;
}

std::vector<ConfigDifference> require_same_run(const CheckpointReader& checkpoint, const RunConfig& config,
                                               DataPaths paths) {
  const std::string stored = stored_config(checkpoint);
  std::vector<ConfigDifference> differences = differences_from(stored, config);
  if (const std::string refused = refused_lines(differences, MayChange(stored, config, paths)); !refused.empty()) {
    const bool same_model = refused_lines(differences, leaves_the_model).empty();
    const bool other_data = refused.find("\n  data.") != std::string::npos;
    throw Error(
        ExitCode::usage,
        {.what = "the checkpoint belongs to a run with another config:" + refused,
         .where = checkpoint.path().string(),
         .todo = fmt::format(
             "restore the stored values{}, or start a new run in another run.directory{}",
             other_data ? " (moved files: link them at the stored paths, ln -s NEW OLD; to train on others: --new-data)"
                        : "",
             same_model ? " (--init-from loads the weights)" : "")});
  }
  return differences;
}

EarlierRun earlier_run_in(const Path& run_directory, const RunConfig& config) {
  const Path metrics = run_directory / RunFile::metrics;
  const Path stored_file = run_directory / RunFile::config;
  EarlierRun earlier;
  std::error_code ignored;
  earlier.steps = last_step_in_metrics(metrics);
  if (earlier.steps > 0 && std::filesystem::exists(stored_file, ignored)) {
    const std::string stored = read_file(stored_file, ExitCode::data, LargestFile::config);
    ConfigReader(stored, stored_file.string(), {}).read("checkpoint", "interval", earlier.checkpoint_interval);
    earlier.changes = differences_from(stored, config);
    earlier.refused = refused_lines(earlier.changes, MayChange(stored, config));
  }
  return earlier;
}

Error of_another_model(const CheckpointReader& checkpoint, const std::string& differences, const std::string& got,
                       const std::string& wanted) {
  return {ExitCode::checkpoint,
          {.what = "the checkpoint belongs to another model" + (differences.empty() ? "" : ":" + differences),
           .where = checkpoint.path().string(),
           .got = got,
           .wanted = wanted,
           .todo = "use the [model] section that wrote it (`espalier checkpoint inspect` shows it)"}};
}

void require_same_model(const CheckpointReader& checkpoint, const RunConfig& config) {
  const auto differences = differences_from(stored_config(checkpoint), config);
  // Without a table of positions the longest sequence is no part of the weights.
  const bool has_table = config.model.shape.learned_positions() > 0;
  const auto may_differ = [&](const std::string& key) {
    return leaves_the_model(key) || (key == "model.max_sequence_length" && !has_table);
  };
  if (const std::string refused = refused_lines(differences, may_differ); !refused.empty())
    throw of_another_model(checkpoint, refused);
}

}  // namespace espalier
