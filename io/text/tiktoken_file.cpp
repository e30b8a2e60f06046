// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/scalars.hpp"
#include "io/input_limits.hpp"
#include "io/json_fields.hpp"
#include "io/json_reader.hpp"
#include "io/text/bpe_tokenizer.hpp"
#include "io/text/tokenizer_files.hpp"

namespace espalier {
namespace {

// What a tiktoken file does not have.
struct TiktokenSplit {
  std::string pattern;
  std::vector<std::pair<std::string, TokenId>> special_tokens = {};
  std::vector<TokenId> prefix = {};  // of add_special_tokens
  bool nfc = false;                  // texts are normalized
};

// Of tiktoken's openai_public.py, and of the tokenizers that Meta and Alibaba have published.
constexpr const char* r50k = R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)";
constexpr const char* cl100k =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)";
constexpr const char* o200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* qwen =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

using SpecialTokens = std::vector<std::pair<std::string, TokenId>>;

SpecialTokens numbered(const std::vector<std::string>& texts, TokenId first) {
  SpecialTokens tokens;
  for (const std::string& text : texts)
    tokens.emplace_back(text, first++);
  return tokens;
}

TiktokenSplit llama3_split() {
  std::vector<std::string> texts = {"<|begin_of_text|>",
                                    "<|end_of_text|>",
                                    "<|reserved_special_token_0|>",
                                    "<|reserved_special_token_1|>",
                                    "<|finetune_right_pad_id|>",
                                    "<|step_id|>",
                                    "<|start_header_id|>",
                                    "<|end_header_id|>",
                                    "<|eom_id|>",
                                    "<|eot_id|>",
                                    "<|python_tag|>",
                                    "<|image|>"};
  for (int i = 2; texts.size() < 256; ++i)
    texts.push_back(fmt::format("<|reserved_special_token_{}|>", i));
  return {.pattern = llama3_pattern, .special_tokens = numbered(texts, 128000), .prefix = {128000}};
}

TiktokenSplit qwen_split() {
  std::vector<std::string> texts = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  for (int i = 0; i < 205; ++i)
    texts.push_back(fmt::format("<|extra_{}|>", i));
  return {.pattern = qwen, .special_tokens = numbered(texts, 151643), .nfc = true};
}

TiktokenSplit cl100k_split() {
  return {.pattern = cl100k,
          .special_tokens = {{"<|endoftext|>", 100257},
                             {"<|fim_prefix|>", 100258},
                             {"<|fim_middle|>", 100259},
                             {"<|fim_suffix|>", 100260},
                             {"<|endofprompt|>", 100276}}};
}

struct KnownTiktoken {
  Index num_ranks;
  const char* name;
  TiktokenSplit (*split)();
};

constexpr KnownTiktoken known_tiktoken[] = {
    {50256, "gpt2",
     [] {
       return TiktokenSplit{.pattern = r50k, .special_tokens = {{"<|endoftext|>", 50256}}};
     }},
    {50257, "Whisper",
     [] {
       return TiktokenSplit{.pattern = r50k, .special_tokens = {{"<|endoftext|>", 50257}}};
     }},
    {50280, "p50k_base",
     [] {
       return TiktokenSplit{.pattern = r50k, .special_tokens = {{"<|endoftext|>", 50256}}};
     }},
    {100256, "cl100k_base", cl100k_split},
    {128000, "Llama 3", llama3_split},
    {151643, "Qwen", qwen_split},
    {199998, "o200k_base", [] {
       return TiktokenSplit{.pattern = o200k,
                            .special_tokens = {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}};
     }}};

// That of a known tokenizer with so many ranks.
std::optional<TiktokenSplit> known_tiktoken_split(Index num_ranks) {
  for (const KnownTiktoken& known : known_tiktoken)
    if (known.num_ranks == num_ranks)
      return known.split();
  return std::nullopt;
}

// "gpt2 (50256), ..."
std::string known_tiktoken_names() {
  std::string names;
  for (const KnownTiktoken& known : known_tiktoken)
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", known.name, known.num_ranks);
  return names;
}

// -1 for what is no digit of base64.
int base64_digit(char c) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::size_t at = digits.find(c);
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

// Empty for what is no base64.
std::string base64_decoded(std::string_view text) {
  std::string bytes;
  if (text.size() % 4 != 0)
    return {};
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  unsigned bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int digit = i >= text.size() - padding ? 0 : base64_digit(text[i]);
    if (digit < 0)
      return {};
    bits = bits << 6 | static_cast<unsigned>(digit);
    if (i % 4 == 3)
      for (const int shift : {16, 8, 0})
        bytes += static_cast<char>(bits >> shift & 0xFF);
  }
  bytes.erase(bytes.size() - padding);
  return bytes;
}

struct RankLine {
  std::string token;
  TokenId rank = -1;
};

// "IQ== 0"
RankLine rank_line(std::string_view line) {
  const std::size_t space = line.find(' ');
  RankLine read;
  if (space == std::string_view::npos)
    return read;
  const std::string_view rank = line.substr(space + 1);
  const auto [end, error] = std::from_chars(rank.data(), rank.data() + rank.size(), read.rank);
  if (error != std::errc() || end != rank.data() + rank.size())
    read.rank = -1;
  read.token = base64_decoded(line.substr(0, space));
  return read;
}

// Calls `visit` with the lines that are not empty, and their line numbers.
void for_each_rank_line(std::string_view text, const auto& visit) {
  for (std::size_t line_number = 1; !text.empty(); ++line_number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r'))
      line.remove_suffix(1);
    if (!line.empty())
      visit(line, line_number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// What stands beside the file, for a tokenizer that is not known.
TiktokenSplit split_beside(const Path& path) {
  const std::string text = read_file(path, ExitCode::data, LargestFile::config);
  const nlohmann::json json = parse_json(text);
  TiktokenSplit split{.pattern = field<std::string>(json, "pattern", Regex::longest_pattern),
                      .nfc = field_or<bool>(json, "nfc", false)};
  const nlohmann::json& special_tokens = object_field_or_empty(json, "special_tokens");
  for (const auto& [token, id] : special_tokens.items())
    split.special_tokens.emplace_back(token, value_from<TokenId>(id, "special_tokens"));
  return split;
}

TiktokenSplit split_of(const Path& path, Index num_ranks) {
  const Path beside = tiktoken_rules(path);
  std::error_code ignored;
  if (std::filesystem::exists(beside, ignored))
    return split_beside(beside);
  if (std::optional<TiktokenSplit> known = known_tiktoken_split(num_ranks))
    return std::move(*known);
  throw Error(ExitCode::data,
              {.what = "an unknown tiktoken file",
               .where = path.string(),
               .got = fmt::format("{} ranks, and no {}", num_ranks, beside.string()),
               .wanted = "the ranks of " + known_tiktoken_names() + ", or a file with the pattern beside it",
               .todo = fmt::format("write {}: {{\"pattern\": \"...\", \"special_tokens\": {{\"<|endoftext|>\": {}}}}}",
                                   beside.string(), num_ranks)});
}

}  // namespace

bool is_tiktoken_file(std::string_view begin) {
  const RankLine line = rank_line(begin.substr(0, begin.find('\n')));
  return line.rank >= 0 && !line.token.empty();
}

std::unique_ptr<Tokenizer> read_tiktoken_file(const Path& path) {
  const std::string text = read_file(path, ExitCode::data, LargestFile::tokenizer);
  try {
    Vocabulary vocabulary;
    std::vector<std::string> texts;
    Index num_ranks = 0;
    for_each_rank_line(text, [&](std::string_view line, std::size_t line_number) {
      const RankLine read = rank_line(line);
      // an empty token ("= 50256" in Whisper's files) is never made
      if (read.rank < 0 || (read.token.empty() && !line.starts_with('=')))
        throw std::runtime_error(fmt::format("line {} is not a token in base64 and its rank", line_number));
      ++num_ranks;
      if (read.token.empty())
        return;
      vocabulary.add(read.token, read.rank);
      set_text(texts, read.rank, read.token);
    });
    TiktokenSplit split = split_of(path, num_ranks);
    BpeParts parts{.kind = "tiktoken", .contents = text, .bpe = Bpe::of_ranks(std::move(vocabulary), true)};
    parts.contents += '\0' + split.pattern;
    parts.pre_tokenizer.add(SplitStep{Regex(split.pattern, RegexDialect::fancy_regex)});
    parts.decoder.add_byte_level();
    if (split.nfc)
      parts.normalizer.add_form(Normalizer::Form::nfc, false);
    for (auto& [token, id] : split.special_tokens) {
      const auto has_id = [wanted = id](const AddedToken& other) { return other.id == wanted; };
      if (token.empty() || id < 0 || id >= Vocabulary::max_tokens || parts.bpe.vocabulary().contains(id) ||
          std::ranges::any_of(parts.added_tokens.tokens(), has_id))
        throw std::runtime_error(
            fmt::format("the special token {:.60} has the id {}, which is another token's or "
                        "no id",
                        token, id));
      set_text(texts, id, token);
      parts.contents += fmt::format("\n{} {}", id, token);
      parts.added_tokens.add({.text = token, .id = id, .special = true}, token);
    }
    parts.prefix = split.prefix;
    parts.texts = std::move(texts);
    return std::make_unique<BpeTokenizer>(std::move(parts));
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const UnsupportedPattern& unsupported) {
    throw Error(ExitCode::data, {.what = "the pattern of a tiktoken file is not supported",
                                 .where = tiktoken_rules(path).string(),
                                 .got = unsupported.what(),
                                 .wanted = "a pattern without it",
                                 .todo = "write it in another way, or use another tokenizer"});
  } catch (const std::exception& error) {
    throw Error(ExitCode::data, {.what = "a tiktoken file cannot be read",
                                 .where = path.string(),
                                 .got = error.what(),
                                 .wanted = "on each line a token in base64, a space and its rank",
                                 .todo = "download the file again"});
  }
}

}  // namespace espalier
