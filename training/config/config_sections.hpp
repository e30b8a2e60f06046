// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/attention_library.hpp"
#include "core/ops/matmul_library.hpp"
#include "io/config/key_reader.hpp"
#include "models/largest_model.hpp"
#include "models/layout_section.hpp"
#include "models/model_section.hpp"
#include "models/sampler.hpp"
#include "training/config/run_config.hpp"

// Every key of a config once: its place in the struct, what values it takes, what it means. Who reads and who writes a
// config both walk through this list, so a key cannot be known to one and not to the other. `v` is a visitor of
// training/config/config_visitors.hpp; of [data], [precision], [checkpoint] and [run] also KeyReader.

namespace espalier {

/// What is made of several factors is checked by validate_run_config().
struct ConfigRange {
  static constexpr IntegerRange positive{1, Index{1} << 50};
  static constexpr IntegerRange not_negative{0, Index{1} << 50};
};

/// [data].
template <class Section, class Visitor>
void visit_data(Section& data, Visitor& v) {
  v.section("data", "Token files, made by `espalier data pack` (Megatron's, nanoGPT's and llm.c's are read too).");
  v.strings("train", data.train, "files to train on, or patterns of files");
  v.strings("validation", data.validation, "files to validate on");
  v.text("tokenizer", data.tokenizer,
         "the tokenizer of these files: a file or directory, copied into the run; \"\": that of --init-from, or bytes");
  v.choice("documents", data.documents, all_document_modes,
           "separate: a token sees no other document, and positions restart in each");
  v.integer("document_end", data.document_end, {-1, LargestModel::vocabulary - 1},
            "token id that ends documents in files that do not state them; -1: none");
  v.numbers("weights", data.weights, {0, 1e9}, "share of the samples that each entry of train gets; []: by size");
  v.numbers("epochs", data.epochs, {0, 1e9},
            "instead of weights: how often each entry is read, relative to the others");
  v.number("validation_fraction", data.validation_fraction, {0, 0.99},
           "share of the documents of train that is held out for validation");
  v.bytes("check_limit", data.check_limit, ConfigRange::not_negative,
          "each launch compares the files with their checksums, up to this total size");
}

/// Of [precision]: all but compute.
template <class Section, class Visitor>
void visit_precision(Section& precision, Visitor& v) {
  v.choice("residual", precision.residual, all_number_types,
           "type of the residual stream, also between stages; state: fp32 with 16-bit types");
  v.choice("gradient_reduction", precision.gradient_reduction, all_number_types,
           "type of gradients sent between replicas; state: fp32 with 16-bit types");
  v.number("initial_loss_scale", precision.loss_scale.initial, {},
           "fp16: initial factor of the loss, a power of two up to 2^32; halved at an overflow");
  v.number("minimum_loss_scale", precision.loss_scale.minimum, {}, "fp16: lower bound of the scale, a power of two");
  v.integer("loss_scale_growth_interval", precision.loss_scale.growth_interval, ConfigRange::not_negative,
            "fp16: steps without overflow before the scale doubles; 0: never");
}

/// [optimizer].
template <class Section, class Visitor>
void visit_optimizer(Section& optimizer, Visitor& v) {
  v.section("optimizer", "AdamW, without weight decay of biases and norms.");
  v.number("learning_rate", optimizer.learning_rate, {0, 1e38, true}, "peak");
  v.number("minimum_learning_rate", optimizer.minimum_learning_rate, {0, 1e38},
           "end of the decay; not given: a tenth of the peak");
  v.choice("schedule", optimizer.schedule, all_learning_rate_shapes, "decay after the linear warm-up");
  v.integer("warmup_steps", optimizer.warmup_steps, ConfigRange::not_negative, "steps of the warm-up");
  v.integer("decay_steps", optimizer.decay_steps, ConfigRange::not_negative,
            "step at which the minimum is reached; 0: the last");
  v.number("stable_fraction", optimizer.stable_fraction, {0, 1},
           "warmup_stable_decay: share of steps before the decay");
  v.number("beta1", optimizer.adamw.beta1, {0, 1, false, true}, "decay rate of the first moment");
  v.number("beta2", optimizer.adamw.beta2, {0, 1, false, true}, "decay rate of the second moment");
  v.number("eps", optimizer.adamw.eps, {0, 1, true}, "added to the root of the second moment");
  v.number("weight_decay", optimizer.adamw.weight_decay, {0, 1e3}, "decoupled weight decay");
  v.number("clip_grad_norm", optimizer.clip_grad_norm, {0, 1e30}, "largest global gradient norm; 0: no clipping");
}

/// [checkpoint].
template <class Section, class Visitor>
void visit_checkpoint(Section& checkpoint, Visitor& v) {
  v.section("checkpoint", "");
  v.integer("interval", checkpoint.interval, ConfigRange::not_negative, "steps between saves; 0: only at the end");
  v.integer("keep_last", checkpoint.keep_last, {2, ConfigRange::positive.max}, "newest complete checkpoints to keep");
  v.integer("keep_every", checkpoint.keep_every, ConfigRange::not_negative,
            "also keep checkpoints at multiples of these steps; 0: none");
  v.boolean("async", checkpoint.async, "copy the state in memory and write it during the next steps");
  v.boolean("check_loss", checkpoint.check_loss,
            "store the loss of the next samples at a save, compare it on a resume");
  v.integer("ranks_per_file", checkpoint.ranks_per_file, {1, most_ranks},
            "consecutive ranks that write one file, in turns");
}

/// [stability].
template <class Section, class Visitor>
void visit_stability(Section& stability, Visitor& v) {
  v.section("stability", "Spikes and slow ranks (docs/stability.md).");
  v.choice("on_spike", stability.on_spike, all_spike_policies,
           "continue: record it; skip: no update; rollback: return to the last checkpoint and skip these samples");
  v.integer("spike_window", stability.spike_window, {0, 1 << 20},
            "number of steps that a step is compared with; 0: only values that are not finite are spikes");
  v.number("spike_threshold", stability.spike_threshold, {0, 1e9, true}, "robust z-score of a spike");
  v.integer("max_skips", stability.max_skips, ConfigRange::not_negative, "skips in a row; one more ends the run (5)");
  v.integer("max_rollbacks", stability.max_rollbacks, ConfigRange::not_negative,
            "rollbacks without a new checkpoint; one more ends the run (5)");
  v.integer("keep_incidents", stability.keep_incidents, ConfigRange::not_negative,
            "spikes to keep for a replay, in incidents/");
  v.integer("straggler_window", stability.straggler_window, ConfigRange::not_negative,
            "steps over which the work of ranks is compared; 0: off");
  v.number("straggler_threshold", stability.straggler_threshold, {0, 1e6, true},
           "a rank slower than its peers by this share, twice in a row, is reported");
}

/// [run].
template <class Section, class Visitor>
void visit_run(Section& run, Visitor& v) {
  v.section("run", "");
  v.text("directory", run.directory, "directory for all files of the run");
  v.integer("steps", run.steps, ConfigRange::not_negative, "optimizer steps; 0: set by tokens");
  v.count("tokens", run.tokens, ConfigRange::not_negative, "stop after so many tokens (\"1.5B\"); 0: set by steps");
  v.seconds("max_duration", run.max_duration, {0, 1e12}, "save and stop after this time (\"2h\"); 0: never");
  v.integer("seed", run.seed, {.min = 0}, "of weights and data order");
  v.integer("log_interval", run.log_interval, ConfigRange::positive, "steps between console lines");
  v.integer("eval_interval", run.eval_interval, ConfigRange::not_negative,
            "steps between validations; 0: only at the end");
  v.integer("eval_samples", run.eval_samples, ConfigRange::not_negative, "validation sequences; 0: all");
  v.integer("sample_interval", run.sample_interval, ConfigRange::not_negative,
            "steps between samples of text; 0: none");
  v.strings("sample_prompts", run.sample_prompts, "texts to continue; []: one sample without a prompt");
  v.integer("sample_tokens", run.sample_tokens, ConfigRange::positive, "tokens of a sample, each a forward pass");
  v.number("sample_temperature", run.sample_temperature, temperature_range, "0: always the most likely token");
  v.boolean("metrics_csv", run.metrics_csv, "also write the metrics as metrics.csv");
  v.boolean("tensorboard", run.tensorboard, "write events for TensorBoard into tensorboard/");
  v.bytes("device_memory", run.device_memory, ConfigRange::not_negative, "memory budget of a rank (\"16G\"); 0: none");
  v.seconds("communication_timeout", run.communication_timeout, {0, 1e9, true}, "longest wait for another rank");
  v.choice("matmul", run.matmul, words_of(all_matmul_libraries, {"auto"}), "GEMM library; auto: by CPU");
  v.choice("attention", run.attention, words_of(all_attention_libraries, {"auto"}),
           "attention kernels; auto: cuDNN if built in");
  v.boolean("cuda_graphs", run.cuda_graphs, "GPUs: launch the kernels of a layer together");
  v.text("cluster", run.cluster,
         "cluster file or preset for predicted times (espalier bench machine); \"\": a rough guess");
  v.integer("trace_first_step", run.trace_first_step, ConfigRange::positive, "first step that is traced, into trace/");
  v.integer("trace_steps", run.trace_steps, ConfigRange::not_negative, "number of traced steps; 0: none");
}

/// All of them.
template <class Config, class Visitor>
void visit_keys(Config& c, Visitor&& v) {
  v.section("model", "The shape. A preset sets all of it; single keys override.");
  v.choice("preset", c.model.preset, trainable_preset_names(), "name of a shape");
  v.preset(c.model);
  visit_model(c.model.shape, v);
  visit_data(c.data, v);
  v.section("batch", "");
  visit_batch(c.layout, v);
  v.integer("sequence_length", c.sequence_length, or_zero(ModelRange::positions),
            "tokens per sequence; 0: max_sequence_length");
  visit_parallel(c.layout, v);
  v.section("precision",
            "With 16-bit compute types, master weights, moments, gradients, mean and rstd, and losses are fp32.");
  visit_compute(c.layout, v);
  visit_precision(c.precision, v);
  visit_optimizer(c.optimizer, v);
  visit_checkpoint(c.checkpoint, v);
  visit_stability(c.stability, v);
  visit_run(c.run, v);
}

}  // namespace espalier
