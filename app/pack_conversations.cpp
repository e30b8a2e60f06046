// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/pack_conversations.hpp"

#include <fmt/format.h>

#include <memory>

#include "app/command_line.hpp"
#include "app/commands.hpp"
#include "app/print.hpp"
#include "io/pack/input_files.hpp"
#include "io/text/tokenizer.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

struct PackConversationsCommand {
  std::vector<std::string> inputs;
  std::vector<std::string> exclude;
  std::string tokenizer;
  std::string output;
  std::string validation;
  ConversationOptions options;
};

double percent(Index part, Index whole) { return 100 * static_cast<double>(part) / static_cast<double>(whole); }

void print_file(const std::string& name, const ConversationFileSummary& file, Index sequence_length) {
  print_answer("{}: {}, {}, {:.3g} % of them in answers\n", name, counted(file.num_conversations, "conversation"),
               counted(file.num_tokens, "token"), percent(file.num_targets, file.num_tokens));
  if (sequence_length == 0)
    return;
  print_answer(
      "{}: {} of {}, {:.4g} % full; {} cut, {} left out, because the answer would begin after the end of the row\n",
      name, counted(file.num_rows, "row"), counted(sequence_length, "token"),
      percent(file.num_tokens, file.num_rows * sequence_length), counted(file.num_cut, "conversation"),
      file.num_left_out);
}

int pack(const PackConversationsCommand& command) {
  const std::vector<Path> files = expand_inputs(command.inputs, command.exclude);
  const ConversationSummary summary =
      pack_conversations(files, *load_tokenizer(command.tokenizer), load_chat_template(command.tokenizer),
                         command.output, command.validation, command.options);
  print_file(command.output, summary.train, command.options.sequence_length);
  if (!command.validation.empty())
    print_file(command.validation, summary.validation, command.options.sequence_length);
  if (summary.num_bad > 0)
    print_note("warning: {} left out:\n", counted(summary.num_bad, "line"));
  for (const std::string& line : summary.bad_lines)
    print_note("  {}\n", line);
  if (summary.num_bad > std::ssize(summary.bad_lines))
    print_note("  ...\n");
  return 0;
}

}  // namespace

void add_data_pack_conversations(CLI::App& data, Chosen& chosen) {
  const auto command = std::make_shared<PackConversationsCommand>();
  CLI::App* const app =
      data.add_subcommand("pack-conversations", "Turn conversations into a token file in which only answers count");
  app->add_option("inputs", command->inputs,
                  "JSON lines with messages, or with prompt and completion: files, plain, gzip or zstd; patterns "
                  "('chats/*.jsonl'); directories; - for standard input")
      ->required();
  app->add_option("--output", command->output, "token file to train on")->required();
  app->add_option("--tokenizer", command->tokenizer,
                  "a directory with a tokenizer and its chat template, such as MODEL/tokenizer of an import")
      ->required();
  app->add_option("--sequence-length", command->options.sequence_length,
                  "make rows of this many tokens from whole conversations: the batch.sequence_length of the run; "
                  "default: conversations follow each other")
      ->check(at_least(2));
  app->add_option("--validation", command->validation, "token file to validate on");
  app->add_option("--validation-fraction", command->options.validation_fraction,
                  "share of the conversations for validation: at least 0, less than 1; default 0");
  app->add_option("--exclude", command->exclude,
                  "patterns of file names ('*.dat') or paths ('held_out/*') to leave out");
  app->add_option("--seed", command->options.seed, "random seed that chooses the validation conversations; default 0")
      ->check(at_least(0));
  app->add_flag("--skip-bad", command->options.skip_bad, "skip and count lines that hold no conversation");
  app->add_option("--threads", command->options.num_threads, "threads that encode; default: one per core")
      ->check(at_least(1));
  app->footer(
      "  espalier data pack-conversations --tokenizer DIRECTORY --sequence-length 512 \\\n"
      "      --output train.bin chats/*.jsonl");
  app->callback([command, &chosen] { chosen.action = [command](Runtime*) { return pack(*command); }; });
}

}  // namespace espalier
