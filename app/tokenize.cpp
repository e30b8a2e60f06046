// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <limits>
#include <memory>

#include "app/commands.hpp"
#include "app/print.hpp"
#include "core/printable_text.hpp"
#include "io/text/tokenizer.hpp"

namespace espalier {
namespace {

struct TokenizeCommand {
  std::string tokenizer;
  std::string file = "-";
  std::string document_separator;
  bool null = false;  // documents end with a zero byte, which is not of them
  bool decode = false;
  bool add_special_tokens = false;
  bool skip_special_tokens = false;
};

std::string standard_input() {
  std::string text;
  std::size_t size = 0;
  do {
    text.resize(size + (std::size_t{1} << 16));
    const ssize_t got = ::read(STDIN_FILENO, text.data() + size, text.size() - size);
    if (got < 0 && errno != EINTR)
      throw Error(ExitCode::data, {.what = "standard input cannot be read", .got = system_message(errno)});
    text.resize(size + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0)
      return text;
    size = text.size();
  } while (true);
}

// Calls `visit` with the parts that end with a separator, or with the text.
void for_each_part(std::string_view text, std::string_view separator, bool keeps_separator, const auto& visit) {
  while (!text.empty()) {
    const std::size_t found = separator.empty() ? std::string_view::npos : text.find(separator);
    const std::size_t end = found == std::string_view::npos ? text.size() : found + separator.size();
    visit(text.substr(0, found == std::string_view::npos || keeps_separator ? end : found));
    text.remove_prefix(end);
  }
}

void print_ids(const std::vector<TokenId>& tokens) {
  fmt::memory_buffer line;
  for (const TokenId token : tokens)
    fmt::format_to(std::back_inserter(line), "{}{}", line.size() == 0 ? "" : " ", token);
  line.push_back('\n');
  print_text({line.data(), line.size()});
}

std::vector<TokenId> ids_of(std::string_view line, std::size_t number) {
  std::vector<TokenId> tokens;
  for_each_part(line, " ", false, [&](std::string_view word) {
    if (word.empty())
      return;
    TokenId token = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    if (error != std::errc() || end != word.data() + word.size())
      throw Error(ExitCode::data, {.what = "a line of ids has something else",
                                   .where = fmt::format("line {}", number),
                                   .got = printable_line(word.substr(0, 60)),
                                   .wanted = "numbers with spaces between them",
                                   .todo = "give it what `espalier data tokenize` without --decode has printed"});
    tokens.push_back(token);
  });
  return tokens;
}

int tokenize(const TokenizeCommand& command) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(command.tokenizer);
  const std::string text = command.file == "-" ? standard_input() : read_file(command.file, ExitCode::data);
  const std::string_view zero("\0", 1);
  if (command.decode) {
    ModelText out;
    std::size_t number = 0;
    for_each_part(text, "\n", false, [&](std::string_view line) {
      out.write(tokenizer->decode(ids_of(line, ++number), command.skip_special_tokens));
      if (command.null)
        out.write(zero);
      else
        out.finish();
    });
    return 0;
  }
  std::vector<TokenId> tokens;
  for_each_part(text, command.null ? zero : std::string_view(command.document_separator), !command.null,
                [&](std::string_view document) {
                  tokens.clear();
                  tokenizer->encode(document, tokens, {.add_special_tokens = command.add_special_tokens});
                  print_ids(tokens);
                });
  return 0;
}

}  // namespace

void add_data_tokenize(CLI::App& data, Chosen& chosen) {
  const auto command = std::make_shared<TokenizeCommand>();
  CLI::App* const app = data.add_subcommand("tokenize", "Print the token ids of a text, or the text of token ids");
  app->add_option("--tokenizer", command->tokenizer, "byte, a tokenizer's file, or a directory with one")->required();
  app->add_option("file", command->file, "text file; default: standard input");
  app->add_flag("--decode", command->decode, "print the text of token ids; each line is a document");
  CLI::Option* const separator = app->add_option("--document-separator", command->document_separator,
                                                 "text that ends a document; none: the file is one document");
  app->add_flag("--null", command->null, "documents end with a zero byte, as in find -print0")->excludes(separator);
  app->add_flag("--add-special-tokens", command->add_special_tokens, "add what the tokenizer puts around a text");
  app->add_flag("--skip-special-tokens", command->skip_special_tokens, "leave special tokens out of decoded text");
  app->footer(
      "  espalier data tokenize --tokenizer tokenizer.json book.txt >ids.txt\n"
      "  espalier data tokenize --tokenizer tokenizer.json --decode ids.txt");
  app->callback([command, &chosen] { chosen.action = [command](Runtime*) { return tokenize(*command); }; });
}

}  // namespace espalier
