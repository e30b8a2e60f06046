// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/tokens/sample_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

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
    throw Error(ExitCode::data, {.what = "conversations of a row would see each other",
                                 .where = file.path.string(),
                                 .got = "data.documents = \"joined\"",
                                 .wanted = "\"separate\", for a file in rows",
                                 .todo = "set data.documents = \"separate\""});
}

bool is_whole(const TokenSubset& subset) { return subset.num_tokens() == subset.file().num_tokens(); }

}  // namespace

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

SampleIndex::Place SampleIndex::place(Index sample) const {
  const Window from = window(sample);
  return {&from.file->file(), from.file->place_in_file(from.first)};
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
