// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/printable_text.hpp"
#include "io/documents.hpp"
#include "io/file_kind.hpp"
#include "io/input_files.hpp"
#include "io/pack_notes.hpp"
#include "io/pack_outputs.hpp"
#include "io/parallel_encoder.hpp"
#include "io/token_file.hpp"
#include "io/units.hpp"
#include "io/validation_split.hpp"

namespace espalier {
namespace {

// Encoded at a time: of a text that may be cut anywhere, and of a document that is better encoded whole.
constexpr std::size_t local_piece_bytes = std::size_t{1} << 20;
constexpr std::size_t whole_document_bytes = std::size_t{4} << 20;

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Where a text that goes on is cut: behind a line, if possible one whose end stands alone between characters that are
// no spaces, so that no word of most tokenizers goes over the cut. Never within a character.
std::size_t cut_of(std::string_view text) {
  for (std::size_t at = text.size() - 1; at > text.size() / 2; --at)
    if (text[at - 1] == '\n' && !is_space(text[at - 2]) && !is_space(text[at]))
      return at;
  const std::size_t line_end = text.rfind('\n');
  return line_end == std::string::npos ? text.size() - unfinished_bytes(text) : line_end + 1;
}

// Reads documents, and has them encoded. Neighbours that go to the same side are one text where that makes no
// difference.
class Side {
 public:
  Side(const InputFile& file, bool joins, bool add_special_tokens, ParallelEncoder& encoder)
      : file_(file), joins_(joins), add_special_tokens_(add_special_tokens), encoder_(encoder) {}
  void add(Index end, TokenFileWriter& writer) {
    if (&writer != writer_ || !joins_)
      flush();
    writer_ = &writer;
    end_ = end;
  }
  void flush() {
    for (const Index begin = begin_; writer_ != nullptr && begin_ < end_;) {
      const std::size_t most = joins_ ? local_piece_bytes : whole_document_bytes;
      std::string text(std::min(most, static_cast<std::size_t>(end_ - begin_)), '\0');
      file_.read_at(static_cast<std::size_t>(begin_), text.data(), text.size());
      if (begin_ + static_cast<Index>(text.size()) < end_ && !joins_)
        text.resize(cut_of(text));
      EncodeOptions options{.add_special_tokens = add_special_tokens_, .is_begin = begin_ == begin};
      begin_ += static_cast<Index>(text.size());
      options.is_end = begin_ == end_;
      encoder_.add(std::move(text), options, *writer_);
    }
  }

 private:
  const InputFile& file_;
  bool joins_;
  bool add_special_tokens_;
  ParallelEncoder& encoder_;
  TokenFileWriter* writer_ = nullptr;
  Index begin_ = 0;
  Index end_ = 0;
};

void check_text(const InputFile& file) {
  const std::string bytes = first_bytes(file);
  const std::optional<FileKind> kind = marked_kind(bytes);
  const std::size_t zero = bytes.find('\0');
  if (!kind && zero == std::string::npos)
    return;
  throw Error(ExitCode::data,
              {.what = "a file to pack is not text",
               .where = file.path().string(),
               .got = kind ? kind->name : fmt::format("a zero byte at offset {}", zero),
               .wanted = "plain text",
               .todo = fmt::format("{}leave it out: --exclude '{}'; or take it: --allow-binary",
                                   kind ? kind->todo + "; or " : "", as_pattern(file.path().filename().string()))});
}

}  // namespace

PackSummary pack_text(const std::vector<Path>& files, const Tokenizer& tokenizer, const Path& output,
                      const Path& validation_output, const PackOptions& options) {
  check_validation_fraction(options.validation_fraction, validation_output);
  check_pack_outputs(files, output, validation_output);

  PackSummary summary;
  ValidationSplit split(options.seed, options.validation_fraction);
  PackNotes notes(options);
  for (const Path& path : files) {
    const InputFile file(path, ExitCode::data);
    if (!options.allow_binary)
      check_text(file);
    const Index num_separators = for_each_document(file, options.document_separator, [&](const Document& document) {
      summary.num_documents += document.has_text() ? 1 : 0;
      split.see(document);
      notes.see(document);
    });
    ++summary.num_files;
    summary.text_bytes += static_cast<Index>(file.size());
    notes.see(file, num_separators);
  }
  split.settle();

  for (const Path& path : {output, validation_output})
    if (path.has_parent_path())
      make_directories(path.parent_path());
  TokenFileWriter train(output, tokenizer.name(), tokenizer.vocab_size());
  std::optional<TokenFileWriter> validation;
  if (!validation_output.empty())
    validation.emplace(validation_output, tokenizer.name(), tokenizer.vocab_size());

  ParallelEncoder encoder(tokenizer, options.num_threads);
  bool has_train_text = false;
  bool has_validation_text = false;
  for (const Path& path : files) {
    const InputFile file(path, ExitCode::data);
    Side side(file, tokenizer.is_local(), options.add_special_tokens, encoder);
    for_each_document(file, options.document_separator, [&](const Document& document) {
      const Index tail = tail_begin(file, document, split.tail(document));
      if (tail > document.begin)
        side.add(tail, train);
      if (tail < document.end)
        side.add(document.end, *validation);
      has_train_text = has_train_text || (document.has_text() && tail > document.text_begin);
      has_validation_text = has_validation_text || (document.has_text() && tail < document.text_end);
      summary.num_validation_documents += document.has_text() && tail == document.begin ? 1 : 0;
      summary.num_cut_documents += tail > document.begin && tail < document.end ? 1 : 0;
    });
    side.flush();
  }
  encoder.flush();
  if (!has_train_text || (validation && !has_validation_text))
    throw Error(ExitCode::data,
                {.what = has_train_text ? "no text is left for validation" : "no text is left for training",
                 .got = fmt::format("{}, {} with text, {}", counted(summary.num_files, "file"),
                                    counted(summary.num_documents, "document"), counted(summary.text_bytes, "byte")),
                 .todo = "give more text, or change the validation fraction or the document separator"});
  summary.train_tokens = train.num_tokens();
  summary.validation_tokens = validation ? validation->num_tokens() : 0;
  summary.warnings = notes.warnings(files, summary);
  train.finish();
  if (validation)
    validation->finish();
  return summary;
}

}  // namespace espalier
