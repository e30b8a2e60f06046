// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/pretrained/model_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>

#include "core/error.hpp"
#include "io/config/key_reader.hpp"
#include "io/input_limits.hpp"
#include "io/nearest_word.hpp"
#include "io/strings.hpp"
#include "models/largest_model.hpp"
#include "models/model_section.hpp"
#include "models/presets.hpp"
#include "training/config/config_sections.hpp"
#include "training/config/run_layout.hpp"

namespace espalier {
namespace {

// That of `train`.
std::string default_preset() { return RunConfig::Model{}.preset; }

// Reads [model], and names the sizes that it inherits from a preset.
class ShapeReader : public KeyReader {
 public:
  using KeyReader::KeyReader;
  void integer(const char* key, Index& value, IntegerRange range, const char*) {
    if (reader_.read(section_, key, value, range))
      given.insert(key);
    else if (std::ranges::count(model_size_keys, std::string_view(key)) > 0)
      inherited.push_back(fmt::format("{} {}", key, value));
  }
  std::set<std::string> given;         // sizes
  std::vector<std::string> inherited;  // "vocab_size 256"
};

class ModelReader {
 public:
  ModelReader(const std::string& text, const std::string& name)
      : reader_(text, name, {},
                {.name = "config", .help = "docs/config.md and `espalier train --keys` explain all keys"}),
        file_name_(Path(name).filename().string()) {}

  PlannedModel read() {
    for (const char* const section :
         {"data", "parallel", "precision", "optimizer", "checkpoint", "stability", "run", "emulate"})
      reader_.leave(section);
    const bool starts_from_preset = read_preset();
    PlannedModel planned;
    read_shape(planned);
    read_batch(planned);
    read_settings(planned);
    const std::string from_default = starts_from_preset || inherited_.empty()
                                         ? ""
                                         : fmt::format("[model] has no preset, so the missing keys are those of {}: {}",
                                                       default_preset(), fmt::join(inherited_, ", "));
    if (!from_default.empty())
      planned.notes.push_back(fmt::format(
          "{}: {}; it has activation {}, norm {}, position {}, tied_embeddings {}, bias {}", file_name_, from_default,
          shape_.activation, to_string(shape_.norm), to_string(shape_.positions), shape_.tied_embeddings, shape_.bias));
    std::vector<BrokenRule> broken = broken_rules(shape_);
    if (!broken.empty() && !from_default.empty())
      broken.front().message += fmt::format(" ({})", from_default);
    for (const BrokenRule& rule : broken)
      reader_.rule_problem(rule.section, rule.key, rule.message, rule.others);
    reader_.finish();
    planned.model = shape_;
    planned.name = shape_ == preset_ ? preset_name_ : file_name_;
    return planned;
  }

 private:
  bool read_preset() {
    const bool given = reader_.read("model", "preset", preset_name_, model_preset_names());
    preset_ = model_preset(preset_name_);
    shape_ = preset_;
    return given;
  }

  void read_shape(PlannedModel& planned) {
    ShapeReader shape(reader_);
    shape.section("model", "");
    visit_model(shape_, shape);
    shape_ = in_one_spelling(shape_);
    // Without a table the longest sequence is no part of what is computed: given, it says how long one is.
    const bool says_length = shape_.positions == Positions::learned || shape.given.contains("max_sequence_length");
    planned.sequence_length = says_length ? shape_.max_sequence_length : 0;
    inherited_ = shape.inherited;
    if (shape_.positions != Positions::learned)
      std::erase_if(inherited_, [](const std::string& size) { return size.starts_with("max_sequence_length"); });
  }

  void read_batch(PlannedModel& planned) {
    Index of_a_replica = 1;  // for the planner to choose
    reader_.read("batch", "micro_batch_size", of_a_replica);
    reader_.read("batch", "global_batch_size", planned.global_batch, {.min = 1, .max = LargestModel::batch});
    Index length = 0;
    reader_.read("batch", "sequence_length", length, or_zero(ModelRange::positions));
    if (const auto rule = broken_length_rule(shape_, length); rule && shape_.learned_positions() > 0)
      reader_.rule_problem(rule->section, rule->key, rule->message, rule->others);
    if (length > 0)
      planned.sequence_length = length;
  }

  void read_settings(PlannedModel& planned) {
    RunConfig config;
    KeyReader keys(reader_);
    visit_data(config.data, keys);
    keys.section("precision", "");
    reader_.read("precision", "compute", planned.precision);  // also those that only the planner knows
    visit_precision(config.precision, keys);
    visit_checkpoint(config.checkpoint, keys);
    visit_run(config.run, keys);
    planned.settings = train_settings(config);
  }

  ConfigReader reader_;
  std::string file_name_;
  std::string preset_name_ = default_preset();
  ModelConfig preset_;  // where the shape starts from
  ModelConfig shape_;
  std::vector<std::string> inherited_;  // sizes that are the preset's
};

}  // namespace

PlannedModel parse_planned_model(const std::string& text, const std::string& name) {
  return ModelReader(text, name).read();
}

PlannedModel planned_model(const std::string& name_or_file) {
  if (name_or_file.ends_with(".toml"))
    return parse_planned_model(read_file(name_or_file, ExitCode::usage, LargestFile::config), name_or_file);
  const std::vector<std::string>& known = model_preset_names();
  if (std::ranges::find(known, name_or_file) == known.end())
    throw Error(ExitCode::usage,
                {.what = "unknown model",
                 .got = name_or_file.empty() ? "nothing" : name_or_file,
                 .wanted = fmt::format("a config file (*.toml) or one of {}", fmt::join(known, ", ")),
                 .todo = contains(lower_case(name_or_file), "mixtral") || contains(lower_case(name_or_file), "moe")
                             ? "name a dense model: mixtures of experts cannot be planned yet"
                             : did_you_mean(name_or_file, known,
                                            "name one of these, or a TOML file with the shape under [model] "
                                            "(docs/planner.md)")});
  PlannedModel planned;
  planned.model = model_preset(name_or_file);
  planned.name = name_or_file;
  planned.sequence_length = planned.model.learned_positions();
  return planned;
}

}  // namespace espalier
