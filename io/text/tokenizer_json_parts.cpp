// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text/tokenizer_json_parts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "io/json_fields.hpp"
#include "io/pack/json_text.hpp"
#include "io/text/utf8.hpp"
#include "io/text/vocabulary.hpp"

namespace espalier {
namespace {

using Json = nlohmann::json;

constexpr std::size_t longest_strip = 1000;  // characters
constexpr std::size_t max_steps = 1000;

// {"String": " "} or {"Regex": "\\s+"}
Regex pattern_field(const Json& json, const std::string& part) {
  const Json& pattern = object_field(json, "pattern");
  require_keys(pattern, part + ".pattern", {"String", "Regex"});
  if (pattern.size() != 1)
    refuse_field("pattern", pattern, "either \"String\" or \"Regex\"");
  if (pattern.contains("String"))
    return {field<std::string>(pattern, "String"), RegexDialect::plain_text};
  try {
    return {field<std::string>(pattern, "Regex", Regex::longest_pattern), RegexDialect::oniguruma};
  } catch (const UnsupportedPattern& unsupported) {
    throw UnsupportedTokenizerPart(part + ".pattern", unsupported.what(), "a pattern without it");
  }
}

// One character.
std::string character_field(const Json& json, const char* key) {
  std::string text = field<std::string>(json, key);
  if (text.empty() || character_bytes(text) != text.size())
    refuse_field(key, json.at(key), "one character");
  return text;
}

void read_steps(const Json& json, const char* key, const std::string& part, const auto& read) {
  require_keys(json, part, {"type", key});
  for (const Json& step : list_field(json, key, max_steps))
    read(step);
}

SplitBehavior behavior_field(const Json& json) {
  const std::string name = field<std::string>(json, "behavior");
  if (name == "Removed")
    return SplitBehavior::removed;
  if (name == "Isolated")
    return SplitBehavior::isolated;
  if (name == "MergedWithPrevious")
    return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext")
    return SplitBehavior::merged_with_next;
  if (name == "Contiguous")
    return SplitBehavior::contiguous;
  throw UnsupportedTokenizerPart("pre_tokenizer.behavior", name,
                                 "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

MetaspaceStep metaspace_of(const Json& json, const std::string& part) {
  require_keys(json, part, {"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
  MetaspaceStep step{.mark = character_field(json, "replacement"), .split = field_or<bool>(json, "split", true)};
  const std::string scheme = field_or<std::string>(json, "prepend_scheme", "always");
  if (scheme != "first" && scheme != "never" && scheme != "always")
    throw UnsupportedTokenizerPart(part + ".prepend_scheme", scheme, "first, never or always");
  step.prepend = scheme == "first"    ? MetaspaceStep::Prepend::first
                 : scheme == "always" ? MetaspaceStep::Prepend::always
                                      : MetaspaceStep::Prepend::never;
  if (!field_or<bool>(json, "add_prefix_space", true)) {
    if (json.contains("prepend_scheme") && scheme != "never")
      throw std::runtime_error("\"add_prefix_space\" is false, and \"prepend_scheme\" is " + scheme);
    step.prepend = MetaspaceStep::Prepend::never;
  }
  return step;
}

constexpr const char* gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Regex rust_pattern(const char* pattern) { return {pattern, RegexDialect::fancy_regex}; }

void read_pre_tokenizer_step(const Json& json, PreTokenizer& pre_tokenizer, bool& bytes) {
  const std::string type = type_of(json);
  const std::string part = "pre_tokenizer " + type;
  if (bytes)
    throw UnsupportedTokenizerPart(part, "after ByteLevel", "ByteLevel as the last step");
  if (type == "Sequence") {
    read_steps(json, "pretokenizers", part,
               [&](const Json& step) { read_pre_tokenizer_step(step, pre_tokenizer, bytes); });
  } else if (type == "ByteLevel") {
    require_keys(json, part, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    if (field_or<bool>(json, "add_prefix_space", true))
      pre_tokenizer.add(PrefixSpaceStep{});
    if (field_or<bool>(json, "use_regex", true))
      pre_tokenizer.add(SplitStep{rust_pattern(gpt2_pattern)});
    bytes = true;
  } else if (type == "Split") {
    require_keys(json, part, {"type", "pattern", "behavior", "invert"});
    pre_tokenizer.add(SplitStep{pattern_field(json, part), behavior_field(json), field<bool>(json, "invert")});
  } else if (type == "Metaspace") {
    pre_tokenizer.add(metaspace_of(json, part));
  } else if (type == "Digits") {
    require_keys(json, part, {"type", "individual_digits"});
    pre_tokenizer.add(SplitStep{rust_pattern(R"(\p{N})"), field<bool>(json, "individual_digits")
                                                              ? SplitBehavior::isolated
                                                              : SplitBehavior::contiguous});
  } else if (type == "Punctuation") {
    require_keys(json, part, {"type", "behavior"});
    pre_tokenizer.add(SplitStep{rust_pattern(R"([!-/:-@\[-`{-~\p{P}])"),
                                json.contains("behavior") ? behavior_field(json) : SplitBehavior::isolated});
  } else if (type == "Whitespace") {
    require_keys(json, part, {"type"});
    pre_tokenizer.add(
        SplitStep{rust_pattern(R"([\w\x{200C}\x{200D}]+|[^\w\x{200C}\x{200D}\s]+)"), SplitBehavior::removed, true});
  } else if (type == "WhitespaceSplit") {
    require_keys(json, part, {"type"});
    pre_tokenizer.add(SplitStep{rust_pattern(R"(\s)"), SplitBehavior::removed});
  } else if (type == "CharDelimiterSplit") {
    require_keys(json, part, {"type", "delimiter"});
    pre_tokenizer.add(
        SplitStep{Regex(character_field(json, "delimiter"), RegexDialect::plain_text), SplitBehavior::removed});
  } else {
    throw UnsupportedTokenizerPart(
        "pre_tokenizer", type,
        "Sequence, ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit or "
        "CharDelimiterSplit");
  }
}

}  // namespace

void require_keys(const Json& json, const std::string& part, std::initializer_list<std::string_view> keys) {
  if (!json.is_object())
    throw std::runtime_error(fmt::format("{} is {:.40}, wanted an object", part, json_text(json)));
  for (const auto& [key, value] : json.items())
    if (std::ranges::find(keys, key) == keys.end())
      throw UnsupportedTokenizerPart(part, fmt::format("the key {:.60}", json_text(Json(key))),
                                     fmt::format("{}", fmt::join(keys, ", ")));
}

TokenId token_id_from(const Json& value, const char* key) {
  return value_from<TokenId>(value, key, IntegerRange{0, Vocabulary::max_tokens - 1});
}

std::string type_of(const Json& json) { return field<std::string>(json, "type"); }

void read_normalizer(const Json& json, Normalizer& normalizer) {
  if (json.is_null())
    return;
  const std::string type = type_of(json);
  const std::string part = "normalizer " + type;
  if (type == "Sequence") {
    read_steps(json, "normalizers", part, [&](const Json& step) { read_normalizer(step, normalizer); });
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    require_keys(json, part, {"type"});
    normalizer.add_form(type == "NFC"    ? Normalizer::Form::nfc
                        : type == "NFD"  ? Normalizer::Form::nfd
                        : type == "NFKC" ? Normalizer::Form::nfkc
                                         : Normalizer::Form::nfkd,
                        true);
  } else if (type == "Lowercase") {
    require_keys(json, part, {"type"});
    normalizer.add_lower_case();
  } else if (type == "Prepend") {
    require_keys(json, part, {"type", "prepend"});
    normalizer.add_prepend(field<std::string>(json, "prepend"));
  } else if (type == "Replace") {
    require_keys(json, part, {"type", "pattern", "content"});
    normalizer.add_replace(pattern_field(json, part), field<std::string>(json, "content"));
  } else if (type == "Strip") {
    require_keys(json, part, {"type", "strip_left", "strip_right"});
    normalizer.add_strip(field<bool>(json, "strip_left"), field<bool>(json, "strip_right"));
  } else {
    throw UnsupportedTokenizerPart("normalizer", type,
                                   "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace or Strip");
  }
}

bool read_pre_tokenizer(const Json& json, PreTokenizer& pre_tokenizer) {
  bool bytes = false;
  if (!json.is_null())
    read_pre_tokenizer_step(json, pre_tokenizer, bytes);
  return bytes;
}

void read_text_decoder(const Json& json, TextDecoder& decoder) {
  if (json.is_null())
    return;
  const std::string type = type_of(json);
  const std::string part = "decoder " + type;
  if (type == "Sequence") {
    read_steps(json, "decoders", part, [&](const Json& step) { read_text_decoder(step, decoder); });
  } else if (type == "ByteLevel") {
    require_keys(json, part, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    decoder.add_byte_level();
  } else if (type == "ByteFallback") {
    require_keys(json, part, {"type"});
    decoder.add_byte_fallback();
  } else if (type == "Fuse") {
    require_keys(json, part, {"type"});
    decoder.add_fuse();
  } else if (type == "Strip") {
    require_keys(json, part, {"type", "content", "start", "stop"});
    const IntegerRange range{0, longest_strip};
    decoder.add_strip(character_field(json, "content"), field<std::size_t>(json, "start", range),
                      field<std::size_t>(json, "stop", range));
  } else if (type == "Replace") {
    require_keys(json, part, {"type", "pattern", "content"});
    decoder.add_replace(pattern_field(json, part), field<std::string>(json, "content"));
  } else if (type == "Metaspace") {
    const MetaspaceStep step = metaspace_of(json, part);
    decoder.add_metaspace(step.mark, step.prepend != MetaspaceStep::Prepend::never);
  } else {
    throw UnsupportedTokenizerPart("decoder", type,
                                   "Sequence, ByteLevel, ByteFallback, Fuse, Strip, Replace or Metaspace");
  }
}

}  // namespace espalier
