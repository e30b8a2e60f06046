// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/records/stop_texts.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace espalier {

StopTexts::StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {
  ESPALIER_ASSERT(std::ranges::none_of(texts_, &std::string::empty), "an empty text stands everywhere");
}

std::string StopTexts::write(std::string_view piece) {
  if (found_)
    return {};
  held_ += piece;
  std::size_t end = std::string::npos;
  std::size_t begin = 0;
  for (const std::string& text : texts_)
    if (const std::size_t at = held_.find(text); at != std::string::npos)
      if (at + text.size() < end || (at + text.size() == end && at < begin)) {
        end = at + text.size();
        begin = at;
      }
  if (end != std::string::npos) {
    found_ = true;
    held_.resize(begin);
    return std::exchange(held_, {});
  }
  std::size_t kept = 0;  // bytes at the end that may be the beginning of a text, the longest such
  for (const std::string& text : texts_)
    for (std::size_t size = std::min(text.size() - 1, held_.size()); size > kept; --size)
      if (held_.ends_with(std::string_view(text).substr(0, size)))
        kept = size;
  std::string known = held_.substr(0, held_.size() - kept);
  held_.erase(0, held_.size() - kept);
  return known;
}

std::string StopTexts::finish() { return std::exchange(held_, {}); }

}  // namespace espalier
