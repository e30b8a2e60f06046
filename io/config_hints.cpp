// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/config_hints.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "core/scalars.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

// All of a text as a number, also in spellings that TOML has not: ".5", "1.", "010".
std::optional<double> number_in(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole_text = error == std::errc() && end == text.data() + text.size();
  return whole_text && std::isfinite(number) ? std::optional(number) : std::nullopt;
}

std::optional<double> number_meant(const toml::node& node) {
  return node.is_string() ? number_in(**node.as_string()) : number_of(node);
}

using Names = std::pair<std::string_view, std::string_view>;

// By the name of another program (nanoGPT, llm.c, Megatron-LM, DeepSpeed, Hugging Face, torchtitan) or of everyday.
constexpr std::array<Names, 96> other_names = {{
    {"act_ckpt", "parallel.recompute"},
    {"activation_checkpointing", "parallel.recompute"},
    {"adam_beta1", "optimizer.beta1"},
    {"adam_beta2", "optimizer.beta2"},
    {"adam_eps", "optimizer.eps"},
    {"adam_epsilon", "optimizer.eps"},
    {"batch", "batch.global_batch_size"},
    {"batch_size", "batch.global_batch_size"},
    {"block_size", "batch.sequence_length"},
    {"checkpoint_every", "checkpoint.interval"},
    {"checkpoint_interval", "checkpoint.interval"},
    {"clip", "optimizer.clip_grad_norm"},
    {"clip_grad", "optimizer.clip_grad_norm"},
    {"context", "batch.sequence_length"},
    {"context_length", "batch.sequence_length"},
    {"d_ff", "model.ffn_hidden_size"},
    {"d_model", "model.hidden_size"},
    {"data_parallel", "parallel.data"},
    {"data_parallel_size", "parallel.data"},
    {"data_path", "data.train"},
    {"dataset", "data.train"},
    {"device_batch_size", "batch.micro_batch_size"},
    {"dim", "model.hidden_size"},
    {"dir", "run.directory"},
    {"dp", "parallel.data"},
    {"dtype", "precision.compute"},
    {"embedding_size", "model.hidden_size"},
    {"epsilon", "optimizer.eps"},
    {"eval_every", "run.eval_interval"},
    {"eval_iters", "run.eval_samples"},
    {"eval_steps", "run.eval_interval"},
    {"ffn_dim", "model.ffn_hidden_size"},
    {"ffn_hidden", "model.ffn_hidden_size"},
    {"global_batch", "batch.global_batch_size"},
    {"grad_clip", "optimizer.clip_grad_norm"},
    {"gradient_checkpointing", "parallel.recompute"},
    {"gradient_clipping", "optimizer.clip_grad_norm"},
    {"heads", "model.num_heads"},
    {"intermediate_size", "model.ffn_hidden_size"},
    {"iterations", "run.steps"},
    {"layers", "model.num_layers"},
    {"log_every", "run.log_interval"},
    {"logging_steps", "run.log_interval"},
    {"lr", "optimizer.learning_rate"},
    {"lr_decay_iters", "optimizer.decay_steps"},
    {"lr_schedule", "optimizer.schedule"},
    {"lr_scheduler", "optimizer.schedule"},
    {"lr_scheduler_type", "optimizer.schedule"},
    {"max_grad_norm", "optimizer.clip_grad_norm"},
    {"max_iters", "run.steps"},
    {"max_lr", "optimizer.learning_rate"},
    {"max_position_embeddings", "model.max_sequence_length"},
    {"max_seq_len", "model.max_sequence_length"},
    {"max_steps", "run.steps"},
    {"mbs", "batch.micro_batch_size"},
    {"micro_batch", "batch.micro_batch_size"},
    {"microbatch_size", "batch.micro_batch_size"},
    {"min_lr", "optimizer.minimum_learning_rate"},
    {"mixed_precision", "precision.compute"},
    {"n_ctx", "model.max_sequence_length"},
    {"n_embd", "model.hidden_size"},
    {"n_head", "model.num_heads"},
    {"n_heads", "model.num_heads"},
    {"n_layer", "model.num_layers"},
    {"n_layers", "model.num_layers"},
    {"n_positions", "model.max_sequence_length"},
    {"num_attention_heads", "model.num_heads"},
    {"num_hidden_layers", "model.num_layers"},
    {"num_iterations", "run.steps"},
    {"num_steps", "run.steps"},
    {"num_warmup_steps", "optimizer.warmup_steps"},
    {"out_dir", "run.directory"},
    {"output", "run.directory"},
    {"output_dir", "run.directory"},
    {"per_device_train_batch_size", "batch.micro_batch_size"},
    {"pipeline_parallel", "parallel.pipeline"},
    {"pipeline_parallel_size", "parallel.pipeline"},
    {"pp", "parallel.pipeline"},
    {"precision", "precision.compute"},
    {"random_seed", "run.seed"},
    {"save_every", "checkpoint.interval"},
    {"save_interval", "checkpoint.interval"},
    {"save_steps", "checkpoint.interval"},
    {"save_total_limit", "checkpoint.keep_last"},
    {"seq_len", "batch.sequence_length"},
    {"seq_length", "batch.sequence_length"},
    {"tensor_parallel", "parallel.tensor"},
    {"tensor_parallel_size", "parallel.tensor"},
    {"tp", "parallel.tensor"},
    {"train_iters", "run.steps"},
    {"train_steps", "run.steps"},
    {"valid", "data.validation"},
    {"vocab", "model.vocab_size"},
    {"warmup", "optimizer.warmup_steps"},
    {"warmup_iters", "optimizer.warmup_steps"},
    {"wd", "optimizer.weight_decay"},
}};
static_assert(std::ranges::is_sorted(other_names, {}, &Names::first));

}  // namespace

std::optional<double> number_of(const toml::node& node) {
  if (const auto* const integer = node.as_integer())
    return static_cast<double>(**integer);
  if (const auto* const real = node.as_floating_point())
    return **real;
  return std::nullopt;
}

std::string integer_hint(const toml::node& node) {
  if (const auto number = number_meant(node); number && *number == std::round(*number) && std::abs(*number) < 0x1p53)
    return fmt::format("; write {}", static_cast<Index>(*number));
  const auto counted = node.is_string() ? parse_count(**node.as_string()) : std::nullopt;
  return counted ? fmt::format("; write {}", *counted) : std::string();
}

std::string real_hint(const toml::node& node) {
  auto number = number_meant(node);
  if (!number && node.is_string()) {  // as some countries write it
    std::string text = **node.as_string();
    std::ranges::replace(text, ',', '.');
    number = number_in(text);
  }
  return number ? fmt::format("; write {}", *number) : std::string();
}

std::string boolean_hint(const toml::node& node) {
  const auto is_one_of = [&](const auto&... words) {
    std::string text = node.is_string() ? **node.as_string() : std::string();
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return ((text == words) || ...);
  };
  if (number_meant(node) == 1.0 || is_one_of("true", "yes", "on"))
    return "; write true";
  return number_meant(node) == 0.0 || is_one_of("false", "no", "off") ? "; write false" : "";
}

std::string_view our_name_for(std::string_view key) {
  const auto found = std::ranges::lower_bound(other_names, key, {}, &Names::first);
  return found != other_names.end() && found->first == key ? found->second : std::string_view();
}

}  // namespace espalier
