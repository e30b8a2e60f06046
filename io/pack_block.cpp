// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack_block.hpp"

#include <algorithm>
#include <cstring>

#include "io/json_line.hpp"
#include "io/text_parts.hpp"

namespace espalier {
namespace {

void encode(std::string_view text, const Tokenizer& tokenizer, const PackOptions& options, PackedDocuments& side) {
  const std::size_t before = side.tokens.size();
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at, most_part_bytes(tokenizer));
    const std::size_t size = part_bytes(tokenizer, rest, at + rest.size() < text.size());
    tokenizer.encode(
        rest.substr(0, size), side.tokens,
        {.add_special_tokens = options.add_special_tokens, .is_begin = at == 0, .is_end = at + size == text.size()});
    at += size;
  }
  if (side.tokens.size() == before)
    return;
  if (options.document_end >= 0)
    side.tokens.push_back(options.document_end);
  side.ends.push_back(side.tokens.size());
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
    if (text.find_first_not_of(" \t\r") == std::string_view::npos)
      continue;
    if (const auto found = reader.text(text))
      visit(*found, whole_document(*found));
    else
      bad_lines.push_back({line, reader.fault()});
  }
  return bad_lines;
}

PackedBlock pack_block(const TextBlock& block, const Tokenizer& tokenizer, const PackOptions& options,
                       const ValidationSplit* split) {
  PackedBlock packed;
  packed.bad_lines = for_each_document(block, options.key, [&](std::string_view text, const Document& document) {
    const auto read = [&](Index offset, char* data, std::size_t size) {
      std::memcpy(data, text.data() + offset, size);
    };
    const Index tail = split == nullptr ? document.end : tail_begin(read, document, split->tail(document));
    const auto part = [&](Index begin, Index end) {
      return text.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    };
    encode(part(document.begin, tail), tokenizer, options, packed.train);
    encode(part(tail, document.end), tokenizer, options, packed.validation);
    packed.documents.push_back(document);
    packed.text_bytes += document.size();
    if (!document.has_text())
      return;
    packed.train.has_text |= tail > document.text_begin;
    packed.validation.has_text |= tail < document.text_end;
    packed.num_validation_documents += tail == document.begin ? 1 : 0;
    packed.num_cut_documents += tail > document.begin && tail < document.end ? 1 : 0;
  });
  return packed;
}

}  // namespace espalier
