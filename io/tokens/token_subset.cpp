// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/tokens/token_subset.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/random.hpp"
#include "io/tokens/token_documents.hpp"

namespace espalier {

TokenSubset::TokenSubset(TokenFile file, std::optional<TokenId> document_end)
    : file_(std::move(file)), document_end_(document_end), runs_{{}}, num_tokens_(file_.num_tokens()) {}

TokenSubset::TokenSubset(TokenFile file, std::optional<TokenId> document_end, std::vector<DocumentRun> runs,
                         Index num_tokens)
    : file_(std::move(file)), document_end_(document_end), runs_(std::move(runs)), num_tokens_(num_tokens) {}

// Calls visit(first token in the file, its place among those asked for, number) for each run that is touched.
template <class Visit>
void TokenSubset::for_each_piece(Index first, std::size_t size, const Visit& visit) const {
  auto run = std::upper_bound(runs_.begin(), runs_.end(), first,
                              [](Index position, const DocumentRun& next) { return position < next.in_subset; });
  for (std::size_t done = 0; done < size; ++run) {
    const Index position = first + static_cast<Index>(done);
    const DocumentRun& here = *(run - 1);
    const Index run_end = run == runs_.end() ? num_tokens_ : run->in_subset;
    const std::size_t count = std::min(size - done, static_cast<std::size_t>(run_end - position));
    visit(here.in_file + position - here.in_subset, done, count);
    done += count;
  }
}

Index TokenSubset::place_in_file(Index position) const {
  Index place = 0;
  for_each_piece(position, 1, [&](Index in_file, std::size_t, std::size_t) { place = in_file; });
  return place;
}

void TokenSubset::read(Index first, std::span<TokenId> tokens) const {
  for_each_piece(first, tokens.size(), [&](Index in_file, std::size_t at, std::size_t count) {
    file_.read(in_file, tokens.subspan(at, count));
  });
}

void TokenSubset::read_loss_mask(Index first, std::span<std::uint8_t> loss_mask) const {
  for_each_piece(first, loss_mask.size(), [&](Index in_file, std::size_t at, std::size_t count) {
    file_.read_loss_mask(in_file, loss_mask.subspan(at, count));
  });
}

std::vector<std::size_t> TokenSubset::document_starts(Index first, std::span<const TokenId> tokens) const {
  std::vector<std::size_t> starts;
  for_each_piece(first, tokens.size(), [&](Index in_file, std::size_t at, std::size_t count) {
    if (at > 0)
      starts.push_back(at);
    if (file_.states_documents()) {
      for (const Index start : file_.document_starts(in_file, static_cast<Index>(count)))
        starts.push_back(at + static_cast<std::size_t>(start - in_file));
    } else if (document_end_) {
      for (std::size_t t = at + 1; t < at + count; ++t)
        if (tokens[t - 1] == *document_end_)
          starts.push_back(t);
    }
  });
  return starts;
}

std::vector<TokenSubset> whole_files(std::vector<TokenFile> files, std::optional<TokenId> document_end) {
  std::vector<TokenSubset> subsets;
  subsets.reserve(files.size());
  for (TokenFile& file : files)
    subsets.emplace_back(std::move(file), document_end);
  return subsets;
}

DocumentSplit split_documents(const TokenFile& file, std::optional<TokenId> document_end, std::uint64_t seed,
                              std::size_t file_number, double fraction) {
  if (file.info().row_length > 0)
    throw Error(ExitCode::data, {.what = "a token file in rows cannot be split by documents",
                                 .where = file.info().path.string(),
                                 .got = "data.validation_fraction, which would cut its rows",
                                 .wanted = "a validation file of its own",
                                 .todo = "pack the conversations again with --validation and --validation-fraction, "
                                         "and name both files"});
  const RandomStream random(seed, fmt::format("validation_documents/{}", file_number));
  DocumentSplit split;
  std::uint64_t document = 0;
  Index begin = 0;
  const auto add = [&](Index num_tokens) {
    const bool validates = random.uniform(document++) < fraction;
    std::vector<DocumentRun>& runs = validates ? split.validation : split.train;
    Index& size = validates ? split.validation_tokens : split.train_tokens;
    const bool goes_on = !runs.empty() && runs.back().in_file + size - runs.back().in_subset == begin;
    if (!goes_on && num_tokens > 0)
      runs.push_back({begin, size});
    size += num_tokens;
    begin += num_tokens;
  };
  if (file.states_documents()) {
    file.for_each_document(add);
    return split;
  }
  Index length = 0;
  read_documents(file, document_end, [&](std::span<const TokenId> piece, bool ends) {
    length += static_cast<Index>(piece.size());
    if (ends)
      add(std::exchange(length, 0));
  });
  return split;
}

void require_documents(const TokenFile& file, std::optional<TokenId> document_end, const char* key) {
  if (file.states_documents() || document_end)
    return;
  throw Error(ExitCode::data,
              {.what = "a token file does not say where its documents are",
               .where = file.info().path.string(),
               .got = "tokens alone",
               .wanted = fmt::format("documents, for {}", key),
               .todo = "set data.document_end to the token id that ends each document, or pack the text again"});
}

}  // namespace espalier
