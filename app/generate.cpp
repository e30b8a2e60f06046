// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "app/command_line.hpp"
#include "app/commands.hpp"
#include "app/gpu_options.hpp"
#include "app/print.hpp"
#include "core/kokkos_compat.hpp"
#include "core/random.hpp"
#include "io/block_copy.hpp"
#include "io/checkpoint_directory.hpp"
#include "io/tokenizer.hpp"
#include "models/sampler.hpp"
#include "parallel/runtime.hpp"
#include "training/stored_config.hpp"
#include "training/stored_state.hpp"
#include "training/training_state.hpp"

namespace espalier {
namespace {

struct GenerateArguments {
  std::string checkpoint;
  std::string prompt;
  Index max_tokens = 400;
  SamplingConfig sampling{0.8, 0, 0.95};
  std::uint64_t seed = 1;
};

// A model with weights and room for sequences that grow: memory and work follow the text, not the longest one possible.
class Generator {
 public:
  Generator(const CheckpointReader& checkpoint, const ModelConfig& shape)
      : path_(checkpoint.path()), shape_(shape), model_(parameters_, shape) {
    require_tensors(checkpoint, parameters_);  // before there is memory for what the config claims
    parameters_.allocate();
    load_weights(checkpoint, parameters_);
  }

  const ModelConfig& shape() const { return shape_; }

  // Logits of the token that follows.
  std::vector<double> next_logits(const std::vector<TokenId>& tokens) {
    make_room(static_cast<Index>(tokens.size()));
    const Matrix<float> logits = model_.logits(exec_, tokens);
    const Tensor<float, 1> row(logits.data, logits.cols);
    const auto host = Kokkos::create_mirror_view(row);
    Kokkos::deep_copy(exec_, host, row);
    compat::fence(exec_, "espalier::generate: the logits are read on the host");
    if (!is_finite(ScalarType::fp32, host.data(), logits.cols))
      throw Error(ExitCode::checkpoint, {.what = "the weights of a checkpoint give logits that are not finite",
                                         .where = path_.string(),
                                         .got = "nan or inf",
                                         .wanted = "the finite weights of a model that has not diverged",
                                         .todo = "name an older checkpoint"});
    return {host.data(), host.data() + logits.cols};
  }

 private:
  void make_room(Index length) {
    if (length <= room_)
      return;
    room_ = std::max<Index>(room_, 32);
    while (room_ < length)
      room_ *= 2;
    room_ = std::min(room_, shape_.max_sequence_length);
    model_.plan_activations(1, room_, 1);
  }

  ExecSpace exec_;
  Path path_;
  ModelConfig shape_;
  ParameterStore<float> parameters_;
  Decoder<Fp32> model_;
  Index room_ = 0;
};

// The character that a byte of UTF-8 belongs to.
std::string character_at(const std::string& text, std::size_t at) {
  const auto continues = [&](std::size_t i) { return (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80; };
  std::size_t begin = at;
  while (begin > 0 && continues(begin))
    --begin;
  std::size_t end = at + 1;
  while (end < text.size() && continues(end))
    ++end;
  return text.substr(begin, end - begin);
}

// A model may have a smaller vocabulary than its tokenizer: then some texts cannot be told to it.
void require_vocabulary(const std::string& prompt, const Tokenizer& tokenizer, const std::vector<TokenId>& tokens,
                        Index vocab_size) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] >= vocab_size)
      throw Error(ExitCode::usage,
                  {.what = "the prompt has a character that the model does not know",
                   .where = fmt::format("--prompt, token {} of {}", i + 1, tokens.size()),
                   .got = fmt::format("id {} in \"{}\"", tokens[i],
                                      tokenizer.name() == "byte" ? character_at(prompt, i)
                                                                 : tokenizer.decode(std::span(&tokens[i], 1))),
                   .wanted = fmt::format("ids below {}, the model's vocab_size", vocab_size),
                   .todo = "leave the character out of the prompt"});
}

std::unique_ptr<Tokenizer> tokenizer_of(const CheckpointReader& checkpoint) {
  const std::string name = read_state(checkpoint).tokenizer;
  if (name == "byte")
    return make_tokenizer(name);
  throw Error(ExitCode::checkpoint,
              {.what = name.empty() ? "the checkpoint does not say which tokenizer made its data"
                                    : "the checkpoint names a tokenizer that this version does not have",
               .where = checkpoint.path().string(),
               .got = name,
               .wanted = "byte",
               .todo = "train on token files of `espalier data pack`, which name their tokenizer"});
}

int generate(const GenerateArguments& options) {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Generator> generator;
  use_newest(complete_checkpoints(options.checkpoint, note_to_stderr), note_to_stderr, [&](const Path& path) {
    const CheckpointReader checkpoint(path);
    tokenizer = tokenizer_of(checkpoint);
    generator = std::make_unique<Generator>(checkpoint, stored_model(checkpoint));
  });
  std::vector<TokenId> tokens;
  tokenizer->encode(options.prompt.empty() ? "\n" : options.prompt, tokens);

  require_vocabulary(options.prompt, *tokenizer, tokens, generator->shape().vocab_size);

  const RandomStream random(options.seed, "generate");
  ModelText text;
  text.write(options.prompt);
  const auto num_texts = static_cast<std::size_t>(tokenizer->vocab_size());  // a padded vocabulary has more ids
  const auto longest = static_cast<std::size_t>(generator->shape().max_sequence_length);
  for (Index i = 0; i < options.max_tokens; ++i) {
    const std::size_t first = tokens.size() > longest ? tokens.size() - longest : 0;  // the window of positions slides
    const std::vector<TokenId> window(tokens.begin() + static_cast<std::ptrdiff_t>(first), tokens.end());
    std::vector<double> logits = generator->next_logits(window);
    logits.resize(std::min(logits.size(), num_texts));
    const TokenId token = sample_token(logits, options.sampling, random.uniform(static_cast<std::uint64_t>(i)));
    tokens.push_back(token);
    text.write(tokenizer->decode(std::span<const TokenId>(&token, 1)));
  }
  text.finish();
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<GenerateArguments>();
  CLI::App* const command = app.add_subcommand("generate", "Write text with a trained model");
  command->add_option("--checkpoint", options->checkpoint, "directory of a run, or of one checkpoint")->required();
  command->add_option("--prompt", options->prompt, "text to continue");
  command->add_option("--max-tokens", options->max_tokens, "tokens to write; default 400")->check(at_least(1));
  command->add_option("--temperature", options->sampling.temperature, "0 = always the most likely token; default 0.8")
      ->check(real_between(0, 1000));
  command->add_option("--top-k", options->sampling.top_k, "only the k most likely tokens; 0 (default): all")
      ->check(at_least(0));
  command
      ->add_option("--top-p", options->sampling.top_p,
                   "only the most likely tokens of this total probability; default 0.95")
      ->check(real_between(0, 1));
  command->add_option("--seed", options->seed, "same seed, same text; default 1")->check(at_least(0));
  add_gpu_options(*command);
  command->footer("  espalier generate --checkpoint runs/quickstart --prompt \"The best way to\"");
  command->callback([options, &chosen] {
    chosen.needs_runtime = true;
    chosen.action = [options](Runtime* runtime) {
      if (runtime->size() > 1)
        throw Error(ExitCode::usage, {.what = "generate runs on one rank",
                                      .got = fmt::format("{} ranks", runtime->size()),
                                      .wanted = "1",
                                      .todo = "start it without mpiexec"});
      return generate(*options);
    };
  });
}

}  // namespace espalier
