// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "core/optim/adamw_config.hpp"
#include "core/optim/learning_rate.hpp"
#include "io/config/toml_config.hpp"
#include "io/file.hpp"
#include "models/layout.hpp"
#include "models/model_config.hpp"
#include "models/presets.hpp"

namespace espalier {

/// [precision] of fp16: training/step/loss_scaler.hpp.
struct LossScaleConfig {
  static constexpr double largest = 0x1p32;  ///< what grows for ever would overflow in fp32

  double initial = 65536;
  double minimum = 1;
  Index growth_interval = 1000;  ///< steps without overflow after which the scale doubles; 0: it never does

  bool operator==(const LossScaleConfig&) const = default;
};

/// One of the two types of a run with 16-bit compute types: that of the state, fp32, or the 16-bit one.
enum class NumberType { state, compute };
inline constexpr std::array all_number_types{NumberType::state, NumberType::compute};
inline const char* to_string(NumberType type) { return type == NumberType::state ? "state" : "compute"; }

/// Whether attention goes over the borders of documents.
enum class DocumentMode { joined, separate };
inline constexpr std::array all_document_modes{DocumentMode::joined, DocumentMode::separate};
inline const char* to_string(DocumentMode mode) { return mode == DocumentMode::joined ? "joined" : "separate"; }

/// What happens to the step of a spike.
enum class SpikePolicy { proceed, skip, rollback };
inline constexpr std::array all_spike_policies{SpikePolicy::proceed, SpikePolicy::skip, SpikePolicy::rollback};
inline const char* to_string(SpikePolicy policy) {
  return policy == SpikePolicy::proceed ? "continue" : policy == SpikePolicy::skip ? "skip" : "rollback";
}

/// Every knob of a run. Sections and keys are those of the TOML file; docs/config.md is written from the comments that
/// config_sections.hpp gives each key.
struct RunConfig {
  struct Model {
    std::string preset = "byte-1m";
    ModelConfig shape = model_preset("byte-1m");  ///< of the preset, with what the file overrides
  } model;

  struct Data {
    std::vector<std::string> train;
    std::vector<std::string> validation;
    std::string tokenizer;  ///< file or directory; empty: training/loop/run_tokenizer.hpp
    DocumentMode documents = DocumentMode::joined;
    bool separates_documents() const { return documents == DocumentMode::separate; }
    Index document_end = -1;  ///< a token id; -1: none
    std::vector<double>
        weights;  ///< of the entries of train, at most one of the two lists; empty: one set of all files
    std::vector<double> epochs;
    double validation_fraction = 0;
    bool validates() const { return !validation.empty() || validation_fraction > 0; }
    Index check_limit = Index{8} << 30;  ///< bytes
  } data;

  /// [parallel], the batch sizes and precision.compute as the file has them: data may be 0 (what is left), layers may
  /// be open; make_run_layout() fills them in. micro_batch that is not in the file: what divides among replicas and
  /// stages, up to 8.
  Layout layout = {.data = 0, .micro_batch = 8, .global_batch = 8, .precision = espalier::Precision::fp32};
  Index ranks_per_node = 0;  ///< of the job, not of a file; 0: not known. See training/config/shard_over.hpp
  /// Of tests, not of a file: gradients of more replicas are summed in two levels, see first_level_replicas().
  int max_summed_at_once = default_max_summed_at_once;
  Index sequence_length = 0;  ///< 0 in the file: the model's max_sequence_length

  struct Precision {
    NumberType residual = NumberType::compute;
    NumberType gradient_reduction = NumberType::state;
    LossScaleConfig loss_scale;  ///< fp16 only
  } precision;

  struct Optimizer {
    double learning_rate = 3e-4;
    double minimum_learning_rate = 3e-5;  ///< not in the file: a tenth of the peak
    LearningRateShape schedule = LearningRateShape::cosine;
    Index warmup_steps = 0;
    Index decay_steps = 0;  ///< 0: run.steps
    double stable_fraction = 0.8;
    AdamWConfig adamw;
    double clip_grad_norm = 1.0;
  } optimizer;

  struct Checkpoint {
    Index interval = 0;  ///< steps; 0: only at the end
    Index keep_last = 2;
    Index keep_every = 0;  ///< steps; 0: none
    bool async = false;
    bool check_loss = true;
    Index ranks_per_file = 1;
  } checkpoint;

  struct Stability {
    SpikePolicy on_spike = SpikePolicy::proceed;
    Index spike_window = 128;  ///< steps; 0: spikes are not looked for
    double spike_threshold = 8;
    Index max_skips = 10;
    Index max_rollbacks = 3;
    Index keep_incidents = 4;
    Index straggler_window = 20;       ///< steps; 0: stragglers are not looked for
    double straggler_threshold = 0.2;  ///< share by which a rank is slower than its peers
  } stability;

  struct Run {
    std::string directory = "runs/default";
    Index steps = 0;
    Index tokens = 0;
    double max_duration = 0;  ///< seconds
    Index seed = 1;
    Index log_interval = 1;
    Index eval_interval = 0;
    Index eval_samples = 0;
    Index sample_interval = 0;  ///< steps; 0: no samples of text
    std::vector<std::string> sample_prompts;
    Index sample_tokens = 64;
    double sample_temperature = 0.8;
    bool metrics_csv = false;
    bool tensorboard = false;
    Index device_memory = 0;             ///< bytes
    double communication_timeout = 600;  ///< seconds
    std::string matmul = "auto";
    std::string attention = "auto";
    bool cuda_graphs = true;
    std::string cluster;  ///< cluster file or preset that step times are predicted for; empty: a rough guess
    Index trace_first_step = 2;
    Index trace_steps = 0;
  } run;

  /// Another machine to imitate (training/config/emulation.hpp); observers and hooks do it
  /// (training/rehearsal/step_pace.hpp, training/config/emulation.hpp).
  struct Emulate {
    double forward = 0;  ///< seconds of one operation, of the whole chunk
    double backward_input = 0;
    double backward_weight = 0;
    double optimizer = 0;
    double latency = 0;    ///< seconds a message, within a node
    double bandwidth = 0;  ///< bytes per second of a rank's link, within a node; 0: unlimited
    double node_latency = 0;
    double node_bandwidth = 0;
    Index ranks_per_node = 0;
    double message_scale = 1;
    double tensor_message_scale = 1;    ///< on the tensor axis, beside message_scale
    double data_message_scale = 1;      ///< in the gradients' reductions, beside message_scale
    double pipeline_message_scale = 1;  ///< between stages, beside message_scale
    std::vector<Index> part_percent;
    std::vector<Index> backward_percent;  ///< the same of backward alone; empty: as part_percent
    bool per_layer = false;               ///< forward and backward are of one layer, not of a chunk
    double data = 0;                      ///< seconds of reading the tokens of a step
    Index planned_microbatches = 0;  ///< that the plan has, of which a rehearsal runs some; changes nothing; 0: none
    // Faults, to see that they are found:
    Index slow_rank = -1;  ///< -1: none
    double slow_factor = 1;
    std::vector<Index> delayed_link;  ///< two ranks of the world, sender and receiver; empty: none
    double delay = 0;                 ///< seconds
    bool operator==(const Emulate&) const = default;
  } emulate;
  bool emulates() const { return emulate != Emulate{}; }
  bool emulates_operations() const { return emulate.forward > 0; }

  Index tokens_per_step() const { return layout.global_batch * sequence_length; }
  std::string model_name() const;  ///< the preset; "custom" where a key of [model] changes its shape
  std::string run_name() const;    ///< the last part of run.directory
  Index total_steps() const;       ///< by steps or tokens, whichever ends first
  LearningRate learning_rate() const;
};

/// What run.matmul and run.attention may name: a library of this build, for who computes, or one of any build, for who
/// only reads or writes what another machine computes with.
enum class Libraries { present, known };

/// Reads a file and overrides ("section.key=value", which win), fills in what follows from other keys, and validates
/// for `world_size` ranks. Allocates nothing. @throws Error (usage) that lists every problem with its position.
/// @param emulate what is to be emulated; a user's config does not say it (training/config/emulation.hpp)
RunConfig read_run_config(const Path& file, const std::vector<std::string>& overrides, int world_size,
                          Libraries libraries = Libraries::present, const RunConfig::Emulate& emulate = {});

/// The same from a text that to_toml() wrote or a program makes, which may have [emulate]; `name` stands for the file
/// in messages.
RunConfig parse_run_config(const std::string& text, const std::string& name, const std::vector<std::string>& overrides,
                           int world_size, Libraries libraries = Libraries::present);

/// The keys that give a config this layout, and no other: "batch.micro_batch_size=1", "parallel.tensor=2", ...
std::vector<std::string> settings_of(const Layout& layout);

/// All keys of [model] and [rotary] for a model: "model.num_layers=12", ...
std::vector<std::string> settings_of(const ModelConfig& model);

/// The same without what is as in GPT-2, apart from sizes.
std::vector<std::string> model_keys(const ModelConfig& model);

/// One sentence for each key that names a library which this build lacks, by the key: {"matmul", "..."}.
std::vector<std::pair<std::string, std::string>> absent_libraries(const RunConfig& config);

/// Every key of a config that to_toml() wrote, as it stands there: nothing is filled in or validated. What this version
/// does not know or refuses is a problem of the reader.
RunConfig read_resolved_config(ConfigReader& reader);

/// The resolved config as TOML, each key with its comment; parse_run_config() reads it back equal. What is emulated
/// follows as [emulate].
std::string to_toml(const RunConfig& config);

/// A key of [model] for dropout: shapes of weights do not depend on it.
bool is_dropout(const std::string& key);

/// The files of data.train or data.validation, which may be found under other paths; nullptr of other keys.
const std::vector<std::string>* files_named_by(const std::string& key, const RunConfig::Data& data);
bool names_files(const std::string& key);

/// May a resumed run differ from its stored config in this key ("run.steps")?
bool may_change_on_resume(const std::string& key);

}  // namespace espalier
