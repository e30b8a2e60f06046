// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/model_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <limits>

#include "io/input_limits.hpp"
#include "io/toml_config.hpp"

namespace espalier {
namespace {

constexpr const char* default_preset = "byte-1m";  // that of `train`
constexpr Index longest_sequence = 1 << 24;

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
    if (shape_ != preset_)
      shape_.name = file_name_;
    const std::vector<std::string> broken = problems(shape_);
    for (std::size_t i = 0; i < broken.size(); ++i)
      reader_.problem("model",
                      i > 0 || from_default.empty() ? broken[i] : fmt::format("{} ({})", broken[i], from_default));
    reader_.finish();
    planned.model = shape_;
    return planned;
  }

 private:
  bool read_preset() {
    std::string preset = default_preset;
    const bool given = reader_.read("model", "preset", preset, model_preset_names());
    preset_ = model_preset(preset);
    shape_ = preset_;
    return given;
  }

  void read_size(const char* key, Index& value, Index most) {
    if (!reader_.read("model", key, value, {.min = 1, .max = most}))
      inherited_.push_back(fmt::format("{} {}", key, value));
  }

  // In the ranges of `train`.
  void read_sizes() {
    constexpr Index channels = 1 << 18;
    const bool is_grouped = shape_.num_kv_heads != shape_.num_heads;
    read_size("num_layers", shape_.num_layers, 1 << 14);
    read_size("hidden_size", shape_.hidden_size, channels);
    read_size("num_heads", shape_.num_heads, channels);
    read_size("ffn_hidden_size", shape_.ffn_hidden_size, 1 << 20);
    read_size("vocab_size", shape_.vocab_size, std::numeric_limits<std::int32_t>::max());
    if (!is_grouped)
      shape_.num_kv_heads = shape_.num_heads;
    reader_.read("model", "num_kv_heads", shape_.num_kv_heads, {.min = 1, .max = channels});
  }

  void read_kind() {
    read_choice("norm", "layernorm", "rmsnorm", shape_.rms_norm);
    read_choice("activation", "gelu", "swiglu", shape_.gated_ffn);
    reader_.read("model", "tied_embeddings", shape_.tied_embeddings);
    reader_.read("model", "bias", shape_.bias);
    double dropout = 0;  // a share; what it costs is the same for any
    if (reader_.read("model", "dropout", dropout, {.min = 0, .max = 1, .max_open = true}))
      shape_.dropout = dropout > 0;
  }

  // With rotary positions max_sequence_length is no table, but still says how long a sequence is.
  void read_positions(PlannedModel& planned) {
    bool rotary = shape_.max_sequence_length == 0;
    read_choice("position", "learned", "rotary", rotary);
    Index length = shape_.max_sequence_length;
    const bool given = reader_.read("model", "max_sequence_length", length, {.min = 1, .max = longest_sequence});
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
    reader_.read("batch", "sequence_length", length, {.min = 0, .max = longest_sequence});
    if (shape_.max_sequence_length > 0 && length > shape_.max_sequence_length)
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

  void read_choice(const char* key, const char* no, const char* yes, bool& value) {
    std::string word = value ? yes : no;
    reader_.read("model", key, word, {no, yes});
    value = word == yes;
  }

  ConfigReader reader_;
  std::string file_name_;
  ModelShape preset_;  // where the shape starts from
  ModelShape shape_;
  std::vector<std::string> inherited_;  // sizes that are the preset's: "vocab_size 256"
};

}  // namespace

PlannedModel parse_planned_model(const std::string& text, const std::string& name) {
  return ModelReader(text, name).read();
}

PlannedModel planned_model(const std::string& name_or_file) {
  if (name_or_file.ends_with(".toml"))
    return parse_planned_model(read_file(name_or_file, ExitCode::usage, LargestFile::config), name_or_file);
  const ModelShape model = model_preset(name_or_file);
  return {.model = model, .global_batch = 0, .sequence_length = model.max_sequence_length, .notes = {}};
}

}  // namespace espalier
