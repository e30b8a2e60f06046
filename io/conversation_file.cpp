// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/conversation_file.hpp"

#include <algorithm>

#include "io/best_fit.hpp"

namespace espalier {

ConversationFile::ConversationFile(const Path& path, const Tokenizer& tokenizer, Index sequence_length, TokenId padding)
    : path_(path),
      tokenizer_(tokenizer.name()),
      vocab_size_(tokenizer.vocab_size()),
      sequence_length_(sequence_length),
      padding_(padding),
      unsorted_(sequence_length > 0 ? Path(path.string() + ".conversations") : Path()),
      begins_{0} {
  if (sequence_length > 0)
    require_own_output(unsorted_, token_file_mark);
  writer_.emplace(sequence_length > 0 ? unsorted_ : path, tokenizer_, vocab_size_);
}

ConversationFile::~ConversationFile() {
  std::error_code ignored;
  if (!unsorted_.empty() && !writer_)
    std::filesystem::remove(unsorted_, ignored);
}

void ConversationFile::add(ConversationTokens conversation) {
  auto& [tokens, counts] = conversation;
  if (sequence_length_ > 0 && std::ssize(tokens) > sequence_length_) {
    tokens.resize(static_cast<std::size_t>(sequence_length_));
    counts.resize(tokens.size());
    if (std::ranges::count(counts, 1) == 0) {
      ++summary_.num_left_out;
      return;
    }
    ++summary_.num_cut;
  }
  writer_->append(tokens, counts);
  writer_->end_document();
  begins_.push_back(writer_->num_tokens());
  ++summary_.num_conversations;
  summary_.num_tokens += std::ssize(tokens);
  summary_.num_counted += std::ranges::count(counts, 1);
}

void ConversationFile::require_conversations() const {
  if (summary_.num_conversations == 0)
    throw Error(ExitCode::data,
                {.what = "no conversation is left for a token file",
                 .where = path_.string(),
                 .got = summary_.num_left_out > 0 ? "only conversations whose answers lie behind the end "
                                                    "of a row"
                                                  : "none",
                 .wanted = "at least one",
                 .todo = "give more conversations, a longer --sequence-length, or another validation "
                         "fraction"});
}

void ConversationFile::finish() {
  writer_->finish();
  writer_.reset();
  if (sequence_length_ > 0)
    write_rows();
}

void ConversationFile::write_rows() {
  std::vector<Index> lengths;
  for (std::size_t i = 1; i < begins_.size(); ++i)
    lengths.push_back(begins_[i] - begins_[i - 1]);
  const std::vector<std::vector<Index>> rows = best_fit_rows(lengths, sequence_length_);
  summary_.num_rows = std::ssize(rows);

  const TokenFile unsorted(unsorted_);
  TokenFileWriter writer(path_, tokenizer_, vocab_size_);
  writer.set_row_length(sequence_length_);
  ConversationTokens part;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    Index room = sequence_length_;
    for (const Index conversation : rows[row]) {
      const auto at = static_cast<std::size_t>(conversation);
      room -= lengths[at];
      part.tokens.resize(static_cast<std::size_t>(lengths[at]));
      part.counts.resize(part.tokens.size());
      unsorted.read(begins_[at], part.tokens);
      unsorted.read_loss_mask(begins_[at], part.counts);
      writer.append(part.tokens, part.counts);
      if (conversation != rows[row].back())
        writer.end_document();
    }
    // Behind the last row stands one token more: what the loader reads as target of the row's last one.
    const auto rest = static_cast<std::size_t>(room + (row + 1 == rows.size() ? 1 : 0));
    part.tokens.assign(rest, padding_);
    part.counts.assign(rest, 0);
    writer.append(part.tokens, part.counts);
    writer.end_document();
  }
  writer.finish();
}

}  // namespace espalier
