// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/model_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>

#include "core/error.hpp"
#include "io/input_limits.hpp"
#include "io/nearest_word.hpp"
#include "io/toml_config.hpp"
#include "models/largest_model.hpp"
#include "models/presets.hpp"

namespace espalier {
namespace {

constexpr const char* default_preset = "byte-1m";  // that of `train`

class ModelReader {
 public:
  ModelReader(const std::string& text, const std::string& name)
      : reader_(text, name, {},
                {.name = "config",
                 .help = "docs/planner.md explains the keys of [model], `espalier train --keys` all others"}),
        file_name_(Path(name).filename().string()) {}

  PlannedModel read() {
    for (const char* const section :
         {"data", "parallel", "precision", "optimizer", "checkpoint", "stability", "run", "emulate"})
      reader_.leave(section);
    const bool starts_from_preset = read_preset();
    PlannedModel planned;
    read_sizes();
    read_kind();
    read_positions(planned);
    read_batch(planned);
    read_attention(planned);
    const std::string from_default =
        starts_from_preset || inherited_.empty()
            ? ""
            : fmt::format("[model] names no preset, so what it does not give is that of {}: {}", default_preset,
                          fmt::join(inherited_, ", "));
    if (!from_default.empty())
      planned.notes.push_back(fmt::format("{}: {}", file_name_, from_default));
    const std::vector<std::string> broken = problems(shape_);
    for (std::size_t i = 0; i < broken.size(); ++i)
      reader_.problem("model",
                      i > 0 || from_default.empty() ? broken[i] : fmt::format("{} ({})", broken[i], from_default));
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

  void read_size(const char* key, Index& value, Index most) {
    if (!reader_.read("model", key, value, {.min = 1, .max = most}))
      inherited_.push_back(fmt::format("{} {}", key, value));
  }

  // In the ranges of `train`.
  void read_sizes() {
    read_size("num_layers", shape_.num_layers, LargestModel::layers);
    read_size("hidden_size", shape_.hidden_size, LargestModel::channels);
    read_size("num_heads", shape_.num_heads, LargestModel::channels);
    read_size("ffn_hidden_size", shape_.ffn_hidden_size, LargestModel::ffn);
    read_size("vocab_size", shape_.vocab_size, LargestModel::vocabulary);
    reader_.read("model", "num_kv_heads", shape_.num_kv_heads, {.min = 1, .max = LargestModel::channels});
    if (shape_.num_kv_heads == shape_.num_heads)
      shape_.num_kv_heads = 0;
  }

  void read_kind() {
    read_choice("norm", {{"layernorm", Norm::layernorm}, {"rmsnorm", Norm::rmsnorm}}, shape_.norm);
    reader_.read("model", "activation", shape_.activation, activation_names());
    reader_.read("model", "tied_embeddings", shape_.tied_embeddings);
    reader_.read("model", "bias", shape_.bias);
    reader_.read("model", "dropout", shape_.dropout, {.min = 0, .max = 1, .max_open = true});
  }

  // With rotary positions max_sequence_length is no table, but still says how long a sequence is.
  void read_positions(PlannedModel& planned) {
    read_choice("position", {{"learned", Positions::learned}, {"rotary", Positions::rotary}}, shape_.positions);
    const bool rotary = shape_.positions == Positions::rotary;
    Index length = shape_.max_sequence_length;
    const bool given = reader_.read("model", "max_sequence_length", length, {.min = 1, .max = LargestModel::positions});
    if (!rotary && length == 0)
      reader_.problem("model", "max_sequence_length", "is missing: how many positions are learned");
    if (!rotary && !given && length > 0)
      inherited_.push_back(fmt::format("max_sequence_length {}", length));
    shape_.max_sequence_length = rotary ? 0 : length;
    planned.sequence_length = length;
  }

  void read_batch(PlannedModel& planned) {
    Index of_a_replica = 1;  // for the planner to choose
    reader_.read("batch", "micro_batch_size", of_a_replica);
    reader_.read("batch", "global_batch_size", planned.global_batch, {.min = 1, .max = 1 << 24});
    Index length = 0;
    reader_.read("batch", "sequence_length", length, {.min = 0, .max = LargestModel::positions});
    if (shape_.learned_positions() > 0 && length > shape_.max_sequence_length)
      reader_.problem(
          "batch", "sequence_length",
          fmt::format("{} is longer than the model's max_sequence_length {}", length, shape_.max_sequence_length));
    if (length > 0)
      planned.sequence_length = length;
  }

  // Which words there are is for `train` to say.
  void read_attention(PlannedModel& planned) {
    std::string attention;
    reader_.read("run", "attention", attention);
    planned.own_attention = attention == "own";
  }

  template <class Choice>
  void read_choice(const char* key, const std::map<std::string, Choice>& choices, Choice& value) {
    std::string word;
    std::vector<std::string> words;
    for (const auto& [each, choice] : choices) {
      words.push_back(each);
      if (choice == value)
        word = each;
    }
    reader_.read("model", key, word, words);
    value = choices.at(word);
  }

  ConfigReader reader_;
  std::string file_name_;
  std::string preset_name_ = default_preset;
  ModelConfig preset_;  // where the shape starts from
  ModelConfig shape_;
  std::vector<std::string> inherited_;  // sizes that are the preset's: "vocab_size 256"
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
    throw Error(ExitCode::usage, {.what = "unknown model",
                                  .got = name_or_file.empty() ? "nothing" : name_or_file,
                                  .wanted = fmt::format("a config file (*.toml) or one of {}", fmt::join(known, ", ")),
                                  .todo = did_you_mean(name_or_file, known,
                                                       "name one of these, or a TOML file with the shape under [model] "
                                                       "(docs/planner.md)")});
  const ModelConfig model = model_preset(name_or_file);
  return {.model = model, .name = name_or_file, .sequence_length = model.learned_positions(), .notes = {}};
}

}  // namespace espalier
