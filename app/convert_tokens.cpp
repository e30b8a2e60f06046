// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <limits>
#include <memory>

#include "app/command_line.hpp"
#include "app/print.hpp"
#include "app/token_files.hpp"
#include "io/text/tokenizer.hpp"
#include "io/tokens/token_convert.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

struct ConvertCommand {
  std::vector<std::string> inputs;
  std::string output;
  std::string format;
  std::string tokenizer;
  Index document_end = -1;
  ConvertOptions options;
};

int convert(ConvertCommand command) {
  ConvertOptions& options = command.options;
  options.format = command.format == "megatron" ? TokenFormat::megatron : TokenFormat::espalier;
  if (command.document_end >= 0)
    options.document_end = static_cast<TokenId>(command.document_end);
  if (!command.tokenizer.empty()) {
    const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(command.tokenizer);
    options.tokenizer = tokenizer->name();
    options.tokenizer_size = tokenizer->vocab_size();
  }
  const ConvertSummary summary =
      convert_tokens({command.inputs.begin(), command.inputs.end()}, command.output, options);
  for (const Path& path : summary.written)
    print_answer("{}\n", path.string());
  print_answer("  {} of {} bytes", counted(summary.num_tokens, "token"), summary.bytes_per_token);
  if (summary.num_documents > 0)
    print_answer(", {}", counted(summary.num_documents, "document"));
  if (options.format == TokenFormat::espalier)
    print_answer(", vocabulary {}, tokenizer {}", summary.vocab_size,
                 summary.tokenizer.empty() ? "not stated" : summary.tokenizer);
  print_answer("\n");
  return 0;
}

}  // namespace

void add_data_convert(CLI::App& parent, Chosen& chosen) {
  const auto command = std::make_shared<ConvertCommand>();
  CLI::App* const app = parent.add_subcommand("convert", "Write token files in another format");
  app->add_option("inputs", command->inputs, "token files of any format that is read; their tokens are joined in order")
      ->required();
  app->add_option("--output", command->output,
                  "token file; with --format megatron PREFIX, for PREFIX.bin and PREFIX.idx")
      ->required();
  app->add_option("--format", command->format, "espalier or megatron")
      ->required()
      ->check(CLI::IsMember({"espalier", "megatron"}));
  app->add_option("--document-end", command->document_end,
                  "token that ends a document, for inputs that do not state documents; default: each input is one")
      ->check(between(0, std::numeric_limits<TokenId>::max() - 1));
  app->add_option("--vocab-size", command->options.vocab_size,
                  "every token is below it; default: as the inputs state, or what their largest token needs")
      ->check(between(1, std::numeric_limits<TokenId>::max()));
  app->add_option(
      "--tokenizer", command->tokenizer,
      "byte, a tokenizer's file, or a directory with one: it made the tokens, where no input states its name");
  app->footer("  espalier data convert corpus --output corpus.tokens --format espalier");
  app->callback([command, &chosen] { chosen.action = [command](Runtime*) { return convert(*command); }; });
}

}  // namespace espalier
