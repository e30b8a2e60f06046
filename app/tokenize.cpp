// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "app/commands.hpp"
#include "app/print.hpp"
#include "core/printable_text.hpp"
#include "io/pack/byte_source.hpp"
#include "io/text/tokenizer.hpp"

namespace espalier {
namespace {

constexpr std::string_view zero_byte("\0", 1);

struct TokenizeCommand {
  std::string tokenizer;
  std::string file = "-";
  std::string document_separator;
  bool null = false;  // documents end with a zero byte, which is not of them
  bool decode = false;
  bool add_special_tokens = false;
  bool skip_special_tokens = false;
};

std::string name_of(const TokenizeCommand& command) { return command.file == "-" ? "standard input" : command.file; }

// Calls `visit` with the parts of a text that end with a separator, and with what is behind the last one. Keeps a part.
void for_each_part(ByteSource& source, std::string_view separator, bool keeps_separator, const auto& visit) {
  constexpr std::size_t piece_bytes = std::size_t{1} << 18;
  std::string text;
  for (std::size_t got = piece_bytes; got == piece_bytes;) {
    std::size_t from = text.size() - std::min(text.size(), separator.size());  // a separator may have begun
    text.resize(text.size() + piece_bytes);
    got = source.read(text.data() + text.size() - piece_bytes, piece_bytes);
    text.resize(text.size() - piece_bytes + got);
    std::size_t begin = 0;
    for (std::size_t found = 0; !separator.empty() && (found = text.find(separator, from)) != std::string::npos;) {
      from = found + separator.size();
      visit(std::string_view(text).substr(begin, (keeps_separator ? from : found) - begin));
      begin = from;
    }
    text.erase(0, begin);
  }
  if (!text.empty())
    visit(std::string_view(text));
}

void print_ids(const std::vector<TokenId>& tokens) {
  fmt::memory_buffer line;
  for (const TokenId token : tokens)
    fmt::format_to(std::back_inserter(line), "{}{}", line.size() == 0 ? "" : " ", token);
  line.push_back('\n');
  print_text({line.data(), line.size()});
}

std::vector<TokenId> ids_of(std::string_view line, const std::string& where) {
  std::vector<TokenId> tokens;
  for (std::size_t begin = line.find_first_not_of(' '); begin < line.size();
       begin = line.find_first_not_of(' ', begin)) {
    const std::string_view word = line.substr(begin, line.find(' ', begin) - begin);
    TokenId token = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    if (error != std::errc() || end != word.data() + word.size())
      throw Error(ExitCode::data, {.what = "a line is not a list of token ids",
                                   .where = where,
                                   .got = printable_line(word.substr(0, 60)),
                                   .wanted = "numbers with spaces between them",
                                   .todo = "use the output of `espalier data tokenize` without --decode"});
    tokens.push_back(token);
    begin += word.size();
  }
  return tokens;
}

void decode_lines(const TokenizeCommand& command, const Tokenizer& tokenizer, ByteSource& source) {
  ModelText out;
  std::size_t number = 0;
  for_each_part(source, "\n", false, [&](std::string_view line) {
    const std::string where = fmt::format("{}:{}", name_of(command), ++number);
    const std::vector<TokenId> tokens = ids_of(line, where);
    try {
      out.write(tokenizer.decode(tokens, command.skip_special_tokens));
    } catch (const Error& error) {
      ErrorReport report = error.report();
      report.where = where + ", " + report.where;
      throw Error(error.code(), report);
    }
    if (command.null)
      out.write(zero_byte);
    else
      out.finish();
  });
}

int tokenize(const TokenizeCommand& command) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(command.tokenizer);
  const std::unique_ptr<ByteSource> source = open_bytes(command.file);
  if (command.decode) {
    decode_lines(command, *tokenizer, *source);
    return 0;
  }
  std::vector<TokenId> tokens;
  for_each_part(*source, command.null ? zero_byte : std::string_view(command.document_separator), !command.null,
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
  app->add_option("file", command->file, "text file, plain, gzip or zstd; default: standard input");
  app->add_flag("--decode", command->decode, "print the text of token ids; each line is a document");
  CLI::Option* const separator = app->add_option("--document-separator", command->document_separator,
                                                 "text that ends a document; default: the file is one document");
  app->add_flag("--null", command->null, "documents end with a zero byte, as in find -print0")->excludes(separator);
  app->add_flag("--add-special-tokens", command->add_special_tokens,
                "add the special tokens that the tokenizer puts around a text");
  app->add_flag("--skip-special-tokens", command->skip_special_tokens, "omit special tokens from decoded text");
  app->footer(
      "  espalier data tokenize --tokenizer tokenizer.json book.txt >ids.txt\n"
      "  espalier data tokenize --tokenizer tokenizer.json --decode ids.txt");
  app->callback([command, &chosen] { chosen.action = [command](Runtime*) { return tokenize(*command); }; });
}

}  // namespace espalier
