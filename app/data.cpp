// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>

#include "app/command_line.hpp"
#include "app/commands.hpp"
#include "app/console.hpp"
#include "app/print.hpp"
#include "app/token_files.hpp"
#include "io/pack/input_files.hpp"
#include "io/pack/pack.hpp"
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
  std::string document_end;
  PackOptions options;
};

// An id, or "<|endoftext|>".
TokenId token_of(const std::string& text, const Tokenizer& tokenizer) {
  const bool is_number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (const TokenId token = is_number ? -1 : tokenizer.special_token(text); token >= 0)
    return token;
  const auto id = is_number ? parse_count(text) : std::nullopt;
  if (!id || *id >= tokenizer.vocab_size())
    throw Error(ExitCode::usage, {.what = "the token that ends documents is unknown",
                                  .got = "--document-end " + text,
                                  .wanted = fmt::format("a special token of {}, or an id below {}", tokenizer.name(),
                                                        tokenizer.vocab_size()),
                                  .todo = "--document-end '<|endoftext|>', or as the tokenizer writes it"});
  return static_cast<TokenId>(*id);
}

// "12.3 MB/s, 3.1M tokens/s, 4m20 left": on a terminal drawn over itself, elsewhere a line a minute.
class PackBar {
 public:
  void operator()(const PackProgress& now) {
    const auto time = std::chrono::steady_clock::now();
    if (time - last_ < std::chrono::milliseconds(is_drawn_ ? 200 : 60000))
      return;
    last_ = time;
    if (now.is_survey != is_survey_ || begin_bytes_ < 0) {
      is_survey_ = now.is_survey;
      begin_ = time;
      begin_bytes_ = now.bytes;
      begin_tokens_ = now.num_tokens;
      return;
    }
    const double seconds = std::chrono::duration<double>(time - begin_).count();
    const double rate = static_cast<double>(now.bytes - begin_bytes_) / seconds;
    std::string text =
        fmt::format("{}{}, {}/s", now.is_survey ? "choosing what validates: " : "",
                    bytes_text(static_cast<std::size_t>(now.bytes)), bytes_text(static_cast<std::size_t>(rate)));
    if (!now.is_survey)
      text += fmt::format(", {} tokens/s", count_text(static_cast<double>(now.num_tokens - begin_tokens_) / seconds));
    if (now.all_bytes > 0) {
      const double share = static_cast<double>(now.bytes) / static_cast<double>(now.all_bytes);
      const auto filled = static_cast<std::size_t>(20 * std::clamp(share, 0.0, 1.0));
      text = fmt::format("[{}{}] {:.0f} % {}, {} left", std::string(filled, '#'), std::string(20 - filled, ' '),
                         100 * share, text,
                         rate > 0 ? duration_text(static_cast<double>(now.all_bytes - now.bytes) / rate) : "?");
    }
    if (is_drawn_)
      std::fputs(("\r\033[K" + text).c_str(), stderr);
    else
      print_note("{}\n", text);
  }
  PackBar() = default;
  PackBar(const PackBar&) = delete;
  ~PackBar() {
    if (is_drawn_)
      std::fputs("\r\033[K", stderr);
  }

 private:
  bool is_drawn_ = ::isatty(STDERR_FILENO) == 1;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point begin_ = last_;
  Index begin_bytes_ = -1;
  Index begin_tokens_ = 0;
  bool is_survey_ = false;
};

// "12 documents and the end of 1 other"
std::string parts_text(const PackSummary& summary) {
  const Index whole = summary.num_validation_documents;
  const Index cut = summary.num_cut_documents;
  if (whole == 0)
    return "the end of " + counted(cut, "document");
  return counted(whole, "document") + (cut == 0 ? "" : " and the end of " + counted(cut, "other"));
}

PackSummary pack_with_bar(const PackCommand& command) {
  if (!command.exclude.empty() && std::ranges::find(command.inputs, "-") != command.inputs.end())
    throw Error(ExitCode::usage, {.what = "--exclude cannot be used with standard input",
                                  .got = "--exclude with the input -",
                                  .wanted = "one of the two",
                                  .todo = "name files, or pipe in only what is to be packed"});
  const std::vector<Path> files = expand_inputs(command.inputs, command.exclude);
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(command.tokenizer);
  PackOptions options = command.options;
  if (!command.document_end.empty())
    options.document_end = token_of(command.document_end, *tokenizer);
  PackBar bar;
  options.progress = std::ref(bar);
  return pack_text(files, *tokenizer, command.output, command.validation, options);
}

int pack(const PackCommand& command) {
  const PackSummary summary = pack_with_bar(command);
  if (summary.resumed_bytes > 0)
    print_note("resumed after {} of packed text\n", bytes_text(static_cast<std::size_t>(summary.resumed_bytes)));
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
  pack_app
      ->add_option("inputs", command->inputs,
                   "text files, plain, gzip or zstd; patterns ('corpus/*.txt'); directories; - for standard input")
      ->required();
  pack_app->add_option("--output", command->output, "token file to train on")->required();
  pack_app->add_option("--validation", command->validation, "token file to validate on");
  pack_app->add_option("--validation-fraction", command->options.validation_fraction,
                       "share of the text for validation: at least 0, less than 1; default 0");
  pack_app->add_option("--tokenizer", command->tokenizer,
                       "byte (default), a tokenizer's file, or a directory with one");
  pack_app->add_flag("--add-special-tokens", command->options.add_special_tokens,
                     "add the special tokens that the tokenizer puts around each document");
  pack_app->add_option("--threads", command->options.num_threads, "threads that encode; default: one per core")
      ->check(at_least(1));
  pack_app->add_option("--exclude", command->exclude,
                       "patterns of file names ('*.dat') or paths ('held_out/*') to leave out");
  pack_app->add_option("--document-separator", command->options.document_separator,
                       "text that ends a document; default: every file is one document");
  pack_app->add_option("--key", command->options.key, "the inputs are JSON lines; each has a document under this key");
  pack_app->add_option("--document-end", command->document_end,
                       "token to put after each document: its id, or the text of a special token");
  pack_app->add_flag("--skip-bad", command->options.skip_bad, "skip lines that are not UTF-8, or not JSON with a text");
  pack_app->add_option("--seed", command->options.seed, "random seed that chooses the validation documents; default 0")
      ->check(at_least(0));
  pack_app->add_flag("--allow-binary", command->options.allow_binary,
                     "accept any bytes: zero bytes, and text that is not UTF-8");
  pack_app->footer(
      "  espalier data pack --output train.bin --validation val.bin \\\n"
      "      --validation-fraction 0.05 books/*.txt");
  pack_app->callback([command, &chosen] { chosen.action = [command](Runtime*) { return pack(*command); }; });
}

}  // namespace

void add_data(CLI::App& app, Chosen& chosen) {
  CLI::App* const data = app.add_subcommand("data", "Make, convert and inspect token files");
  data->require_subcommand(1);
  data->footer("  espalier data pack --output train.bin books/*.txt");
  add_pack(*data, chosen);
  add_data_pack_conversations(*data, chosen);
  add_data_inspect(*data, chosen);
  add_data_convert(*data, chosen);
  add_data_tokenize(*data, chosen);
}

}  // namespace espalier
