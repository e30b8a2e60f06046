// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/token_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/command_line.hpp"
#include "app/print.hpp"
#include "core/printable_text.hpp"
#include "io/config/key_reader.hpp"
#include "io/pack/json_text.hpp"
#include "io/text/byte_tokenizer.hpp"
#include "io/text/tokenizer.hpp"
#include "io/tokens/token_convert.hpp"
#include "io/tokens/token_statistics.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

struct InspectCommand {
  std::string path;
  Index vocab_size = 0;
  std::string tokenizer;  // that decodes; empty: bytes, where the file has them
  Index document_end = -1;
  Index first = 0;  // token to show
  Index show = 32;
  bool json = false;
};

// All that is found out of a file.
struct InspectedTokens {
  TokenFileInfo info;
  TokenStatistics statistics;
  bool knows_documents = false;
  Index num_targets = 0;  // that the loss mask counts
  const char* checked = "";
  std::vector<TokenId> shown;
  std::optional<std::string> text;  // of them
  double mean_length() const {
    return static_cast<double>(info.num_tokens) /
           static_cast<double>(std::max(Index{1}, statistics.lengths.num_documents));
  }
};

std::optional<std::string> text_of(const InspectedTokens& found, const std::string& name) {
  if (name.empty())
    return found.info.tokenizer == "byte" ? std::optional(ByteTokenizer().decode(found.shown)) : std::nullopt;
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(name);
  if (!found.info.tokenizer.empty() && found.info.tokenizer != tokenizer->name())
    throw Error(ExitCode::data, {.what = "the tokens were made with another tokenizer",
                                 .where = found.info.path.string(),
                                 .got = tokenizer->name(),
                                 .wanted = found.info.tokenizer,
                                 .todo = "give the tokenizer that the text was packed with"});
  return tokenizer->decode(found.shown);
}

InspectedTokens inspect_file(const InspectCommand& command) {
  const TokenFile file{Path(command.path)};
  InspectedTokens found;
  found.info = file.info();
  if (command.first > 0 && command.first >= found.info.num_tokens)
    throw Error(ExitCode::usage, {.what = "the first token to print is after the end of the file",
                                  .where = command.path,
                                  .got = fmt::format("--from {}", command.first),
                                  .wanted = fmt::format("below {}, its number of tokens", found.info.num_tokens),
                                  .todo = "lower --from"});
  const TokenFormat format = found.info.format;
  const Index vocab_size = command.vocab_size > 0 ? command.vocab_size : found.info.vocab_size;
  file.verify_index();
  file.verify_checksum();
  if (vocab_size > 0)
    file.check_vocabulary(vocab_size, "--vocab-size");
  found.checked = format == TokenFormat::espalier   ? "checksum and every token"
                  : format == TokenFormat::megatron ? vocab_size > 0 ? "index and every token against the vocabulary"
                                                                     : "index; --vocab-size N checks every token"
                  : vocab_size > 0                  ? "every token against the vocabulary"
                                                    : "only the size; --vocab-size N checks every token";
  const bool is_split = command.document_end >= 0;
  found.knows_documents = file.states_documents() || is_split;
  found.statistics =
      count_tokens(file, is_split ? std::optional(static_cast<TokenId>(command.document_end)) : std::nullopt);
  found.num_targets = count_targets(file);
  found.shown.resize(static_cast<std::size_t>(std::min(command.show, found.info.num_tokens - command.first)));
  file.read(command.first, found.shown);
  found.text = text_of(found, command.tokenizer);
  return found;
}

// One line for each range of lengths: "    256 - 511     1203  ########".
void print_lengths(const LengthHistogram& lengths) {
  constexpr Index widest_bar = 40;
  const Index most = *std::ranges::max_element(lengths.bins);
  for (std::size_t bin = 0; bin < lengths.bins.size(); ++bin) {
    if (lengths.bins[bin] == 0)
      continue;
    const Index bar = (widest_bar * lengths.bins[bin] + most - 1) / most;
    print_answer("  {:>12} - {:<12} {:>12}  {}\n", LengthHistogram::first_of(bin), LengthHistogram::last_of(bin),
                 lengths.bins[bin], std::string(static_cast<std::size_t>(bar), '#'));
  }
}

void print_found(const InspectCommand& command, const InspectedTokens& found) {
  const TokenFileInfo& info = found.info;
  const TokenStatistics& statistics = found.statistics;
  print_answer("{}\n  format      {}\n  tokens      {} of {} bytes ({})\n  vocabulary  {}\n  tokenizer   {}\n",
               info.path.string(), to_string(info.format), info.num_tokens, info.bytes_per_token, type_text(info),
               info.vocab_size > 0 ? std::to_string(info.vocab_size) : "not stated",
               info.tokenizer.empty() ? "not stated" : printable_line(info.tokenizer));
  print_answer("  ids         {} to {}\n", statistics.smallest_id, statistics.largest_id);
  if (!found.knows_documents) {
    print_answer("  documents   not stored; --document-end ID splits at a token\n");
  } else {
    const LengthHistogram& lengths = statistics.lengths;
    print_answer("  documents   {}, of {} to {} tokens, {:.1f} on average\n", lengths.num_documents, lengths.shortest,
                 lengths.longest, found.mean_length());
    print_lengths(lengths);
  }
  if (info.row_length > 0)
    print_answer("  rows        {} of {}: the batch.sequence_length of a run\n", info.num_tokens / info.row_length,
                 counted(info.row_length, "token"));
  if (info.has_loss_mask)
    print_answer("  loss mask   {} of {} count as targets\n", found.num_targets, counted(info.num_tokens, "token"));
  print_answer("  checked     {}\n", found.checked);
  print_answer("  {:<10}  {}\n", command.first == 0 ? "first" : fmt::format("from {}", command.first),
               fmt::join(found.shown, " "));
  if (found.text)
    print_answer("  as text     {}\n", printable_line(*found.text));
}

void print_found_as_json(const InspectCommand& command, const InspectedTokens& found) {
  const TokenFileInfo& info = found.info;
  const LengthHistogram& lengths = found.statistics.lengths;
  nlohmann::ordered_json json = {{"file", info.path.string()},
                                 {"format", to_string(info.format)},
                                 {"type", type_text(info)},
                                 {"tokens", info.num_tokens},
                                 {"smallest_id", found.statistics.smallest_id},
                                 {"largest_id", found.statistics.largest_id},
                                 {"checked", found.checked},
                                 {"first", command.first},
                                 {"shown", found.shown}};
  if (info.vocab_size > 0)
    json["vocab_size"] = info.vocab_size;
  if (!info.tokenizer.empty())
    json["tokenizer"] = info.tokenizer;
  if (found.text)
    json["text"] = *found.text;
  if (info.row_length > 0)
    json["row_length"] = info.row_length;
  if (info.has_loss_mask)
    json["targets"] = found.num_targets;
  if (found.knows_documents) {
    json["documents"] = lengths.num_documents;
    nlohmann::ordered_json& of_lengths = json["lengths"];
    of_lengths = {{"shortest", lengths.shortest}, {"longest", lengths.longest}, {"mean", found.mean_length()}};
    of_lengths["histogram"] = nlohmann::ordered_json::array();
    for (std::size_t bin = 0; bin < lengths.bins.size(); ++bin)
      if (lengths.bins[bin] > 0)
        of_lengths["histogram"].push_back({{"from", LengthHistogram::first_of(bin)},
                                           {"to", LengthHistogram::last_of(bin)},
                                           {"documents", lengths.bins[bin]}});
  }
  print_answer("{}\n", json_text(json, 2));
}

int inspect_tokens(const InspectCommand& command) {
  const InspectedTokens found = inspect_file(command);
  (command.json ? print_found_as_json : print_found)(command, found);
  return 0;
}

constexpr std::array written_formats{TokenFormat::espalier, TokenFormat::megatron};

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
  options.format =
      *std::ranges::find(written_formats, command.format, [](TokenFormat each) { return to_string(each); });
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

void add_data_inspect(CLI::App& parent, Chosen& chosen) {
  const auto command = std::make_shared<InspectCommand>();
  CLI::App* const app = parent.add_subcommand("inspect", "Inspect and check a token file");
  app->add_option("file", command->path, "token file of Espalier, Megatron, nanoGPT or llm.c")->required();
  app->add_option("--vocab-size", command->vocab_size, "check every token against it")
      ->check(between(1, std::numeric_limits<TokenId>::max()));
  app->add_option("--tokenizer", command->tokenizer,
                  "show the printed tokens as text: a tokenizer's file, or a directory with one");
  app->add_option("--document-end", command->document_end,
                  "token that ends a document, for files that do not store documents")
      ->check(between(0, std::numeric_limits<TokenId>::max() - 1));
  app->add_option("--show", command->show, "number of tokens to print; default 32")->check(at_least(0));
  app->add_option("--from", command->first, "first token to print; default 0")->check(at_least(0));
  app->add_flag("--json", command->json, "print JSON");
  app->footer("  espalier data inspect train.bin");
  app->callback([command, &chosen] { chosen.action = [command](Runtime*) { return inspect_tokens(*command); }; });
}

void add_data_convert(CLI::App& parent, Chosen& chosen) {
  const auto command = std::make_shared<ConvertCommand>();
  CLI::App* const app = parent.add_subcommand("convert", "Write token files in another format");
  app->add_option("inputs", command->inputs, "token files of any supported format; their tokens are joined in order")
      ->required();
  app->add_option("--output", command->output,
                  "token file; with --format megatron PREFIX, for PREFIX.bin and PREFIX.idx")
      ->required();
  app->add_option("--format", command->format, "format to write")
      ->required()
      ->check(CLI::IsMember(words_of(written_formats)));
  app->add_option(
         "--document-end", command->document_end,
         "token that ends a document, for inputs that do not store documents; default: each input is one document")
      ->check(between(0, std::numeric_limits<TokenId>::max() - 1));
  app->add_option("--vocab-size", command->options.vocab_size,
                  "vocabulary size; default: that of the inputs, or the largest token + 1")
      ->check(between(1, std::numeric_limits<TokenId>::max()));
  app->add_option("--tokenizer", command->tokenizer,
                  "tokenizer that made the tokens, if no input names it: byte, a file, or a directory with one");
  app->footer("  espalier data convert corpus --output corpus.tokens --format espalier");
  app->callback([command, &chosen] { chosen.action = [command](Runtime*) { return convert(*command); }; });
}

}  // namespace espalier
