// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <sstream>

#include "app/command_line.hpp"
#include "app/commands.hpp"
#include "app/convert.hpp"
#include "app/gpu_options.hpp"
#include "app/print.hpp"
#include "core/random.hpp"
#include "io/block_copy.hpp"
#include "io/input_limits.hpp"
#include "io/stop_texts.hpp"
#include "io/text/stream_decoder.hpp"
#include "io/text/tokenizer.hpp"
#include "models/sampler.hpp"
#include "parallel/runtime.hpp"
#include "training/loaded_model.hpp"
#include "training/require_memory.hpp"
#include "training/stored_state.hpp"

namespace espalier {
namespace {

struct GenerateArguments {
  std::string checkpoint;
  std::string tokenizer;  // empty: the one that the checkpoint names, or that lies beside it
  std::vector<std::string> prompts;
  std::string prompts_file;
  Index max_tokens = 400;
  std::vector<std::string> stop_texts;
  std::vector<TokenId> stop_tokens;
  SamplingConfig sampling{.temperature = 0.8, .top_p = 0.95};
  std::uint64_t seed = 1;
};

// A model with room for sequences that grow: memory and work follow the text, not the longest one possible.
class Generator {
 public:
  Generator(const CheckpointReader& checkpoint, std::size_t available_bytes)
      : path_(checkpoint.path()), model_(checkpoint, available_bytes) {}

  const ModelConfig& shape() const { return model_.shape(); }

  // Logits (V) of the token that follows.
  std::vector<double> next_logits(const std::vector<TokenId>& tokens) {
    make_room(static_cast<Index>(tokens.size()));
    const std::vector<float> row = model_.next_logits(tokens);
    std::vector<double> logits(row.begin(), row.end());
    if (!is_finite(ScalarType::fp64, logits.data(), std::ssize(logits)))
      throw Error(ExitCode::checkpoint, {.what = "the weights of a checkpoint give logits that are not finite",
                                         .where = path_.string(),
                                         .got = "nan or inf",
                                         .wanted = "the finite weights of a model that has not diverged",
                                         .todo = "name an older checkpoint"});
    return logits;
  }

 private:
  void make_room(Index length) {
    if (length <= room_)
      return;
    room_ = std::max<Index>(room_, 32);
    while (room_ < length)
      room_ *= 2;
    room_ = std::min(room_, shape().max_sequence_length);
    model_.make_room_to_generate(room_);
  }

  Path path_;
  LoadedModel<Fp32> model_;
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
void require_vocabulary(const std::string& prompt, const std::string& name, const Tokenizer& tokenizer,
                        Index vocab_size) {
  std::vector<TokenId> tokens;
  tokenizer.encode(prompt, tokens, {.add_special_tokens = true});
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] >= vocab_size)
      throw Error(ExitCode::usage,
                  {.what = "the prompt has a character that the model does not know",
                   .where = fmt::format("{}, token {} of {}", name, i + 1, tokens.size()),
                   .got = fmt::format("id {} in \"{}\"", tokens[i],
                                      tokenizer.name() == "byte" ? character_at(prompt, i)
                                                                 : tokenizer.decode(std::span(&tokens[i], 1))),
                   .wanted = fmt::format("ids below {}, the model's vocab_size", vocab_size),
                   .todo = "leave the character out of the prompt"});
}

void require_stop_tokens(const std::vector<TokenId>& tokens, Index vocab_size) {
  for (const TokenId token : tokens)
    if (token >= vocab_size)
      throw Error(ExitCode::usage, {.what = "a stop token is beyond the model's vocabulary",
                                    .where = "--stop-token",
                                    .got = fmt::format("id {}", token),
                                    .wanted = fmt::format("ids below {}, the model's vocab_size", vocab_size),
                                    .todo = "name a token of the model"});
}

// A prompt a line, without empty lines.
std::vector<std::string> prompts_in(const std::string& file) {
  std::vector<std::string> prompts;
  std::istringstream lines(read_file(file, ExitCode::data, LargestFile::prompts));
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r'))
      line.pop_back();
    if (!line.empty())
      prompts.push_back(line);
  }
  if (prompts.empty())
    throw Error(ExitCode::data, {.what = "a file of prompts has none",
                                 .where = file,
                                 .got = "no line with text",
                                 .wanted = "a prompt a line",
                                 .todo = "write the prompts into it, or give them by --prompt"});
  return prompts;
}

// The tokenizer that made the data of a checkpoint: it stores its name, and an import has its files.
std::unique_ptr<Tokenizer> tokenizer_of(const CheckpointReader& checkpoint, const std::string& given) {
  const std::string name = read_state(checkpoint).tokenizer;
  const Path beside = tokenizer_beside(checkpoint.path());
  std::error_code ignored;
  const bool has_files = std::filesystem::is_directory(beside, ignored);
  if (given.empty() && name != "byte" && !has_files)
    throw Error(ExitCode::checkpoint, {.what = "the tokenizer of a checkpoint is not known",
                                       .where = checkpoint.path().string(),
                                       .got = name.empty() ? "a checkpoint that names none" : name,
                                       .wanted = fmt::format("byte, or a tokenizer in {}", beside.string()),
                                       .todo = "name the tokenizer's file: --tokenizer FILE"});
  std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(!given.empty()   ? given
                                                        : name == "byte" ? name
                                                                         : beside.string());
  if (!name.empty() && tokenizer->name() != name)
    throw Error(ExitCode::checkpoint, {.what = "the checkpoint's data is of another tokenizer",
                                       .where = given.empty() ? beside.string() : given,
                                       .got = tokenizer->name(),
                                       .wanted = name,
                                       .todo = "name the tokenizer that packed the data: --tokenizer FILE"});
  return tokenizer;
}

// Writes a prompt and what the model makes of it. The same text for the same seed, whatever was written before.
void write_text(const std::string& prompt, const GenerateArguments& options, const Tokenizer& tokenizer,
                Generator& generator) {
  std::vector<TokenId> tokens;
  tokenizer.encode(prompt.empty() ? "\n" : prompt, tokens, {.add_special_tokens = true});
  const RandomStream random(options.seed, "generate");
  StopTexts stop(options.stop_texts);
  ModelText text;
  text.write(prompt);
  StreamDecoder decoder(tokenizer);
  for (const TokenId token : tokens)  // what follows may depend on them
    decoder.write(token);
  const auto num_texts = static_cast<std::size_t>(tokenizer.vocab_size());  // a padded vocabulary has more ids
  const auto longest = static_cast<std::size_t>(generator.shape().max_sequence_length);
  for (Index i = 0; i < options.max_tokens && !stop.found(); ++i) {
    const std::size_t first = tokens.size() > longest ? tokens.size() - longest : 0;  // the window of positions slides
    const std::vector<TokenId> window(tokens.begin() + static_cast<std::ptrdiff_t>(first), tokens.end());
    std::vector<double> logits = generator.next_logits(window);
    logits.resize(std::min(logits.size(), num_texts));
    const TokenId token =
        sample(candidates(std::move(logits), tokens, options.sampling), random.uniform(static_cast<std::uint64_t>(i)));
    if (std::ranges::find(options.stop_tokens, token) != options.stop_tokens.end())
      break;
    tokens.push_back(token);
    text.write(stop.write(decoder.write(token)));
  }
  text.write(stop.write(decoder.finish()));
  text.write(stop.finish());
  text.finish();
}

int generate(const GenerateArguments& options, const Communicator& world) {
  const bool from_file = !options.prompts_file.empty();
  std::vector<std::string> prompts = from_file ? prompts_in(options.prompts_file) : options.prompts;
  if (prompts.empty())
    prompts.emplace_back();
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Generator> generator;
  const std::size_t available_bytes = memory_of_a_rank(world);
  load_newest(options.checkpoint, world, note_to_stderr, [&](const CheckpointReader& checkpoint) {
    tokenizer = tokenizer_of(checkpoint, options.tokenizer);
    generator = std::make_unique<Generator>(checkpoint, available_bytes);
  });
  const auto name_of = [&](std::size_t i) {
    if (from_file)
      return fmt::format("{}, prompt {}", options.prompts_file, i + 1);
    return prompts.size() == 1 ? std::string("--prompt") : fmt::format("--prompt number {}", i + 1);
  };
  for (std::size_t i = 0; i < prompts.size(); ++i)
    require_vocabulary(prompts[i], name_of(i), *tokenizer, generator->shape().vocab_size);
  require_stop_tokens(options.stop_tokens, generator->shape().vocab_size);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (prompts.size() > 1)  // as head and tail do
      print_answer("{}==> {} of {} <==\n", i == 0 ? "" : "\n", i + 1, prompts.size());
    write_text(prompts[i], options, *tokenizer, *generator);
  }
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<GenerateArguments>();
  CLI::App* const command = app.add_subcommand("generate", "Write text with a trained model");
  command->add_option("--checkpoint", options->checkpoint, "directory of a run, or of one checkpoint")->required();
  command->add_option("--tokenizer", options->tokenizer,
                      "a tokenizer's file, or a directory with one; default: that of the checkpoint");
  CLI::Option* const prompt = command->add_option("--prompt", options->prompts, "text to continue; may be repeated");
  one_value_each(*prompt);
  command->add_option("--prompts", options->prompts_file, "file with a prompt a line; empty lines are left out")
      ->excludes(prompt);
  command->add_option("--max-tokens", options->max_tokens, "tokens to write; default 400")->check(at_least(1));
  one_value_each(*command->add_option("--stop", options->stop_texts,
                                      "end before this text, which is not written; may be repeated"));
  one_value_each(
      *command->add_option("--stop-token", options->stop_tokens, "the same for the token of this id; may be repeated"))
      .check(between(0, std::numeric_limits<TokenId>::max()));
  command->add_option("--temperature", options->sampling.temperature, "0 = always the most likely token; default 0.8")
      ->check(real_between(0, 1000));
  command->add_option("--top-k", options->sampling.top_k, "only the k most likely tokens; 0 (default): all")
      ->check(at_least(0));
  command
      ->add_option("--top-p", options->sampling.top_p,
                   "only the most likely tokens of this total probability; default 0.95")
      ->check(real_between(0, 1));
  command
      ->add_option(
          "--repetition-penalty", options->sampling.repetition_penalty,
          "divides positive logits of tokens of the text so far, prompt included, and multiplies negative ones; "
          "default 1: none")
      ->check(real_between(0.01, 100));
  command->add_option("--seed", options->seed, "same seed, same text; default 1")->check(at_least(0));
  add_gpu_options(*command);
  command->footer(
      "  espalier generate --checkpoint runs/quickstart --prompt \"The best way to\"\n"
      "  espalier generate --checkpoint RUN --prompts questions.txt --stop '?' --seed 2");
  command->callback([options, &chosen] {
    if (std::ranges::find(options->stop_texts, "") != options->stop_texts.end())
      throw CLI::ValidationError("--stop", "is an empty text, which stands everywhere");
    chosen.needs_runtime = true;
    chosen.action = [options](Runtime* runtime) {
      if (runtime->size() > 1)
        throw Error(ExitCode::usage, {.what = "generate runs on one rank",
                                      .got = fmt::format("{} ranks", runtime->size()),
                                      .wanted = "1",
                                      .todo = "start it without mpiexec"});
      return generate(*options, runtime->world());
    };
  });
}

}  // namespace espalier
