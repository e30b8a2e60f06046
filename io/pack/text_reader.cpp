// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/text_reader.hpp"

#include <algorithm>

#include "io/pack/json_text_scanner.hpp"

namespace espalier {
namespace {

constexpr std::size_t block_bytes = std::size_t{1} << 20;
constexpr std::size_t text_piece_bytes = std::size_t{1} << 18;

// The bytes of a source that have been read and not been handed over.
class Buffer {
 public:
  explicit Buffer(ByteSource& source) : source_(source) { bytes_.reserve(whole_document_bytes + 2 * text_piece_bytes); }

  // The new bytes; empty at the end.
  std::string_view read_more() {
    const std::size_t before = bytes_.size();
    bytes_.resize(before + text_piece_bytes);
    const std::size_t got = source_.read(bytes_.data() + before, text_piece_bytes);
    bytes_.resize(before + got);
    is_ended_ = got < text_piece_bytes;
    return std::string_view(bytes_).substr(before);
  }
  std::string take(std::size_t size) {
    std::string taken = bytes_.substr(0, size);
    bytes_.erase(0, size);
    return taken;
  }
  std::string_view first_bytes() {
    if (bytes_.empty() && !is_ended_)
      read_more();
    return bytes_;
  }
  std::string& bytes() { return bytes_; }
  bool is_ended() const { return is_ended_; }

 private:
  ByteSource& source_;
  std::string bytes_;
  bool is_ended_ = false;
};

constexpr Index byte_order_mark_bytes = 3;

// @returns whether the text began with one
bool skip_byte_order_mark(Buffer& buffer) {
  if (!buffer.first_bytes().starts_with("\xef\xbb\xbf"))
    return false;
  buffer.bytes().erase(0, byte_order_mark_bytes);
  return true;
}

class PlainReader : public TextReader {
 public:
  PlainReader(ByteSource& source, const TextPosition& begin, const std::string& separator, const Path& directory)
      : source_(source),
        buffer_(source),
        begin_(begin.offset),
        read_(begin.offset),
        splitter_begin_(begin.offset),
        spool_(directory),
        splitter_(separator, [this](Document document) {
          for (Index* const offset : {&document.begin, &document.end, &document.text_begin, &document.text_end})
            *offset += splitter_begin_;
          closed_.push_back(document);
        }) {}

  Index num_separators() const override { return splitter_.num_separators(); }
  std::string_view first_bytes() override { return buffer_.first_bytes(); }

  bool next(TextBlock& block) override {
    block = {};
    if (read_ == 0 && skip_byte_order_mark(buffer_))
      begin_ = read_ = splitter_begin_ = byte_order_mark_bytes;
    block.begin.offset = begin_;
    if (is_aside_ && read_ - begin_ <= static_cast<Index>(whole_document_bytes))
      take_back();
    if (!is_aside_) {
      while (!is_ended_ && closed_bytes() < block_bytes && buffer_.bytes().size() <= whole_document_bytes)
        read_more();
      if (!closed_.empty()) {
        take_closed(block);
        return true;
      }
      if (is_ended_)
        return false;
      is_aside_ = true;
      aside_begin_ = begin_;
      put_aside();
    }
    while (closed_.empty() && !is_ended_) {
      read_more();
      put_aside();
    }
    if (closed_.empty())
      return false;
    begin_ = closed_.front().end;
    block.long_document = {closed_.front(),
                           [this](Index offset, char* data, std::size_t size) { read_aside(offset, data, size); }};
    block.end.offset = begin_;
    closed_.pop_front();
    return true;
  }

 private:
  std::size_t closed_bytes() const {
    return closed_.empty() ? 0 : static_cast<std::size_t>(closed_.back().end - begin_);
  }

  void read_more() {
    // What was looked at by first_bytes() comes first.
    const std::string_view more = read_ == begin_ && !buffer_.bytes().empty() ? buffer_.bytes() : buffer_.read_more();
    read_ += static_cast<Index>(more.size());
    splitter_.add(more);
    is_ended_ = buffer_.is_ended();
    if (is_ended_)
      splitter_.finish();
  }

  void take_closed(TextBlock& block) {
    for (Document document : closed_) {
      for (Index* const offset : {&document.begin, &document.end, &document.text_begin, &document.text_end})
        *offset -= begin_;
      block.documents.push_back(document);
    }
    block.bytes = buffer_.take(closed_bytes());
    begin_ = closed_.back().end;
    block.end.offset = begin_;
    closed_.clear();
  }

  // A file can be read again at its offsets; anything else is copied.
  void put_aside() {
    if (source_.plain_file() == nullptr)
      spool_.append(buffer_.bytes());
    buffer_.bytes().clear();
  }
  void read_aside(Index offset, char* data, std::size_t size) const {
    if (const InputFile* const file = source_.plain_file())
      file->read_at(static_cast<std::size_t>(offset), data, size);
    else
      spool_.read_at(offset - aside_begin_, data, size);
  }
  void take_back() {
    buffer_.bytes().resize(static_cast<std::size_t>(read_ - begin_));
    read_aside(begin_, buffer_.bytes().data(), buffer_.bytes().size());
    spool_.clear();
    is_aside_ = false;
  }

  ByteSource& source_;
  Buffer buffer_;                // from begin_ on, where not aside
  Index begin_;                  // of what was not handed over, in the text
  Index read_;                   // the text up to here
  Index splitter_begin_;         // the offset of its first byte
  std::deque<Document> closed_;  // from begin_ on
  bool is_aside_ = false;        // all from begin_ to read_
  Index aside_begin_ = 0;
  bool is_ended_ = false;
  SpoolFile spool_;
  DocumentSplitter splitter_;
};

class JsonLinesReader : public TextReader {
 public:
  JsonLinesReader(ByteSource& source, const TextPosition& begin, std::string key, const Path& directory)
      : buffer_(source), position_(begin), key_(std::move(key)), spool_(directory) {}

  std::string_view first_bytes() override { return buffer_.first_bytes(); }

  bool next(TextBlock& block) override {
    block = {};
    if (position_.offset == 0 && skip_byte_order_mark(buffer_))
      position_.offset = byte_order_mark_bytes;
    block.begin = position_;
    std::size_t end = last_line_end();
    while (!buffer_.is_ended() && (end == 0 || buffer_.bytes().size() < block_bytes) &&
           buffer_.bytes().size() <= whole_document_bytes) {
      buffer_.read_more();
      end = last_line_end();
    }
    if (buffer_.is_ended())
      end = buffer_.bytes().size();
    if (end == 0 && buffer_.bytes().empty())
      return false;
    if (end == 0) {
      read_long_line(block);
    } else {
      position_.line +=
          std::count(buffer_.bytes().begin(), buffer_.bytes().begin() + static_cast<std::ptrdiff_t>(end), '\n');
      position_.offset += static_cast<Index>(end);
      block.bytes = buffer_.take(end);
      block.bytes.append(JsonLineReader::readable_bytes, '\n');  // empty lines
    }
    block.end = position_;
    return true;
  }

 private:
  std::size_t last_line_end() {
    const std::size_t found = buffer_.bytes().rfind('\n');
    return found == std::string::npos ? 0 : found + 1;
  }

  // A line that does not fit in memory: its text goes to a file.
  void read_long_line(TextBlock& block) {
    spool_.clear();
    OpenDocument document(0);
    std::string text;
    const auto put_aside = [&] {
      spool_.append(text);
      document.add(text);
      text.clear();
    };
    JsonTextScanner scanner(key_, [&](std::string_view part) {
      text += part;
      if (text.size() >= text_piece_bytes)
        put_aside();
    });
    for (;;) {
      const std::size_t found = buffer_.bytes().find('\n');
      const std::size_t size = std::min(found, buffer_.bytes().size());
      scanner.add(std::string_view(buffer_.bytes()).substr(0, size));
      const std::size_t taken = found == std::string::npos ? size : size + 1;
      buffer_.bytes().erase(0, taken);
      position_.offset += static_cast<Index>(taken);
      if (found != std::string::npos || buffer_.is_ended())
        break;
      buffer_.read_more();
    }
    put_aside();
    ++position_.line;
    block.fault = scanner.finish();
    if (!block.fault)
      block.long_document = {document.close(spool_.size()), [this](Index offset, char* data, std::size_t size) {
                               spool_.read_at(offset, data, size);
                             }};
  }

  Buffer buffer_;
  TextPosition position_;
  std::string key_;
  SpoolFile spool_;
};

}  // namespace

std::unique_ptr<TextReader> read_text(ByteSource& source, const TextPosition& begin, const std::string& key,
                                      const std::string& separator, const Path& directory) {
  if (key.empty())
    return std::make_unique<PlainReader>(source, begin, separator, directory);
  return std::make_unique<JsonLinesReader>(source, begin, key, directory);
}

}  // namespace espalier
