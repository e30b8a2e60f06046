// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "app/command_line.hpp"
#include "app/commands.hpp"
#include "app/gpu_options.hpp"
#include "app/print.hpp"
#include "io/checkpoint/block_copy.hpp"
#include "io/input_limits.hpp"
#include "io/pack/conversations.hpp"
#include "parallel/collectives/agreement.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/texts.hpp"
#include "parallel/launch/runtime.hpp"
#include "parallel/mesh/process_mesh.hpp"
#include "training/checkpoint/checkpoint_tokenizer.hpp"
#include "training/loop/generated_text.hpp"
#include "training/prediction/require_memory.hpp"
#include "training/pretrained/loaded_model.hpp"

namespace espalier {
namespace {

// Prints texts in order while all of them grow: the first unfinished one token by token, later ones in their turn.
class TextPrinter {
 public:
  void print(std::vector<GeneratedText>& texts);

 private:
  std::size_t at_ = 0;             // the text that is being printed
  std::optional<ModelText> line_;  // if it has begun
};

void TextPrinter::print(std::vector<GeneratedText>& texts) {
  for (; at_ < texts.size(); ++at_) {
    GeneratedText& text = texts[at_];
    if (!line_ && texts.size() > 1)  // as head and tail do
      print_answer("{}==> {} of {} <==\n", at_ == 0 ? "" : "\n", at_ + 1, texts.size());
    if (!line_)
      line_.emplace();
    line_->write(text.take());
    if (!text.is_complete())
      return;
    line_->finish();
    line_.reset();
  }
}

struct GenerateArguments {
  std::string checkpoint;
  std::string tokenizer;  // empty: the one that the checkpoint names, or that lies beside it
  std::vector<std::string> prompts;
  std::string prompts_file;
  std::vector<std::string> messages;
  Index batch_size = 0;  // 0: as many as fit into memory, and pay
  GenerationRules rules;
};

void require_stop_tokens(const std::vector<TokenId>& tokens, Index vocab_size) {
  for (const TokenId token : tokens)
    if (token >= vocab_size)
      throw Error(ExitCode::usage, {.what = "a stop token is beyond the model's vocabulary",
                                    .where = "--stop-token",
                                    .got = fmt::format("id {}", token),
                                    .wanted = fmt::format("ids below {}, the model's vocab_size", vocab_size),
                                    .todo = "choose a token of the model"});
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
    throw Error(ExitCode::data, {.what = "a prompt file has no prompts",
                                 .where = file,
                                 .got = "no line with text",
                                 .wanted = "one prompt per line",
                                 .todo = "write the prompts into it, or use --prompt"});
  return prompts;
}

// Each message becomes the prompt that the tokenizer's chat template makes of it, and an answer's end ends the text.
void ask(const std::vector<std::string>& messages, const std::string& tokenizer_name, const Tokenizer& tokenizer,
         std::vector<std::string>& prompts, GenerationRules& rules) {
  const ChatTemplate chat = load_chat_template(tokenizer_name);
  prompts.clear();
  for (const std::string& message : messages)
    prompts.push_back(chat.prompt(std::vector<ChatMessage>{{"user", message}}));
  rules.stop_tokens.push_back(answer_end_token(chat, tokenizer));
  rules.is_chat = true;
}

void require_finite(const std::vector<float>& logits, const std::string& checkpoint) {
  if (!is_finite(ScalarType::fp32, logits.data(), std::ssize(logits)))
    throw Error(ExitCode::checkpoint, {.what = "the weights of a checkpoint give logits that are not finite",
                                       .where = checkpoint,
                                       .got = "nan or inf",
                                       .wanted = "finite weights, of a model that has not diverged",
                                       .todo = "name an older checkpoint"});
}

// Allocates the cache. @returns how many texts are generated together
Index allocate_cache(LoadedModel<Fp32>& model, const GenerateArguments& options,
                     const std::vector<GeneratedText>& texts, const Communicator& world) {
  const Index most = model.shape().max_sequence_length;
  Index length = 0;
  for (const GeneratedText& text : texts)
    length = std::max(length, std::ssize(text.window(most)));
  length = std::min(most, length + std::min(most, options.rules.max_tokens));
  Index together = std::min(std::ssize(texts), options.batch_size);
  if (options.batch_size == 0) {
    const Index useful = std::min(std::ssize(texts), LoadedModel<Fp32>::useful_sequences);
    const Index fitting = all_reduce(world, model.sequences_that_fit(useful, length), ReduceOp::min);
    together = std::max<Index>(fitting, 1);
  }
  attempt_together(world, ExitCode::memory, [&] { model.allocate_cache(together, length); });
  return together;
}

// A text that is complete leaves its slot to the next one. Rank 0 draws and prints.
void write_texts(LoadedModel<Fp32>& model, const GenerateArguments& options, std::vector<GeneratedText>& texts,
                 const std::string& checkpoint, const Communicator& world) {
  std::vector<std::size_t> text_of_slot(static_cast<std::size_t>(allocate_cache(model, options, texts, world)),
                                        texts.size());
  std::size_t begun = 0;
  TextPrinter printer;
  for (;;) {
    std::vector<TextSoFar> growing;
    std::vector<GeneratedText*> grown;
    for (std::size_t slot = 0; slot < text_of_slot.size(); ++slot) {
      std::size_t& text = text_of_slot[slot];
      if ((text == texts.size() || texts[text].is_complete()) && begun < texts.size()) {
        text = begun++;
        model.forget(static_cast<int>(slot));
      }
      if (text == texts.size() || texts[text].is_complete())
        continue;
      grown.push_back(&texts[text]);
      growing.push_back({static_cast<int>(slot), texts[text].window(model.shape().max_sequence_length)});
    }
    if (world.rank() == 0)
      printer.print(texts);
    if (growing.empty())
      return;
    const std::vector<std::vector<float>> logits = model.next_logits(growing);  // (V) each
    std::vector<TokenId> tokens(grown.size());
    for (std::size_t i = 0; i < grown.size(); ++i) {
      require_finite(logits[i], checkpoint);
      if (world.rank() == 0)
        tokens[i] = grown[i]->draw(logits[i]);
    }
    broadcast(world, std::span<TokenId>(tokens), 0);
    for (std::size_t i = 0; i < grown.size(); ++i)
      grown[i]->add(tokens[i]);
  }
}

int generate(GenerateArguments options, const Communicator& world) {
  const bool from_file = !options.prompts_file.empty();
  std::vector<std::string> prompts = options.prompts;
  attempt_together(world, ExitCode::data, [&] {
    if (from_file && world.rank() == 0)
      prompts = prompts_in(options.prompts_file);
  });
  prompts = broadcast_texts(world, prompts, 0);
  if (prompts.empty())
    prompts.emplace_back();
  const ProcessMesh mesh(world, {.degrees = PerAxis::degrees(world.size(), 1, 1)});
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<LoadedModel<Fp32>> model;
  std::string path;
  const std::size_t available_bytes = memory_of_a_rank(world);
  load_newest(options.checkpoint, world, note_to_stderr, [&](const CheckpointReader& checkpoint) {
    model.reset();  // frees what another checkpoint has filled
    path = checkpoint.path().string();
    tokenizer = tokenizer_of(checkpoint, options.tokenizer);
    model = std::make_unique<LoadedModel<Fp32>>(checkpoint, available_bytes, &mesh.tp());
  });
  const auto name_of = [&](std::size_t i) {
    if (from_file)
      return fmt::format("{}, prompt {}", options.prompts_file, i + 1);
    return fmt::format("{}{}", options.messages.empty() ? "--prompt" : "--message",
                       prompts.size() == 1 ? "" : fmt::format(" number {}", i + 1));
  };
  const Index vocab_size = model->shape().vocab_size;
  attempt_together(world, ExitCode::usage, [&] {
    if (!options.messages.empty())
      ask(options.messages, options.tokenizer.empty() ? tokenizer_beside(path).string() : options.tokenizer, *tokenizer,
          prompts, options.rules);
    for (std::size_t i = 0; i < prompts.size(); ++i)
      require_vocabulary(prompts[i], name_of(i), *tokenizer, vocab_size);
    require_stop_tokens(options.rules.stop_tokens, vocab_size);
  });
  std::vector<GeneratedText> texts;
  for (const std::string& prompt : prompts)
    texts.emplace_back(prompt, options.rules, *tokenizer);
  write_texts(*model, options, texts, path, world);
  const Index most = model->shape().max_sequence_length;
  if (world.rank() == 0 && std::ranges::any_of(texts, [&](const auto& text) { return text.num_tokens() > most; }))
    note_to_stderr(
        fmt::format("warning: a text is longer than the model's max_sequence_length: each token was chosen from the "
                    "last {} tokens alone",
                    most));
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<GenerateArguments>();
  CLI::App* const command = app.add_subcommand("generate", "Generate text with a trained model");
  command->add_option("--checkpoint", options->checkpoint, "directory of a run, or of one checkpoint")->required();
  command->add_option("--tokenizer", options->tokenizer,
                      "a tokenizer's file, or a directory with one; default: that of the checkpoint");
  CLI::Option* const prompt = command->add_option("--prompt", options->prompts, "text to continue; may be repeated");
  one_value_each(*prompt);
  command->add_option("--prompts", options->prompts_file, "file with one prompt per line; empty lines are left out")
      ->excludes(prompt);
  one_value_each(*command->add_option("--message", options->messages,
                                      "message to answer, with the chat template of the tokenizer; may be repeated"))
      .excludes(prompt)
      ->excludes("--prompts");
  command
      ->add_option("--batch-size", options->batch_size,
                   fmt::format("prompts computed together; default: as many as memory allows, up to {}",
                               LoadedModel<Fp32>::useful_sequences))
      ->check(between(1, 1 << 20));
  command
      ->add_option("--max-tokens", options->rules.max_tokens,
                   "tokens to write for each prompt; memory is reserved for all of them; default 400")
      ->check(at_least(1));
  one_value_each(*command->add_option("--stop", options->rules.stop_texts, "stop before this text; may be repeated"));
  one_value_each(*command->add_option("--stop-token", options->rules.stop_tokens,
                                      "stop before the token with this id; may be repeated"))
      .check(between(0, std::numeric_limits<TokenId>::max()));
  command
      ->add_option("--temperature", options->rules.sampling.temperature,
                   "0 = always the most likely token; default 0.8")
      ->check(float_between(temperature_range.min, temperature_range.max));
  command->add_option("--top-k", options->rules.sampling.top_k, "only the k most likely tokens; 0 (default): all")
      ->check(at_least(0));
  command
      ->add_option("--top-p", options->rules.sampling.top_p,
                   "only the most likely tokens of this total probability; default 0.95")
      ->check(float_between(0, 1));
  command
      ->add_option("--repetition-penalty", options->rules.sampling.repetition_penalty,
                   "divide positive logits of tokens of the text so far, prompt included, and multiply negative ones; "
                   "default 1: none")
      ->check(float_between(0.01, 100));
  command->add_option("--seed", options->rules.seed, "same seed, same text; default 1")->check(at_least(0));
  add_gpu_options(*command);
  command->footer(
      "  espalier generate --checkpoint runs/quickstart --prompt \"The best way to\"\n"
      "  espalier generate --checkpoint RUN --prompts questions.txt --stop '?' --seed 2\n"
      "  espalier generate --checkpoint tuned --message \"Who are you?\" --seed 3\n"
      "  mpiexec -n 2 espalier generate --checkpoint RUN   # half of the model each");
  command->callback([options, &chosen] {
    if (std::ranges::find(options->rules.stop_texts, "") != options->rules.stop_texts.end())
      throw CLI::ValidationError("--stop", "is an empty text, which would match everywhere");
    chosen.needs_runtime = true;
    chosen.action = [options](Runtime* runtime) { return generate(*options, runtime->world()); };
  });
}

}  // namespace espalier
