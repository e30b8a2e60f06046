// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text/text_decoder.hpp"

#include <charconv>
#include <optional>

#include "io/text/byte_level_alphabet.hpp"
#include "io/text/normalizer.hpp"
#include "io/text/utf8.hpp"

namespace espalier {
namespace {

using Texts = std::vector<std::string>;

std::string joined(const Texts& texts) {
  std::string all;
  for (const std::string& text : texts)
    all += text;
  return all;
}

// The byte of "<0x0A>".
std::optional<char> fallback_byte(const std::string& text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>')
    return std::nullopt;
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, byte, 16);
  return error == std::errc() && end == text.data() + 5 ? std::optional(static_cast<char>(byte)) : std::nullopt;
}

// Bytes that are no UTF-8 together are U+FFFD each.
void put_bytes(std::string& bytes, Texts& texts) {
  if (bytes.empty())
    return;
  if (valid_utf8_bytes(bytes) == bytes.size())
    texts.push_back(bytes);
  else
    texts.insert(texts.end(), bytes.size(), std::string(replacement_character));
  bytes.clear();
}

Texts without_fallback(Texts texts) {
  Texts result;
  std::string bytes;
  for (std::string& text : texts) {
    if (const std::optional<char> byte = fallback_byte(text)) {
      bytes += *byte;
    } else {
      put_bytes(bytes, result);
      result.push_back(std::move(text));
    }
  }
  put_bytes(bytes, result);
  return result;
}

}  // namespace

void TextDecoder::add_byte_level() {
  byte_level_ = true;
  steps_.emplace_back([](Texts texts) {
    std::string bytes;
    for (const std::string& text : texts)
      bytes += bytes_of_byte_level(text).value_or(text);
    return Texts{replace_invalid_utf8(bytes)};
  });
}

void TextDecoder::add_byte_fallback() { steps_.emplace_back(without_fallback); }

void TextDecoder::add_fuse() {
  steps_.emplace_back([](const Texts& texts) { return Texts{joined(texts)}; });
}

void TextDecoder::add_strip(std::string character, std::size_t left, std::size_t right) {
  steps_.emplace_back([character = std::move(character), left, right](Texts texts) {
    for (std::string& text : texts) {
      for (std::size_t i = 0; i < left && text.starts_with(character); ++i)
        text.erase(0, character.size());
      for (std::size_t i = 0; i < right && text.ends_with(character); ++i)
        text.resize(text.size() - character.size());
    }
    return texts;
  });
}

void TextDecoder::add_replace(Regex pattern, std::string by) {
  steps_.emplace_back([pattern = std::make_shared<Regex>(std::move(pattern)), by = std::move(by)](Texts texts) {
    for (std::string& text : texts)
      text = replace_matches(text, *pattern, by);
    return texts;
  });
}

void TextDecoder::add_metaspace(std::string mark, bool prepended) {
  steps_.emplace_back([mark = std::move(mark), prepended](Texts texts) {
    for (std::size_t i = 0; i < texts.size(); ++i) {
      std::string text;
      for (std::size_t at = 0; at < texts[i].size();) {
        const std::size_t next = std::min(texts[i].find(mark, at), texts[i].size());
        text.append(texts[i], at, next - at);
        if (next < texts[i].size() && !(prepended && i == 0))
          text += ' ';
        at = next < texts[i].size() ? next + mark.size() : next;
      }
      texts[i] = std::move(text);
    }
    return texts;
  });
}

std::string TextDecoder::decode(std::vector<std::string> texts) const {
  for (const auto& step : steps_)
    texts = step(std::move(texts));
  return joined(texts);
}

}  // namespace espalier
