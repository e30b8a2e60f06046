// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text/tokenizer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "io/hash.hpp"
#include "io/text/byte_tokenizer.hpp"
#include "io/text/tokenizer_files.hpp"

namespace espalier {
namespace {

constexpr const char* tokenizer_files[] = {TokenizerFile::json, TokenizerFile::model};
constexpr const char* tokenizer_endings[] = {".model", ".tiktoken"};

// The one file in a directory that has an ending of the kinds; empty where there is none.
Path lone_file(const Path& directory, const std::string& name) {
  Path found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (std::ranges::find(tokenizer_endings, entry.path().extension()) == std::end(tokenizer_endings) ||
        !entry.is_regular_file(error))
      continue;
    if (!found.empty())
      throw Error(ExitCode::usage, {.what = "a directory has several tokenizers",
                                    .where = name,
                                    .got = fmt::format("{} and {}", std::min(found, entry.path()).filename().string(),
                                                       std::max(found, entry.path()).filename().string()),
                                    .wanted = "one file",
                                    .todo = "name the file"});
    found = entry.path();
  }
  return found;
}

}  // namespace

Path tokenizer_file(const std::string& name) {
  Path path(name);
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status))
    throw Error(ExitCode::usage,
                {.what = "unknown tokenizer",
                 .got = '"' + name + '"',
                 .wanted = "\"byte\", or a tokenizer.json, a SentencePiece model, a tiktoken file, or a "
                           "directory with one",
                 .todo = "--tokenizer FILE"});
  if (!std::filesystem::is_directory(status))
    return path;
  for (const char* const file : tokenizer_files)
    if (std::filesystem::exists(path / file, error))
      return path / file;
  if (Path file = lone_file(path, name); !file.empty())
    return file;
  throw Error(ExitCode::usage, {.what = "a directory has no tokenizer",
                                .where = name,
                                .wanted = fmt::format("{}, *{} in it", fmt::join(tokenizer_files, ", "),
                                                      fmt::join(tokenizer_endings, " or *")),
                                .todo = "name the file"});
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name) {
  if (name == "byte")
    return std::make_unique<ByteTokenizer>();
  const Path path = tokenizer_file(name);
  const InputFile file(path, ExitCode::data);
  std::string begin(std::min<std::size_t>(file.size(), 4096), '\0');
  file.read_at(0, begin.data(), begin.size());
  if (is_tokenizer_json(begin))
    return read_tokenizer_json(path);
  if (is_tiktoken_file(begin))
    return read_tiktoken_file(path);
  if (is_sentencepiece_file(begin))
    return read_sentencepiece_model(path);
  throw Error(ExitCode::data, {.what = "a file is not a tokenizer",
                               .where = path.string(),
                               .wanted = "a tokenizer.json, a SentencePiece model or a tiktoken file",
                               .todo = "name the file that has the vocabulary"});
}

bool has_tokenizer(const Path& directory) {
  std::error_code error;
  return std::ranges::any_of(
      tokenizer_files, [&](const char* file) { return std::filesystem::is_regular_file(directory / file, error); });
}

std::string fingerprint_name(const std::string& kind, Index vocab_size, std::string_view contents) {
  return fmt::format("{}-{}-{:016x}", kind, vocab_size, xxh3_64(contents.data(), contents.size()));
}

void refuse_token(TokenId token, std::size_t position, const std::string& tokenizer, Index vocab_size) {
  throw Error(ExitCode::data, {.what = "a token is not in the tokenizer's vocabulary",
                               .where = fmt::format("token {}", position + 1),
                               .got = fmt::format("id {}", token),
                               .wanted = fmt::format("0 to {} (tokenizer \"{}\")", vocab_size - 1, tokenizer),
                               .todo = "decode these tokens with the tokenizer that made them"});
}

}  // namespace espalier
