// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "core/printable_text.hpp"
#include "io/input_limits.hpp"
#include "io/json_fields.hpp"
#include "io/json_reader.hpp"
#include "io/pack/json_text.hpp"
#include "io/strings.hpp"
#include "io/text/bpe_tokenizer.hpp"
#include "io/text/byte_level_alphabet.hpp"
#include "io/text/tokenizer_files.hpp"
#include "io/text/tokenizer_json_parts.hpp"

namespace espalier {
namespace {

using Json = nlohmann::json;

constexpr std::size_t max_merges = std::size_t{1} << 23;
constexpr std::size_t longest_token = 65536;  // bytes

// `json[key]`, null where there is none.
const Json& part_of(const Json& json, const char* key) {
  static const Json null;
  const auto found = json.find(key);
  return found == json.end() ? null : *found;
}

// Parts of a model that make other tokens, and that no model of today has.
void refuse_unsupported(const Json& model) {
  require_keys(model, "model BPE",
               {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (const Json& dropout = part_of(model, "dropout"); !dropout.is_null() && dropout != 0)
    throw UnsupportedTokenizerPart("model.dropout", dropout.dump(), "null");
  for (const char* const key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const Json& affix = part_of(model, key); !affix.is_null() && affix != Json(""))
      throw UnsupportedTokenizerPart(fmt::format("model.{}", key),
                                     affix.dump(-1, ' ', true, Json::error_handler_t::replace), "null");
}

// The texts of all tokens, as the decoder wants them; and a vocabulary of what words are made of.
struct ReadVocabulary {
  Vocabulary vocabulary;
  std::vector<std::string> texts;
};

std::string decoded_text(const std::string& text, bool bytes) {
  return bytes ? bytes_of_byte_level(text).value_or(text) : text;
}

ReadVocabulary vocabulary_of(const Json& model, bool bytes, bool decodes_bytes) {
  ReadVocabulary read;
  const Json& vocab = object_field(model, "vocab");
  if (vocab.size() > static_cast<std::size_t>(Vocabulary::max_tokens))
    refuse_field("vocab", vocab, fmt::format("at most {} tokens", Vocabulary::max_tokens));
  for (const auto& [text, value] : vocab.items()) {
    const TokenId id = token_id_from(value, "vocab");
    if (text.size() > longest_token)
      throw std::runtime_error(fmt::format("a token of {} bytes, wanted at most {}", text.size(), longest_token));
    set_text(read.texts, id, decoded_text(text, decodes_bytes));
    if (!bytes)
      read.vocabulary.add(text, id);
    else if (std::optional<std::string> in_bytes = bytes_of_byte_level(text))
      read.vocabulary.add(std::move(*in_bytes), id);
  }
  return read;
}

// "a b" or ["a", "b"]
std::pair<std::string_view, std::string_view> merge_of(const Json& json) {
  if (json.is_array() && json.size() == 2 && json[0].is_string() && json[1].is_string())
    return {json[0].get_ref<const std::string&>(), json[1].get_ref<const std::string&>()};
  const std::string_view text = json.is_string() ? json.get_ref<const std::string&>() : std::string_view();
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
    refuse_field("merges", json, "two tokens");
  return {text.substr(0, space), text.substr(space + 1)};
}

std::vector<Bpe::Pair> merges_of(const Json& model, const Vocabulary& vocabulary, bool bytes) {
  const Json& vocab = object_field(model, "vocab");
  std::vector<Bpe::Pair> merges;
  for (const Json& json : list_field(model, "merges", max_merges)) {
    const auto [left, right] = merge_of(json);
    Bpe::Pair pair;
    bool reachable = true;
    for (const auto& [text, id] : {std::pair{left, &pair.first}, std::pair{right, &pair.second}}) {
      const auto found = vocab.find(std::string(text));
      if (found == vocab.end())
        throw std::runtime_error(fmt::format("merge {} has the token {:.60}, which is not in the vocabulary",
                                             merges.size(), printable_line(text)));
      *id = found->get<TokenId>();
      reachable = reachable && (!bytes || vocabulary.contains(*id));
    }
    if (reachable)
      merges.push_back(pair);
  }
  return merges;
}

Bpe bpe_of(const Json& model, ReadVocabulary& read, bool bytes) {
  Bpe::Options options{.bytes = bytes,
                       .byte_fallback = field_or<bool>(model, "byte_fallback", false),
                       .fuse_unknown = field_or<bool>(model, "fuse_unk", false),
                       .ignore_merges = field_or<bool>(model, "ignore_merges", false)};
  if (const Json& unknown = part_of(model, "unk_token"); !unknown.is_null()) {
    const std::string& text = text_from(unknown, "unk_token", longest_token);
    const Json& id = part_of(object_field(model, "vocab"), text.c_str());
    if (id.is_null())
      throw std::runtime_error(
          fmt::format("\"unk_token\" is {:.60}, which is not in the vocabulary", printable_line(text)));
    options.unknown = id.get<TokenId>();
  }
  const std::vector<Bpe::Pair> merges = merges_of(model, read.vocabulary, bytes);
  return {std::move(read.vocabulary), merges, options};
}

AddedToken added_token_of(const Json& json) {
  require_keys(json, "added_tokens", {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  return {.text = field<std::string>(json, "content"),
          .id = token_id_from(any_field(json, "id"), "id"),
          .special = field<bool>(json, "special"),
          .normalized = field<bool>(json, "normalized"),
          .left_strip = field<bool>(json, "lstrip"),
          .right_strip = field<bool>(json, "rstrip"),
          .single_word = field<bool>(json, "single_word")};
}

void add_tokens(const Json& json, const Json& vocab, bool decodes_bytes, BpeParts& parts) {
  Index next = static_cast<Index>(vocab.size());
  for (const Json& entry : list_field(json, "added_tokens")) {
    AddedToken token = added_token_of(entry);
    if (token.text.empty() || parts.added_tokens.find(token.text) != nullptr)
      throw std::runtime_error(
          fmt::format("\"added_tokens\" has {:.60} twice, or an empty one", printable_line(token.text)));
    // `tokenizers` gives ids itself, whatever the file says.
    const Json& in_vocab = part_of(vocab, token.text.c_str());
    const Index id = in_vocab.is_null() ? next++ : in_vocab.get<Index>();
    if (id != token.id)
      throw UnsupportedTokenizerPart("added_tokens",
                                     fmt::format("the id {} of {:.60}", token.id, printable_line(token.text)),
                                     fmt::format("{}, as the vocabulary gives it", id));
    std::string text = token.normalized ? parts.normalizer.apply(token.text) : token.text;
    set_text(parts.texts, token.id, decoded_text(text, decodes_bytes));
    parts.added_tokens.add(std::move(token), std::move(text));
  }
}

BpeParts parts_from(const Json& json) {
  require_keys(json, "the file",
               {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                "decoder", "model"});
  for (const char* const key : {"truncation", "padding"})
    if (const Json& part = part_of(json, key); !part.is_null())
      throw UnsupportedTokenizerPart(key, json_text(part).substr(0, 60), "null: Espalier cuts and fills no texts");
  const Json& model = object_field(json, "model");
  if (const std::string type = field_or<std::string>(model, "type", "BPE"); type != "BPE")
    throw UnsupportedTokenizerPart("model", type, "BPE");
  refuse_unsupported(model);
  PreTokenizer pre_tokenizer;
  const bool bytes = read_pre_tokenizer(part_of(json, "pre_tokenizer"), pre_tokenizer);
  TextDecoder decoder;
  read_text_decoder(part_of(json, "decoder"), decoder);
  const bool decodes_bytes = decoder.is_byte_level();
  ReadVocabulary read = vocabulary_of(model, bytes, decodes_bytes);
  BpeParts parts{.bpe = bpe_of(model, read, bytes)};
  parts.texts = std::move(read.texts);
  parts.pre_tokenizer = std::move(pre_tokenizer);
  parts.decoder = std::move(decoder);
  read_normalizer(part_of(json, "normalizer"), parts.normalizer);
  if (json.contains("added_tokens"))
    add_tokens(json, object_field(model, "vocab"), decodes_bytes, parts);
  read_post_processor(part_of(json, "post_processor"), parts.prefix, parts.suffix);
  for (const std::vector<TokenId>& ids : {parts.prefix, parts.suffix})
    for (const TokenId id : ids)
      if (id >= std::ssize(parts.texts))
        throw std::runtime_error(fmt::format("\"post_processor\" has the id {}, which no token has", id));
  parts.contents = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  return parts;
}

}  // namespace

bool is_tokenizer_json(std::string_view begin) {
  if (begin.starts_with("\xef\xbb\xbf"))  // a byte order mark
    begin.remove_prefix(3);
  const std::size_t first = begin.find_first_not_of(json_white_space);
  return first != std::string_view::npos && begin[first] == '{';
}

std::unique_ptr<Tokenizer> read_tokenizer_json(const Path& path) {
  const std::string text = read_file(path, ExitCode::data, LargestFile::tokenizer);
  const auto refuse = [&](const std::string& where, const std::string& got) {
    throw Error(ExitCode::data, {.what = "a tokenizer.json cannot be read",
                                 .where = where,
                                 .got = got,
                                 .wanted = "a file that `tokenizers` of Hugging Face has saved",
                                 .todo = "download the file from the model's repository again"});
  };
  try {
    return std::make_unique<BpeTokenizer>(parts_from(parse_json(text)));
  } catch (const UnsupportedTokenizerPart& part) {
    throw Error(ExitCode::data,
                {.what = "a part of a tokenizer.json is not supported",
                 .where = fmt::format("{}, {}", path.string(), part.what()),
                 .got = part.got(),
                 .wanted = part.wanted(),
                 .todo = "pack the text with the Python package `tokenizers`, or use another tokenizer"});
  } catch (const JsonError& error) {
    refuse(position_in(path, text, error.byte()), error.what());
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    refuse(path.string(), error.what());
  }
  return nullptr;
}

}  // namespace espalier
