// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/packer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <thread>

#include "core/printable_text.hpp"
#include "io/pack/input_files.hpp"
#include "io/pack/plain_text.hpp"
#include "io/pack/text_parts.hpp"
#include "io/text/utf8.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

std::size_t bytes_with_tokens(std::size_t bytes) { return 2 * bytes; }  // which need about as much

Index threads_for(const Tokenizer& tokenizer, const PackOptions& options) {
  if (tokenizer.can_split_anywhere() && options.key.empty())  // no work: reading and writing take longer
    return 1;
  return options.num_threads > 0 ? options.num_threads : std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace

Packer::Packer(const std::vector<Path>& files, const Tokenizer& tokenizer, const Path& output,
               const Path& validation_output, const PackOptions& options)
    : files_(files),
      tokenizer_(tokenizer),
      output_(output),
      validation_output_(validation_output),
      options_(options),
      split_(options.seed, options.validation_fraction),
      splits_(!validation_output.empty()),
      warnings_(options) {
  for (const Path& path : files)
    if (!is_standard_input(path))
      all_bytes_ += static_cast<Index>(InputFile(path, ExitCode::data).size());
}

PackSummary Packer::run() {
  try {
    return pack();
  } catch (const Error& error) {
    if (!keep_for_later())
      throw;
    ErrorReport report = error.report();
    report.todo += (report.todo.empty() ? "" : "; then ") + std::string("the same command continues where it was");
    throw Error(error.code(), report);
  } catch (...) {
    keep_for_later();
    throw;
  }
}

bool Packer::keep_for_later() {
  if (!is_resumable_ || !journal_ || !journal_->is_written())
    return false;
  journal_->keep();
  train_->keep();
  if (validation_)
    validation_->keep();
  return true;
}

PackSummary Packer::pack() {
  for (const Path& path : {output_, validation_output_})
    if (path.has_parent_path())
      make_directories(path.parent_path());
  if (!std::ranges::any_of(files_, is_standard_input))
    journal_.emplace(output_, pack_identity(tokenizer_, validation_output_, options_), files_,
                     options_.journal_interval);
  work_.emplace(threads_for(tokenizer_, options_));
  const bool resumes = journal_ && journal_->left();
  if (resumes) {
    state_ = *journal_->left();
    file_state_ = journal_->file_state();
    state_.summary.resumed_bytes = state_.summary.text_bytes;
    split_.settle(state_.split);
  } else if (splits_) {
    survey();
    state_.split = split_.settled();
  }
  open_outputs();
  is_resumable_ = true;
  const std::size_t first = state_.file;
  const TextPosition begin = state_.position;
  files_before_ = 0;
  for (std::size_t file = 0; file < files_.size(); ++file) {
    if (file >= first)
      read_file(file, file == first ? begin : TextPosition(), false, [&](TextBlock& block, Index file_bytes) {
        const bool continues = file == first && block.begin.offset == begin.offset;
        if (block.long_document)
          add_long_document(file, block, continues ? begin.offset_in_document : 0, file_bytes);
        else
          add_block(file, block, file_bytes);
      });
    if (!is_standard_input(files_[file]))
      files_before_ += static_cast<Index>(InputFile(files_[file], ExitCode::data).size());
  }
  work_->drain();
  is_resumable_ = false;
  require_text();
  PackSummary summary = state_.summary;
  summary.num_files = static_cast<Index>(files_.size());
  summary.train_tokens = train_->num_tokens();
  summary.validation_tokens = validation_ ? validation_->num_tokens() : 0;
  summary.warnings = warnings_.warnings(files_, summary);
  train_->complete();
  if (validation_) {
    validation_->complete();
    validation_->finish();
  }
  train_->finish();
  return summary;
}

// Which documents are there? ValidationSplit chooses among them.
void Packer::survey() {
  files_before_ = 0;
  for (std::size_t file = 0; file < files_.size(); ++file) {
    read_file(file, {}, true, [&](TextBlock& given, Index file_bytes) {
      if (given.long_document) {
        const Document document = given.long_document->document;
        work_->add([] {}, [this, document] { split_.add(document); });
        return;
      }
      const auto block = std::make_shared<TextBlock>(std::move(given));
      const auto documents = std::make_shared<std::vector<Document>>();
      const auto bad_lines = std::make_shared<std::vector<BadLine>>();
      work_->add(
          [this, block, documents, bad_lines] {
            *bad_lines = for_each_document(*block, options_.key, [&](std::string_view, const Document& document) {
              documents->push_back(document);
            });
            block->bytes = {};
          },
          [this, documents, bad_lines, file, file_bytes] {
            add_bad_lines(*bad_lines, file, true);
            for (const Document& document : *documents)
              split_.add(document);
            report_progress(file_bytes, true);
          });
    });
    files_before_ += static_cast<Index>(InputFile(files_[file], ExitCode::data).size());
  }
  work_->drain();
  split_.settle();
}

void Packer::open_outputs() {
  const bool resumes = journal_ && journal_->left();
  const auto open = [&](std::optional<TokenFileWriter>& writer, const Path& path,
                        const TokenFileWriter::Progress& progress) {
    if (resumes)
      writer.emplace(path, tokenizer_.name(), tokenizer_.vocab_size(), progress);
    else
      writer.emplace(path, tokenizer_.name(), tokenizer_.vocab_size());
  };
  open(train_, output_, state_.train);
  if (splits_)
    open(validation_, validation_output_, state_.validation);
}

void Packer::read_file(std::size_t file, const TextPosition& begin, bool is_survey, const VisitBlock& visit) {
  const Path& path = files_[file];
  const std::unique_ptr<ByteSource> source = open_bytes(path);
  source->skip(begin.offset);
  const std::unique_ptr<TextReader> reader =
      read_text(*source, begin, options_.key, options_.document_separator, output_.parent_path());
  const std::string first_bytes(reader->first_bytes());
  if (is_checked() && begin.offset == 0)
    require_plain_text(path, first_bytes, 0);
  line_ = begin.line;
  TextBlock block;
  while (reader->next(block)) {
    if (is_checked())
      require_plain_text(path, block.bytes, block.begin.offset);
    visit(block, files_before_ + source->file_bytes());
  }
  if (!is_survey && begin.offset == 0)
    warnings_.add(input_name(path), first_bytes, reader->num_separators());
}

// Of plain text the reader has not counted the lines.
Index Packer::count_lines(std::string_view text) {
  line_ += std::count(text.begin(), text.end(), '\n');
  return line_;
}

void Packer::add_block(std::size_t file, TextBlock& block, Index file_bytes) {
  if (options_.key.empty()) {
    block.begin.line = line_;
    block.end.line = count_lines(block.bytes);
  }
  const std::size_t bytes = bytes_with_tokens(block.bytes.size());
  const auto taken = std::make_shared<TextBlock>(std::move(block));
  const auto packed = std::make_shared<PackedBlock>();
  work_->add(
      [this, taken, packed] {
        *packed = pack_block(*taken, tokenizer_, options_, splits_ ? &split_ : nullptr);
        taken->bytes = {};
      },
      [this, taken, packed, file, file_bytes] {
        begin_file(file);
        finish_block(*packed, file);
        finished_to(file, taken->end, file_bytes);
      },
      bytes);
}

void Packer::finish_block(const PackedBlock& packed, std::size_t file) {
  add_bad_lines(packed.bad_lines, file, false);
  append(packed.train, *train_);
  if (splits_)
    append(packed.validation, *validation_);
  for (const Document& document : packed.documents) {
    warnings_.add(document);
    state_.summary.num_documents += document.has_text() ? 1 : 0;
  }
  state_.summary.text_bytes += packed.text_bytes;
  state_.summary.num_validation_documents += packed.num_validation_documents;
  state_.summary.num_cut_documents += packed.num_cut_documents;
  state_.has_train_text |= packed.train.has_text;
  state_.has_validation_text |= packed.validation.has_text;
}

void Packer::append(const PackedDocuments& documents, TokenFileWriter& writer) {
  std::size_t begin = 0;
  for (const std::size_t end : documents.ends) {
    writer.append(std::span(documents.tokens).subspan(begin, end - begin));
    writer.end_document();
    begin = end;
  }
}

// Part by part: the first of it may train, and the rest validate. The first `done` bytes are written already.
void Packer::add_long_document(std::size_t file, const TextBlock& block, Index done, Index file_bytes) {
  const bool is_plain = options_.key.empty();
  const Document document = block.long_document->document;
  const ReadAt& read = block.long_document->read;
  const Index tail = splits_ ? tail_begin(read, document, split_.tail(document)) : document.end;
  for (Index at = document.begin + done; at < document.end;) {
    const bool is_validation = at >= tail;
    const Index begin = is_validation ? tail : document.begin;
    const Index end = is_validation ? document.end : tail;
    auto text =
        std::make_shared<std::string>(std::min(max_part_bytes(tokenizer_), static_cast<std::size_t>(end - at)), '\0');
    read(at, text->data(), text->size());
    if (is_checked())
      require_plain_text(files_[file], *text, at);
    text->resize(part_bytes(tokenizer_, *text, at + static_cast<Index>(text->size()) < end));
    const Index size = static_cast<Index>(text->size());
    const EncodeOptions options{options_.add_special_tokens, at == begin, at + size == end};
    at += size;
    TextPosition position = block.begin;
    TextPosition after = block.end;
    const Index line = line_;
    if (is_plain)
      position.line = after.line = count_lines(*text);
    position.offset_in_document = at - document.begin;
    const auto tokens = std::make_shared<std::vector<TokenId>>();
    const auto bad_lines = std::make_shared<std::vector<BadLine>>();
    work_->add(
        [this, text, tokens, bad_lines, options, line, is_plain] {
          if (is_plain && !options_.allow_binary && valid_utf8_bytes(*text) < text->size())
            *text = without_bad_lines(*text, line, *bad_lines);
          tokenizer_.encode(*text, *tokens, options);
          *text = {};
        },
        [=, this] {
          begin_file(file);
          add_bad_lines(*bad_lines, file, false);
          TokenFileWriter& to = writer(is_validation);
          to.append(*tokens);
          if (options.is_end && to.has_open_document()) {
            if (options_.document_end >= 0)
              to.append(std::array{options_.document_end});
            to.end_document();
          }
          (is_validation ? state_.has_validation_text : state_.has_train_text) |=
              document.has_text() && !tokens->empty();
          state_.summary.text_bytes += size;
          if (at == document.end) {
            warnings_.add(document);
            state_.summary.num_documents += document.has_text() ? 1 : 0;
            state_.summary.num_validation_documents += tail == document.begin ? 1 : 0;
            state_.summary.num_cut_documents += tail > document.begin && tail < document.end ? 1 : 0;
          }
          finished_to(file, at == document.end ? after : position, file_bytes);
        },
        bytes_with_tokens(static_cast<std::size_t>(size)));
  }
}

void Packer::add_bad_lines(const std::vector<BadLine>& lines, std::size_t file, bool is_survey) {
  for (const auto& [line, fault] : lines) {
    const std::string where = fmt::format("{}:{}", input_name(files_[file]), line);
    if (!options_.skip_bad && options_.key.empty())
      throw Error(ExitCode::data, {.what = "a line is not UTF-8",
                                   .where = where,
                                   .got = fault.reason,
                                   .wanted = "text in UTF-8",
                                   .todo = "convert the file (Latin-1: iconv -f ISO-8859-1 -t UTF-8 IN >OUT); or skip "
                                           "such lines: --skip-bad; or accept any bytes: --allow-binary"});
    if (!options_.skip_bad)
      throw Error(
          ExitCode::data,
          {.what = fault.lacks_key ? "a line does not have the key of the text" : "a line is not JSON with a text",
           .where = where,
           .got = fault.lacks_key
                      ? fmt::format("{}; the line has {}", fault.reason, fault.keys.empty() ? "no keys" : fault.keys)
                      : fault.reason,
           .wanted = fmt::format("a JSON object in UTF-8, with a string under \"{}\"", options_.key),
           .todo = fault.lacks_key ? "name the key of the text: --key KEY; --skip-bad skips such lines"
                                   : "correct the line; --skip-bad skips such lines"});
    if (is_survey)
      continue;
    every_bad_line_lacks_key_ = every_bad_line_lacks_key_ && fault.lacks_key;
    if (state_.summary.num_bad_lines++ == 0) {
      state_.summary.first_bad_line = fmt::format("{}: {}", where, fault.reason);
      keys_ = fault.keys;
    }
  }
}

// Where a file that is fixed later begins.
void Packer::begin_file(std::size_t file) {
  if (!journal_ || splits_ || file_state_.file == file)
    return;
  file_state_ = state_;
  file_state_.file = file;
  file_state_.position = {};
  file_state_.train = train_->progress();
}

void Packer::finished_to(std::size_t file, const TextPosition& position, Index file_bytes) {
  state_.file = file;
  state_.position = position;
  report_progress(file_bytes, false);
  if (!journal_ || !journal_->is_due())
    return;
  state_.train = train_->sync();
  if (validation_)
    state_.validation = validation_->sync();
  journal_->write(state_, file_state_);
}

void Packer::report_progress(Index file_bytes, bool is_survey) {
  if (options_.progress)
    options_.progress(
        {.bytes = file_bytes,
         .all_bytes = all_bytes_,
         .num_tokens = is_survey ? 0 : train_->num_tokens() + (validation_ ? validation_->num_tokens() : 0),
         .is_survey = is_survey});
}

// What else there is to change, of what was given.
std::string Packer::remedies() const {
  std::string text;
  if (splits_)
    text += fmt::format(", or a --validation-fraction {} than {}", state_.has_train_text ? "above" : "below",
                        options_.validation_fraction);
  if (!options_.document_separator.empty())
    text += ", or another --document-separator";
  if (!options_.key.empty() && state_.summary.num_documents == 0)
    text += fmt::format(": no line has a text that is not empty under \"{}\"", options_.key);
  return text;
}

void Packer::require_text() {
  const PackSummary& summary = state_.summary;
  if (summary.num_documents == 0 && summary.num_bad_lines > 0 && every_bad_line_lacks_key_)
    throw Error(ExitCode::data,
                {.what = "no line has the key of the text",
                 .where = summary.first_bad_line,
                 .got = fmt::format("{} without it; the first has {}", counted(summary.num_bad_lines, "line"),
                                    keys_.empty() ? "no keys" : keys_),
                 .wanted = fmt::format("\"{}\"", options_.key),
                 .todo = "name the key of the text: --key KEY"});
  if (state_.has_train_text && (!splits_ || state_.has_validation_text))
    return;
  throw Error(ExitCode::data,
              {.what = state_.has_train_text ? "no text is left for validation" : "no text is left for training",
               .got = fmt::format("{}, {} with text, {}{}", counted(static_cast<Index>(files_.size()), "file"),
                                  counted(summary.num_documents, "document"), counted(summary.text_bytes, "byte"),
                                  summary.num_bad_lines == 0
                                      ? ""
                                      : fmt::format(", {} left out ({})", counted(summary.num_bad_lines, "line"),
                                                    summary.first_bad_line)),
               .todo = "give more text" + remedies()});
}

}  // namespace espalier
