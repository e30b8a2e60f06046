// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/tokens/sample_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/random.hpp"
#include "io/tokens/token_documents.hpp"

namespace espalier {
namespace {

[[noreturn]] void refuse_short(const char* what, std::string where, Index num_tokens, Index sequence_length) {
  throw Error(ExitCode::data,
              {.what = what,
               .where = std::move(where),
               .got = fmt::format("{} tokens", num_tokens),
               .wanted = fmt::format("at least {}: batch.sequence_length = {} and the target of its last token",
                                     sequence_length + 1, sequence_length),
               .todo = "shorten batch.sequence_length or pack more text"});
}

void require_rows(const TokenFileInfo& file, const SampleOptions& options) {
  const Index sequence_length = options.sequence_length;
  if (file.row_length == 0)
    return;
  if (file.row_length != sequence_length)
    throw Error(ExitCode::data,
                {.what = "a token file has rows of another length",
                 .where = file.path.string(),
                 .got = fmt::format("rows of {} tokens", file.row_length),
                 .wanted = fmt::format("batch.sequence_length = {}", sequence_length),
                 .todo = fmt::format("set batch.sequence_length to {}, or pack the file with --sequence-length {}",
                                     file.row_length, sequence_length)});
  if (!options.separate_documents)
    throw Error(ExitCode::data, {.what = "the conversations in a row would see each other",
                                 .where = file.path.string(),
                                 .got = "data.documents = \"joined\"",
                                 .wanted = "\"separate\", for a file in rows",
                                 .todo = "set data.documents = \"separate\""});
}

bool is_whole(const TokenSubset& subset) { return subset.num_tokens() == subset.file().num_tokens(); }

}  // namespace

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

Index TokenSubset::position_in_file(Index position) const {
  Index offset = 0;
  for_each_piece(position, 1, [&](Index in_file, std::size_t, std::size_t) { offset = in_file; });
  return offset;
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
               .got = "tokens without documents",
               .wanted = fmt::format("documents, for {}", key),
               .todo = "set data.document_end to the token id that ends each document, or pack the text again"});
}

SampleIndex::SampleIndex(std::vector<TokenSubset> files, const SampleOptions& options)
    : files_(std::move(files)), options_(options) {
  ESPALIER_ASSERT(!files_.empty() && options.sequence_length > 0, "a loader needs files and a sequence length");
  Index total = 0;
  for (const TokenSubset& subset : files_) {
    require_rows(subset.file().info(), options);
    if (is_whole(subset) && subset.num_tokens() <= options.sequence_length)
      refuse_short("a token file is shorter than one sequence", subset.file().info().path.string(), subset.num_tokens(),
                   options.sequence_length);
    total += std::max<Index>(0, subset.num_tokens() - 1) / options.sequence_length;
    last_sample_.push_back(total);
  }
  if (total == 0)
    refuse_short("data.validation_fraction leaves one side less than a sequence",
                 files_.front().file().info().path.string(), num_tokens(), options.sequence_length);
}

Index SampleIndex::num_tokens() const {
  return std::accumulate(files_.begin(), files_.end(), Index{0},
                         [](Index sum, const TokenSubset& subset) { return sum + subset.num_tokens(); });
}

bool SampleIndex::all_targets_count() const {
  return !options_.separate_documents &&
         std::none_of(files_.begin(), files_.end(), [](const TokenSubset& subset) { return subset.has_loss_mask(); });
}

SampleIndex::Window SampleIndex::window(Index sample) const {
  ESPALIER_ASSERT(sample >= 0 && sample < num_samples(),
                  fmt::format("there is no sample {} of {}", sample, num_samples()));
  const auto found = std::upper_bound(last_sample_.begin(), last_sample_.end(), sample);
  const Index first_sample = found == last_sample_.begin() ? 0 : *(found - 1);
  return {&files_[static_cast<std::size_t>(found - last_sample_.begin())],
          (sample - first_sample) * options_.sequence_length};
}

SampleIndex::Location SampleIndex::locate(Index sample) const {
  const Window from = window(sample);
  return {&from.file->file(), from.file->position_in_file(from.first)};
}

void SampleIndex::read(Index sample, TokenId* inputs, TokenId* targets, int* positions) const {
  const auto [file, first] = window(sample);
  const auto size = static_cast<std::size_t>(options_.sequence_length);
  std::vector<TokenId> tokens(size + 1);
  file->read(first, tokens);
  if (options_.vocab_size > 0 && *std::max_element(tokens.begin(), tokens.end()) >= options_.vocab_size)
    file->file().check_vocabulary(options_.vocab_size);  // throws with the position
  std::copy_n(tokens.begin(), size, inputs);
  std::copy_n(tokens.begin() + 1, size, targets);
  if (file->has_loss_mask()) {
    std::vector<std::uint8_t> loss_mask(size + 1);
    file->read_loss_mask(first, loss_mask);
    for (std::size_t t = 0; t < size; ++t)
      if (loss_mask[t + 1] == 0)
        targets[t] = -1;
  }
  if (!options_.separate_documents)
    return;
  std::vector<std::size_t> starts = file->document_starts(first, tokens);
  for (const std::size_t start : starts)
    targets[start - 1] = -1;
  if (positions == nullptr)
    return;
  starts.insert(starts.begin(), 0);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::size_t end = i + 1 < starts.size() ? starts[i + 1] : size;
    if (starts[i] < size)  // one may start with the last target
      std::iota(positions + starts[i], positions + std::min(end, size), 0);
  }
}

}  // namespace espalier
