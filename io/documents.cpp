// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/documents.hpp"

#include <algorithm>
#include <optional>

#include "io/hash.hpp"

namespace espalier {
namespace {

constexpr std::size_t piece_of_text = 1 << 20;
constexpr std::string_view white_space = " \t\r\n\v\f";

// A document whose end has not been read yet.
class OpenDocument {
 public:
  explicit OpenDocument(Index begin)
      : document_{.begin = begin, .end = begin, .text_begin = begin, .text_end = begin} {}

  void add(std::string_view text) {
    const std::size_t first = text.find_first_not_of(white_space);
    const std::size_t last = text.find_last_not_of(white_space);
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

  Document close(Index end) {
    document_.end = end;
    document_.hash = hasher_.xxh3_64();
    return document_;
  }

 private:
  Document document_;
  Hasher hasher_;
  std::string space_;  // behind the text: hashed when more text follows
};

// Holds a document back until it is known that nothing else belongs to it.
class DocumentQueue {
 public:
  explicit DocumentQueue(const std::function<void(const Document&)>& visit) : visit_(visit) {}

  void add(Document document) {
    if (last_ && (!document.has_text() || !last_->has_text())) {
      const Index begin = last_->begin;
      Document& kept = document.has_text() ? document : *last_;
      kept.end = document.end;
      kept.begin = begin;
      last_ = Document(kept);
      return;
    }
    flush();
    last_ = document;
  }
  void flush() {
    if (last_)
      visit_(*last_);
    last_.reset();
  }

 private:
  const std::function<void(const Document&)>& visit_;
  std::optional<Document> last_;
};

}  // namespace

Index for_each_document(const InputFile& file, const std::string& separator,
                        const std::function<void(const Document&)>& visit) {
  DocumentQueue documents(visit);
  Index num_separators = 0;
  std::string buffer;
  std::size_t offset = 0;  // of the buffer in the file
  std::size_t at = 0;      // in the buffer: where what has not been looked at begins
  OpenDocument open(0);
  for (;;) {
    const std::string_view rest = std::string_view(buffer).substr(at);
    const std::size_t found = separator.empty() ? std::string_view::npos : rest.find(separator);
    if (found != std::string_view::npos) {
      open.add(rest.substr(0, found));
      at += found + separator.size();
      ++num_separators;
      const auto end = static_cast<Index>(offset + at);
      documents.add(open.close(end));
      open = OpenDocument(end);
      continue;
    }
    const bool is_last = offset + buffer.size() == file.size();
    // What may be the beginning of a separator waits for the next piece.
    const std::size_t kept = is_last || separator.empty() ? 0 : std::min(separator.size() - 1, rest.size());
    open.add(rest.substr(0, rest.size() - kept));
    if (is_last)
      break;
    offset += buffer.size() - kept;
    buffer.erase(0, buffer.size() - kept);
    at = 0;
    buffer.resize(kept + std::min(piece_of_text, file.size() - offset - kept));
    file.read_at(offset + kept, buffer.data() + kept, buffer.size() - kept);
  }
  const Document last = open.close(static_cast<Index>(file.size()));
  if (last.size() > 0)
    documents.add(last);
  documents.flush();
  return num_separators;
}

}  // namespace espalier
