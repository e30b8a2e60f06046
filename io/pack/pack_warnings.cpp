// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/pack_warnings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/printable_text.hpp"
#include "io/pack/file_kind.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

constexpr std::size_t max_hashes = std::size_t{1} << 20;
constexpr const char* usual_separator = "<|endoftext|>";
constexpr Index few_tokens = 1025;  // a sequence of a usual length and its last target

// With its control characters as they are written in programs.
std::string escaped(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// "\n" and its like, written out, as the characters that they stand for.
std::string unescaped(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t known =
        text[i] == '\\' && i + 1 < text.size() ? std::string("nrt\\").find(text[i + 1]) : std::string::npos;
    result += known == std::string::npos ? text[i] : "\n\r\t\\"[known];
    i += known == std::string::npos ? 0 : 1;
  }
  return result;
}

// With the ends of lines that Windows writes.
std::string with_crlf(const std::string& text) {
  std::string result;
  for (const char c : text)
    result += c == '\n' ? std::string("\r\n") : std::string(1, c);
  return result;
}

Index occurrences(const std::vector<Path>& files, const std::string& separator) {
  Index count = 0;
  for (const Path& path : files)
    if (!is_standard_input(path))
      count += for_each_document(*open_bytes(path), separator, [](const Document&) {});
  return count;
}

std::string absent_separator(const std::string& separator, const std::vector<Path>& files) {
  std::string text =
      fmt::format("the document separator {} does not occur: every file is one document", escaped(separator));
  std::string meant = unescaped(separator);
  for (const std::string& candidate : {meant, with_crlf(meant)})
    if (candidate != separator)
      if (const Index count = occurrences(files, candidate); count > 0) {
        std::string quoted;
        for (const char c : escaped(candidate).substr(1, escaped(candidate).size() - 2))
          quoted += c == '\'' ? std::string("\\'") : std::string(1, c);
        return fmt::format("{}; {} occurs {}: in bash it is written --document-separator $'{}'", text,
                           escaped(candidate), counted(count, "time"), quoted);
      }
  return text;
}

}  // namespace

void PackWarnings::Some::add(const Path& path) {
  if (count++ == 0)
    first = path;
}

std::string PackWarnings::Some::text() const {
  return count == 1 ? first.string() : fmt::format("{} (the first is {})", counted(count, "file"), first.string());
}

void PackWarnings::add(const Document& document) {
  if (document.has_text() && hashes_.size() < max_hashes)
    hashes_.push_back(document.hash);
}

void PackWarnings::add(const Path& path, std::string_view begin, Index num_separators) {
  num_separators_ += num_separators;
  if (begin.empty())
    empty_.add(path);
  if (begin.empty() || !options_.key.empty())
    return;
  if (options_.allow_binary && !is_utf8(begin.substr(0, begin.find_last_of('\n') + 1)))
    not_utf8_.add(path);
  if (options_.document_separator.empty() && begin.find(usual_separator) != std::string::npos)
    separated_.add(path);
  if (const auto kind = marked_up_kind(begin)) {
    marked_up_.add(path);
    markup_ = kind->name;
    what_to_do_ = kind->todo;
  }
}

void PackWarnings::warn_of_copies(std::vector<std::string>& warnings) {
  std::sort(hashes_.begin(), hashes_.end());
  const auto different = std::unique(hashes_.begin(), hashes_.end()) - hashes_.begin();
  const Index copies = static_cast<Index>(hashes_.size()) - different;
  if (copies > 0)
    warnings.push_back(fmt::format("{} of {} are copies of others; copies of a document go to the same side", copies,
                                   hashes_.size() == max_hashes
                                       ? fmt::format("the first {} documents", max_hashes)
                                       : counted(static_cast<Index>(hashes_.size()), "document")));
}

std::vector<std::string> PackWarnings::warnings(const std::vector<Path>& files, const PackSummary& summary) {
  std::vector<std::string> warnings;
  if (empty_.count > 0)
    warnings.push_back("without text: " + empty_.text());
  if (marked_up_.count > 0)
    warnings.push_back(fmt::format("{} is packed as plain text, with its markup and field names: {}; {}", markup_,
                                   marked_up_.text(), what_to_do_));
  if (not_utf8_.count > 0)
    warnings.push_back(
        fmt::format("not UTF-8, so characters beyond ASCII become other bytes than in UTF-8: {}; if it is "
                    "Latin-1: iconv -f ISO-8859-1 -t UTF-8 IN >OUT",
                    not_utf8_.text()));
  if (summary.num_bad_lines > 0)
    warnings.push_back(fmt::format("left out: {}, the first is {}", counted(summary.num_bad_lines, "bad line"),
                                   summary.first_bad_line));
  if (options_.key.empty() && !options_.document_separator.empty() && num_separators_ == 0 &&
      summary.resumed_bytes == 0)
    warnings.push_back(absent_separator(options_.document_separator, files));
  if (separated_.count > 0)
    warnings.push_back(fmt::format("{} is in {}, which becomes one document: --document-separator '{}' splits it",
                                   usual_separator, separated_.text(), usual_separator));
  warn_of_copies(warnings);
  if (options_.validation_fraction == 0)
    return warnings;
  const double share = summary.validation_share();
  if (std::abs(share - options_.validation_fraction) > 0.1 * options_.validation_fraction)
    warnings.push_back(fmt::format(
        "validation has {:.3g} % of the tokens instead of {:.3g} %: there are too few documents, or too short ones",
        100 * share, 100 * options_.validation_fraction));
  for (const auto& [name, tokens] :
       {std::pair{"validation", summary.validation_tokens}, std::pair{"training", summary.train_tokens}})
    if (tokens < few_tokens)
      warnings.push_back(fmt::format("{} has only {}; `espalier train` needs at least batch.sequence_length + 1", name,
                                     counted(tokens, "token")));
  return warnings;
}

}  // namespace espalier
