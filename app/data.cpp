// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "app/command_line.hpp"
#include "app/commands.hpp"
#include "app/print.hpp"
#include "app/token_files.hpp"
#include "io/input_files.hpp"
#include "io/pack.hpp"
#include "io/text/tokenizer.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

struct PackCommand {
  std::vector<std::string> inputs;
  std::vector<std::string> exclude;
  std::string tokenizer = "byte";
  std::string output;
  std::string validation;
  PackOptions options;
};

// "12 documents and the end of 1 other"
std::string parts_text(const PackSummary& summary) {
  const Index whole = summary.num_validation_documents;
  const Index cut = summary.num_cut_documents;
  if (whole == 0)
    return "the end of " + counted(cut, "document");
  return counted(whole, "document") + (cut == 0 ? "" : " and the end of " + counted(cut, "other"));
}

int pack(const PackCommand& command) {
  const std::vector<Path> files = expand_inputs(command.inputs, command.exclude);
  const PackSummary summary =
      pack_text(files, *load_tokenizer(command.tokenizer), command.output, command.validation, command.options);
  print_answer("{}, {}, {} of text\n", counted(summary.num_files, "file"), counted(summary.num_documents, "document"),
               bytes_text(static_cast<std::size_t>(summary.text_bytes)));
  print_answer("{}: {}\n", command.output, counted(summary.train_tokens, "token"));
  if (!command.validation.empty())
    print_answer("{}: {}, {:.3g} % of all ({})\n", command.validation, counted(summary.validation_tokens, "token"),
                 100 * summary.validation_share(), parts_text(summary));
  for (const std::string& warning : summary.warnings)
    print_note("warning: {}\n", warning);
  return 0;
}

void add_pack(CLI::App& data, Chosen& chosen) {
  const auto command = std::make_shared<PackCommand>();
  CLI::App* const pack_app = data.add_subcommand("pack", "Turn text files into a token file");
  pack_app->add_option("inputs", command->inputs, "text files and patterns ('corpus/*.txt')")->required();
  pack_app->add_option("--output", command->output, "token file to train on")->required();
  pack_app->add_option("--validation", command->validation, "token file to validate on");
  pack_app->add_option("--validation-fraction", command->options.validation_fraction,
                       "share of the text that goes there: at least 0, less than 1; default 0");
  pack_app->add_option("--tokenizer", command->tokenizer,
                       "byte (default), a tokenizer's file, or a directory with one");
  pack_app->add_flag("--add-special-tokens", command->options.add_special_tokens,
                     "add what the tokenizer puts around each document");
  pack_app->add_option("--threads", command->options.num_threads, "threads that encode; default: one per core")
      ->check(at_least(1));
  pack_app->add_option("--exclude", command->exclude,
                       "patterns of file names ('*.dat') or paths ('held_out/*') to leave out");
  pack_app->add_option("--document-separator", command->options.document_separator,
                       "text that ends a document; none: every file is one document");
  pack_app->add_option("--seed", command->options.seed, "of the choice of validation documents; default 0")
      ->check(at_least(0));
  pack_app->add_flag("--allow-binary", command->options.allow_binary, "take files with zero bytes too");
  pack_app->footer(
      "  espalier data pack --output train.bin --validation val.bin \\\n"
      "      --validation-fraction 0.05 books/*.txt");
  pack_app->callback([command, &chosen] { chosen.action = [command](Runtime*) { return pack(*command); }; });
}

}  // namespace

void add_data(CLI::App& app, Chosen& chosen) {
  CLI::App* const data = app.add_subcommand("data", "Make token files, convert them and look inside");
  data->require_subcommand(1);
  data->footer("  espalier data pack --output train.bin books/*.txt");
  add_pack(*data, chosen);
  add_data_pack_conversations(*data, chosen);
  add_data_inspect(*data, chosen);
  add_data_convert(*data, chosen);
  add_data_tokenize(*data, chosen);
}

}  // namespace espalier
