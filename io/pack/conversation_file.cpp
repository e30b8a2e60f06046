// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/conversation_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "core/error.hpp"

namespace espalier {
namespace {

constexpr Index bytes_aside = sizeof(TokenId) + sizeof(std::uint8_t);  // of a token

}  // namespace

ConversationFile::ConversationFile(const Path& path, const Tokenizer& tokenizer, Index sequence_length, TokenId padding)
    : path_(path),
      sequence_length_(sequence_length),
      padding_(padding),
      writer_(path, tokenizer.name(), tokenizer.vocab_size()),
      aside_(followed(path).parent_path()) {}

void ConversationFile::add(ConversationTokens conversation) {
  auto& [tokens, loss_mask] = conversation;
  if (sequence_length_ > 0 && std::ssize(tokens) > sequence_length_) {
    tokens.resize(static_cast<std::size_t>(sequence_length_));
    loss_mask.resize(tokens.size());
    if (std::ranges::count(loss_mask, 1) == 0) {
      ++summary_.num_left_out;
      return;
    }
    ++summary_.num_cut;
  }
  if (sequence_length_ > 0) {
    put_aside(conversation);
  } else {
    writer_.append(tokens, loss_mask);
    writer_.end_document();
  }
  ++summary_.num_conversations;
  summary_.num_tokens += std::ssize(tokens);
  summary_.num_targets += std::ranges::count(loss_mask, 1);
}

void ConversationFile::require_conversations() const {
  if (summary_.num_conversations == 0)
    throw Error(
        ExitCode::data,
        {.what = "no conversation is left for a token file",
         .where = path_.string(),
         .got = summary_.num_left_out > 0 ? "only conversations whose answers begin after the end of a row" : "none",
         .wanted = "at least one",
         .todo = "give more conversations, a longer --sequence-length, or another validation "
                 "fraction"});
}

void ConversationFile::complete() {
  if (sequence_length_ > 0)
    write_rows();
  writer_.complete();
}

void ConversationFile::put_aside(const ConversationTokens& conversation) {
  constexpr std::size_t max_unwritten = std::size_t{1} << 20;
  const auto& [tokens, loss_mask] = conversation;
  unwritten_.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(TokenId));
  unwritten_.append(reinterpret_cast<const char*>(loss_mask.data()), loss_mask.size());
  begins_.push_back(begins_.back() + std::ssize(tokens));
  if (unwritten_.size() < max_unwritten)
    return;
  aside_.append(unwritten_);
  unwritten_.clear();
}

void ConversationFile::write_rows() {
  aside_.append(unwritten_);
  std::vector<Index> lengths;
  for (std::size_t i = 1; i < begins_.size(); ++i)
    lengths.push_back(begins_[i] - begins_[i - 1]);
  const std::vector<std::vector<Index>> rows = best_fit_rows(lengths, sequence_length_);
  summary_.num_rows = std::ssize(rows);

  writer_.set_row_length(sequence_length_);
  ConversationTokens part;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    Index free_tokens = sequence_length_;
    for (const Index conversation : rows[row]) {
      const auto at = static_cast<std::size_t>(conversation);
      free_tokens -= lengths[at];
      part.tokens.resize(static_cast<std::size_t>(lengths[at]));
      part.loss_mask.resize(part.tokens.size());
      const Index offset = bytes_aside * begins_[at];
      const auto token_bytes = part.tokens.size() * sizeof(TokenId);
      aside_.read_at(offset, reinterpret_cast<char*>(part.tokens.data()), token_bytes);
      aside_.read_at(offset + static_cast<Index>(token_bytes), reinterpret_cast<char*>(part.loss_mask.data()),
                     part.loss_mask.size());
      writer_.append(part.tokens, part.loss_mask);
      if (conversation != rows[row].back())
        writer_.end_document();
    }
    // Behind the last row stands one token more: what the loader reads as target of the row's last one.
    const auto rest = static_cast<std::size_t>(free_tokens + (row + 1 == rows.size() ? 1 : 0));
    part.tokens.assign(rest, padding_);
    part.loss_mask.assign(rest, 0);
    writer_.append(part.tokens, part.loss_mask);
    writer_.end_document();
  }
}

std::vector<std::vector<Index>> best_fit_rows(std::span<const Index> lengths, Index capacity) {
  std::vector<Index> order(lengths.size());
  std::iota(order.begin(), order.end(), Index{0});
  const auto length_of = [&](Index document) { return lengths[static_cast<std::size_t>(document)]; };
  std::ranges::stable_sort(order, std::ranges::greater(), length_of);

  std::vector<std::vector<Index>> rows;
  std::map<Index, std::vector<std::size_t>> by_free_tokens;  // rows by how many tokens they have free
  for (const Index document : order) {
    const Index length = length_of(document);
    ESPALIER_ASSERT(length > 0 && length <= capacity, fmt::format("{} tokens fit no row of {}", length, capacity));
    const auto best = by_free_tokens.lower_bound(length);
    std::size_t row = rows.size();
    Index free_tokens = capacity;
    if (best == by_free_tokens.end()) {
      rows.emplace_back();
    } else {
      free_tokens = best->first;
      row = best->second.back();
      best->second.pop_back();
      if (best->second.empty())
        by_free_tokens.erase(best);
    }
    rows[row].push_back(document);
    if (free_tokens > length)
      by_free_tokens[free_tokens - length].push_back(row);
  }
  return rows;
}

}  // namespace espalier
