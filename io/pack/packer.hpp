// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "io/pack/ordered_work.hpp"
#include "io/pack/pack_block.hpp"
#include "io/pack/pack_journal.hpp"
#include "io/pack/pack_warnings.hpp"
#include "io/tokens/token_file.hpp"

namespace espalier {

/// The work of pack_text(). One thread reads texts block by block; others encode blocks; the first writes their tokens
/// in order.
class Packer {
 public:
  /// All outlive this.
  Packer(const std::vector<Path>& files, const Tokenizer& tokenizer, const Path& output, const Path& validation_output,
         const PackOptions& options);
  PackSummary run();

 private:
  using VisitBlock = std::function<void(TextBlock& block, Index file_bytes)>;

  PackSummary pack();
  bool keep_for_later();
  bool is_checked() const { return !options_.allow_binary && options_.key.empty(); }  // for zero bytes
  void survey();
  void open_outputs();
  void read_file(std::size_t file, const TextPosition& begin, bool is_survey, const VisitBlock& visit);
  Index count_lines(std::string_view text);
  void add_block(std::size_t file, TextBlock& block, Index file_bytes);
  void add_long_document(std::size_t file, const TextBlock& block, Index done, Index file_bytes);
  void append(const PackedDocuments& documents, TokenFileWriter& writer);
  void finish_block(const PackedBlock& packed, std::size_t file);
  void add_bad_lines(const std::vector<BadLine>& lines, std::size_t file, bool is_survey);
  void begin_file(std::size_t file);
  void finished_to(std::size_t file, const TextPosition& position, Index file_bytes);
  void report_progress(Index file_bytes, bool is_survey);
  void require_text();
  std::string remedies() const;
  TokenFileWriter& writer(bool is_validation) { return is_validation ? *validation_ : *train_; }

  const std::vector<Path>& files_;
  const Tokenizer& tokenizer_;
  Path output_;
  Path validation_output_;
  const PackOptions& options_;
  Index all_bytes_ = 0;     // of the files; 0: not known
  Index files_before_ = 0;  // bytes of the files that were read
  ValidationSplit split_;
  bool splits_;
  PackWarnings warnings_;
  PackState state_;            // of what is written
  PackState file_state_;       // of what was, where the file begins that is packed now; without validation
  Index line_ = 1;             // of plain text, that is read next
  bool is_resumable_ = false;  // with what is written
  std::optional<PackJournal> journal_;
  std::optional<TokenFileWriter> train_;
  std::optional<TokenFileWriter> validation_;
  std::string keys_;  // of the first line that lacks the key
  bool every_bad_line_lacks_key_ = true;
  std::optional<OrderedWork> work_;  // last: it ends before the others go
};

}  // namespace espalier
