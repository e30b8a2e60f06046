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
#include "models/layout_section.hpp"
#include "models/model_section.hpp"
#include "training/config/config_visitors.hpp"
#include "training/config/emulation.hpp"
#include "training/config/validate_config.hpp"
#include "training/config/with_compute_type.hpp"

namespace espalier {
namespace {

// As LargestModel; what is made of more factors is checked by validate_run_config().
constexpr Index no_limit = std::numeric_limits<Index>::max();
const IntegerRange positive{1, Index{1} << 50};
const IntegerRange not_negative{0, Index{1} << 50};
const IntegerRange degree{1, 1 << 20};
constexpr double not_given = -1;
const std::vector<std::string> state_or_compute = {"state", "compute"};
const std::vector<std::string> document_modes = {"joined", "separate"};

// Every key once: its place in the struct, what values it takes, what it means. Reading and writing both walk through
// this list, so a key cannot be known to one and not to the other.
template <class Config, class Visitor>
void visit_keys(Config& c, Visitor&& v) {
  v.section("model", "The shape. A preset sets all of it; single keys override.");
  v.choice("preset", c.model.preset, trainable_preset_names(), "name of a shape");
  v.preset(c.model);
  visit_model(c.model.shape, v);

  v.section("data", "Token files, made by `espalier data pack` (Megatron's, nanoGPT's and llm.c's are read too).");
  v.strings("train", c.data.train, "files to train on, or patterns of files");
  v.strings("validation", c.data.validation, "files to validate on");
  v.text("tokenizer", c.data.tokenizer,
         "the tokenizer of these files: a file or directory, copied into the run; \"\": that of --init-from, or bytes");
  v.choice("documents", c.data.documents, document_modes,
           "separate: a token sees no other document, and positions restart in each");
  v.integer("document_end", c.data.document_end, {-1, LargestModel::vocabulary - 1},
            "token id that ends documents in files that do not state them; -1: none");
  v.reals("weights", c.data.weights, {0, 1e9}, "share of the samples that each entry of train gets; []: by size");
  v.reals("epochs", c.data.epochs, {0, 1e9},
          "instead of weights: how often each entry is read, relative to the others");
  v.real("validation_fraction", c.data.validation_fraction, {0, 0.99},
         "share of the documents of train that is held out for validation");
  v.bytes("check_limit", c.data.check_limit, not_negative,
          "each launch compares the files with their checksums, up to this total size");

  v.section("batch", "");
  visit_batch(c.layout, v);
  v.integer("sequence_length", c.sequence_length, or_zero(ModelRange::positions),
            "tokens per sequence; 0: max_sequence_length");

  visit_parallel(c.layout, v);

  v.section("precision",
            "With 16-bit compute types, master weights, moments, gradients, mean and rstd, and losses are fp32.");
  visit_compute(c.layout, v);
  v.choice("residual", c.precision.residual, state_or_compute,
           "type of the residual stream, also between stages; state: fp32 with 16-bit types");
  v.choice("gradient_reduction", c.precision.gradient_reduction, state_or_compute,
           "type of gradients sent between replicas; state: fp32 with 16-bit types");
  v.real("initial_loss_scale", c.precision.loss_scale.initial, {},
         "fp16: initial factor of the loss, a power of two up to 2^32; halved at an overflow");
  v.real("minimum_loss_scale", c.precision.loss_scale.minimum, {}, "fp16: lower bound of the scale, a power of two");
  v.integer("loss_scale_growth_interval", c.precision.loss_scale.growth_interval, not_negative,
            "fp16: steps without overflow before the scale doubles; 0: never");

  v.section("optimizer", "AdamW, without weight decay of biases and norms.");
  v.real("learning_rate", c.optimizer.learning_rate, {0, 1e38, true}, "peak");
  v.real("minimum_learning_rate", c.optimizer.minimum_learning_rate, {0, 1e38},
         "end of the decay; not given: a tenth of the peak");
  v.choice("schedule", c.optimizer.schedule, all_learning_rate_shapes, "decay after the linear warm-up");
  v.integer("warmup_steps", c.optimizer.warmup_steps, not_negative, "steps of the warm-up");
  v.integer("decay_steps", c.optimizer.decay_steps, not_negative, "step at which the minimum is reached; 0: the last");
  v.real("stable_fraction", c.optimizer.stable_fraction, {0, 1},
         "warmup_stable_decay: share of steps before the decay");
  v.real("beta1", c.optimizer.adamw.beta1, {0, 1, false, true}, "decay rate of the first moment");
  v.real("beta2", c.optimizer.adamw.beta2, {0, 1, false, true}, "decay rate of the second moment");
  v.real("eps", c.optimizer.adamw.eps, {0, 1, true}, "added to the root of the second moment");
  v.real("weight_decay", c.optimizer.adamw.weight_decay, {0, 1e3}, "decoupled weight decay");
  v.real("clip_grad_norm", c.optimizer.clip_grad_norm, {0, 1e30}, "largest global gradient norm; 0: no clipping");

  v.section("checkpoint", "");
  v.integer("interval", c.checkpoint.interval, not_negative, "steps between saves; 0: only at the end");
  v.integer("keep_last", c.checkpoint.keep_last, {2, positive.max}, "newest complete checkpoints to keep");
  v.integer("keep_every", c.checkpoint.keep_every, not_negative,
            "also keep checkpoints at multiples of these steps; 0: none");
  v.boolean("async", c.checkpoint.async, "copy the state in memory and write it during the next steps");
  v.boolean("check_loss", c.checkpoint.check_loss,
            "store the loss of the next samples at a save, compare it on a resume");
  v.integer("ranks_per_file", c.checkpoint.ranks_per_file, degree, "consecutive ranks that write one file, in turns");

  v.section("stability", "Spikes and slow ranks (docs/stability.md).");
  v.choice("on_spike", c.stability.on_spike, {"continue", "skip", "rollback"},
           "continue: record it; skip: no update; rollback: return to the last checkpoint and skip these samples");
  v.integer("spike_window", c.stability.spike_window, {0, 1 << 20},
            "number of steps that a step is compared with; 0: only values that are not finite are spikes");
  v.real("spike_threshold", c.stability.spike_threshold, {0, 1e9, true}, "robust z-score of a spike");
  v.integer("max_skips", c.stability.max_skips, not_negative, "skips in a row; one more ends the run (5)");
  v.integer("max_rollbacks", c.stability.max_rollbacks, not_negative,
            "rollbacks without a new checkpoint; one more ends the run (5)");
  v.integer("keep_incidents", c.stability.keep_incidents, not_negative, "spikes to keep for a replay, in incidents/");
  v.integer("straggler_window", c.stability.straggler_window, not_negative,
            "steps over which the work of ranks is compared; 0: off");
  v.real("straggler_threshold", c.stability.straggler_threshold, {0, 1e6, true},
         "a rank slower than its peers by this share, twice in a row, is reported");

  v.section("run", "");
  v.text("directory", c.run.directory, "directory for all files of the run");
  v.integer("steps", c.run.steps, not_negative, "optimizer steps; 0: set by tokens");
  v.count("tokens", c.run.tokens, not_negative, "stop after so many tokens (\"1.5B\"); 0: set by steps");
  v.seconds("max_duration", c.run.max_duration, {0, 1e12}, "save and stop after this time (\"2h\"); 0: never");
  v.integer("seed", c.run.seed, {0, no_limit}, "of weights and data order");
  v.integer("log_interval", c.run.log_interval, positive, "steps between console lines");
  v.integer("eval_interval", c.run.eval_interval, not_negative, "steps between validations; 0: only at the end");
  v.integer("eval_samples", c.run.eval_samples, not_negative, "validation sequences; 0: all");
  v.integer("sample_interval", c.run.sample_interval, not_negative, "steps between samples of text; 0: none");
  v.strings("sample_prompts", c.run.sample_prompts, "texts to continue; []: one sample without a prompt");
  v.integer("sample_tokens", c.run.sample_tokens, positive, "tokens of a sample, each a forward pass");
  v.real("sample_temperature", c.run.sample_temperature, {0, 1000}, "0: always the most likely token");
  v.boolean("metrics_csv", c.run.metrics_csv, "also write the metrics as metrics.csv");
  v.boolean("tensorboard", c.run.tensorboard, "write events for TensorBoard into tensorboard/");
  v.bytes("device_memory", c.run.device_memory, not_negative, "memory budget of a rank (\"16G\"); 0: none");
  v.seconds("communication_timeout", c.run.communication_timeout, {0, 1e9, true}, "longest wait for another rank");
  v.choice("matmul", c.run.matmul, words_of(all_matmul_libraries, {"auto"}), "GEMM library; auto: by CPU");
  v.choice("attention", c.run.attention, words_of(all_attention_libraries, {"auto"}),
           "attention kernels; auto: cuDNN if built in");
  v.boolean("cuda_graphs", c.run.cuda_graphs, "GPUs: launch the kernels of a layer together");
  v.text("cluster", c.run.cluster,
         "cluster file or preset for predicted times (espalier bench machine); \"\": a rough guess");
  v.integer("trace_first_step", c.run.trace_first_step, positive, "first step that is traced, into trace/");
  v.integer("trace_steps", c.run.trace_steps, not_negative, "number of traced steps; 0: none");
}

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
    return std::ranges::any_of(
        std::array{"vocab_size", "max_sequence_length", "num_layers", "hidden_size", "num_heads", "ffn_hidden_size"},
        [&](const char* size) { return key.starts_with(fmt::format("model.{}=", size)); });
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

bool may_change_on_resume(const std::string& key) {
  static const std::vector<std::string> frozen = {"model.",
                                                  "rotary.",
                                                  "data.train",
                                                  "data.validation",
                                                  "data.document",
                                                  "data.weights",
                                                  "data.epochs",
                                                  "batch.global_batch_size",
                                                  "batch.sequence_length",
                                                  "run.seed"};
  const auto is_frozen = [&](const std::string& prefix) { return key.starts_with(prefix); };
  return is_dropout(key) || std::none_of(frozen.begin(), frozen.end(), is_frozen);
}

}  // namespace espalier
