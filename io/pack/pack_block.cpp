// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/pack_block.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "io/pack/json_text_scanner.hpp"
#include "io/pack/text_parts.hpp"
#include "io/strings.hpp"
#include "io/text/utf8.hpp"

namespace espalier {
namespace {

// @returns whether there was anything to encode
bool encode(std::string_view text, const Tokenizer& tokenizer, const PackOptions& options, PackedDocuments& side) {
  const std::size_t before = side.tokens.size();
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at, max_part_bytes(tokenizer));
    const std::size_t size = part_bytes(tokenizer, rest, at + rest.size() < text.size());
    tokenizer.encode(
        rest.substr(0, size), side.tokens,
        {.add_special_tokens = options.add_special_tokens, .is_begin = at == 0, .is_end = at + size == text.size()});
    at += size;
  }
  if (side.tokens.size() == before)
    return false;
  if (options.document_end >= 0)
    side.tokens.push_back(options.document_end);
  side.ends.push_back(side.tokens.size());
  return true;
}

}  // namespace

std::vector<BadLine> for_each_document(const TextBlock& block, const std::string& key,
                                       const std::function<void(std::string_view text, const Document&)>& visit) {
  if (key.empty()) {
    for (const Document& document : block.documents)
      visit(block.bytes, document);
    return {};
  }
  std::vector<BadLine> bad_lines;
  if (block.fault)
    bad_lines.push_back({block.begin.line, block.fault});
  JsonLineReader reader(key);
  Index line = block.begin.line;
  for (std::string_view rest = block.bytes; !rest.empty(); ++line) {
    const std::size_t size = std::min(rest.find('\n'), rest.size());
    const std::string_view text = rest.substr(0, size);
    rest.remove_prefix(std::min(size + 1, rest.size()));
    if (text.find_first_not_of(json_white_space) == std::string_view::npos)
      continue;
    if (const auto found = reader.text(text))
      visit(*found, whole_document(*found));
    else
      bad_lines.push_back({line, reader.fault()});
  }
  return bad_lines;
}

std::string without_bad_lines(std::string_view text, Index line, std::vector<BadLine>& bad_lines) {
  std::string good;
  for (; !text.empty(); ++line) {
    const std::size_t size = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::size_t valid = valid_utf8_bytes(text.substr(0, size));
    if (valid == size)
      good += text.substr(0, size);
    else
      bad_lines.push_back({line, {.reason = fmt::format("not UTF-8 at byte {} of the line", valid + 1)}});
    text.remove_prefix(size);
  }
  return good;
}

PackedBlock pack_block(const TextBlock& block, const Tokenizer& tokenizer, const PackOptions& options,
                       const ValidationSplit* split) {
  PackedBlock packed;
  const bool is_bad =
      options.key.empty() && !options.allow_binary && valid_utf8_bytes(block.bytes) < block.bytes.size();
  std::vector<BadLine> bad_lines;
  Index line = block.begin.line;
  Index line_offset = 0;  // behind which it was counted
  packed.bad_lines = for_each_document(block, options.key, [&](std::string_view text, const Document& document) {
    const auto read = [&](Index offset, char* data, std::size_t size) {
      std::memcpy(data, text.data() + offset, size);
    };
    const Index tail = split == nullptr ? document.end : tail_begin(read, document, split->tail(document));
    const auto encode_part = [&](Index begin, Index end, PackedDocuments& side) {
      const std::string_view part = text.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
      if (!is_bad)
        return encode(part, tokenizer, options, side);
      line += std::count(text.begin() + line_offset, text.begin() + begin, '\n');
      line_offset = begin;
      return encode(without_bad_lines(part, line, bad_lines), tokenizer, options, side);
    };
    const bool trains = encode_part(document.begin, tail, packed.train);
    const bool validates = encode_part(tail, document.end, packed.validation);
    packed.text_bytes += document.size();
    if (is_bad && !trains && !validates)
      return;
    packed.documents.push_back(document);
    if (!document.has_text())
      return;
    packed.train.has_text |= trains && tail > document.text_begin;
    packed.validation.has_text |= validates && tail < document.text_end;
    packed.num_validation_documents += tail == document.begin ? 1 : 0;
    packed.num_cut_documents += tail > document.begin && tail < document.end ? 1 : 0;
  });
  packed.bad_lines.insert(packed.bad_lines.end(), bad_lines.begin(), bad_lines.end());
  return packed;
}

}  // namespace espalier
