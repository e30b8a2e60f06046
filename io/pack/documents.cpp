// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/documents.hpp"

#include <algorithm>

#include "io/strings.hpp"

namespace espalier {
namespace {

constexpr std::size_t piece_of_text = 1 << 20;

}  // namespace

void OpenDocument::add(std::string_view text) {
  const std::size_t first = text.find_first_not_of(ascii_white_space);
  const std::size_t last = text.find_last_not_of(ascii_white_space);
  if (first == std::string_view::npos) {
    space_ += document_.has_text() ? text : std::string_view();
  } else {
    if (!document_.has_text())
      document_.text_begin = document_.end + static_cast<Index>(first);
    const std::string_view more =
        document_.has_text() ? text.substr(0, last + 1) : text.substr(first, last + 1 - first);
    hasher_.update(space_.data(), space_.size());
    hasher_.update(more.data(), more.size());
    space_ = text.substr(last + 1);
    document_.text_end = document_.end + static_cast<Index>(last + 1);
  }
  if (space_.size() > piece_of_text) {  // a copy of this document has it, too
    hasher_.update(space_.data(), space_.size());
    space_.clear();
  }
  document_.end += static_cast<Index>(text.size());
}

Document OpenDocument::close(Index end) {
  document_.end = end;
  document_.hash = hasher_.xxh3_64();
  return document_;
}

DocumentSplitter::DocumentSplitter(std::string separator, std::function<void(const Document&)> visit)
    : separator_(std::move(separator)), visit_(std::move(visit)) {}

void DocumentSplitter::add(std::string_view piece) {
  text_.append(piece);
  std::string_view rest = text_;
  for (std::size_t found; !separator_.empty() && (found = rest.find(separator_)) != std::string_view::npos;) {
    open_.add(rest.substr(0, found));
    rest.remove_prefix(found + separator_.size());
    ++num_separators_;
    offset_ += static_cast<Index>(found + separator_.size());
    hold(open_.close(offset_));
    open_ = OpenDocument(offset_);
  }
  // What may be the beginning of a separator waits for the next piece.
  const std::size_t kept = separator_.empty() ? 0 : std::min(separator_.size() - 1, rest.size());
  open_.add(rest.substr(0, rest.size() - kept));
  offset_ += static_cast<Index>(rest.size() - kept);
  text_.erase(0, text_.size() - kept);
  if (open_.has_text() && held_ && held_->has_text())
    release();
}

void DocumentSplitter::finish() {
  open_.add(text_);
  offset_ += static_cast<Index>(text_.size());
  text_.clear();
  const Document last = open_.close(offset_);
  if (last.size() > 0)
    hold(last);
  release();
}

void DocumentSplitter::hold(Document document) {
  if (held_ && document.has_text() && held_->has_text())
    release();
  if (held_) {  // one of the two has no text, and belongs to the other
    const Index begin = held_->begin;
    const Index end = document.end;
    if (held_->has_text())
      document = *held_;
    document.begin = begin;
    document.end = end;
  }
  held_ = document;
}

void DocumentSplitter::release() {
  if (held_)
    visit_(*held_);
  held_.reset();
}

Document whole_document(std::string_view text) {
  OpenDocument document(0);
  document.add(text);
  return document.close(static_cast<Index>(text.size()));
}

Index for_each_document(ByteSource& source, const std::string& separator,
                        const std::function<void(const Document&)>& visit) {
  DocumentSplitter splitter(separator, visit);
  std::string piece(piece_of_text, '\0');
  while (const std::size_t size = source.read(piece.data(), piece.size()))
    splitter.add(std::string_view(piece).substr(0, size));
  splitter.finish();
  return splitter.num_separators();
}

}  // namespace espalier
