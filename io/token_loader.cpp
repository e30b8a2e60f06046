// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/token_loader.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/random.hpp"

namespace espalier {
namespace {

Batch make_batch(const LoaderOptions& options, Index first_sample) {
  const auto size = static_cast<std::size_t>(options.micro_batch_size * options.sequence_length);
  return {options.micro_batch_size,      options.sequence_length,        first_sample,
          std::vector<TokenId>(size, 0), std::vector<TokenId>(size, -1), {}};
}

}  // namespace

SampleIndex::SampleIndex(std::vector<TokenFile> files, Index sequence_length, Index vocab_size)
    : files_(std::move(files)), sequence_length_(sequence_length), vocab_size_(vocab_size) {
  ESPALIER_ASSERT(!files_.empty() && sequence_length > 0, "a loader needs files and a sequence length");
  Index total = 0;
  for (const TokenFile& file : files_) {
    if (file.num_tokens() < sequence_length + 1)
      throw Error(ExitCode::data,
                  {.what = "a token file is shorter than one sequence",
                   .where = file.info().path.string(),
                   .got = fmt::format("{} tokens", file.num_tokens()),
                   .wanted = fmt::format("at least {}: batch.sequence_length = {} and the target of its last token",
                                         sequence_length + 1, sequence_length),
                   .todo = "shorten batch.sequence_length or pack more text"});
    const Index row_length = file.info().row_length;
    if (row_length > 0 && row_length != sequence_length)
      throw Error(ExitCode::data, {.what = "a token file has rows of another length",
                                   .where = file.info().path.string(),
                                   .got = fmt::format("rows of {} tokens", row_length),
                                   .wanted = fmt::format("batch.sequence_length = {}", sequence_length),
                                   .todo = fmt::format("set batch.sequence_length to {}, or pack the file with "
                                                       "--sequence-length {}",
                                                       row_length, sequence_length)});
    total += (file.num_tokens() - 1) / sequence_length;
    last_sample_.push_back(total);
  }
}

Index SampleIndex::num_tokens() const {
  Index total = 0;
  for (const TokenFile& file : files_)
    total += file.num_tokens();
  return total;
}

SampleIndex::Place SampleIndex::place(Index sample) const {
  ESPALIER_ASSERT(sample >= 0 && sample < num_samples(),
                  fmt::format("there is no sample {} of {}", sample, num_samples()));
  const auto found = std::upper_bound(last_sample_.begin(), last_sample_.end(), sample);
  const Index first_sample = found == last_sample_.begin() ? 0 : *(found - 1);
  return {&files_[static_cast<std::size_t>(found - last_sample_.begin())], (sample - first_sample) * sequence_length_};
}

void SampleIndex::read(Index sample, TokenId* inputs, TokenId* targets) const {
  const auto [from, first_token] = place(sample);
  const TokenFile& file = *from;
  const auto size = static_cast<std::size_t>(sequence_length_);
  std::vector<TokenId> tokens(size + 1);
  file.read(first_token, tokens);
  std::copy_n(tokens.begin(), size, inputs);
  std::copy_n(tokens.begin() + 1, size, targets);
  if (vocab_size_ == 0)
    return;
  if (*std::max_element(tokens.begin(), tokens.end()) >= vocab_size_)
    file.check_vocabulary(vocab_size_);  // throws with the position
}

TokenLoader::TokenLoader(std::vector<TokenFile> files, const LoaderOptions& options)
    : options_(options), samples_(std::move(files), options.sequence_length, options.vocab_size) {
  const Index together = options.micro_batch_size * options.size;
  ESPALIER_ASSERT(options.micro_batch_size > 0 && options.rank >= 0 && options.rank < options.size,
                  fmt::format("there is no replica {} of {} with micro-batches of {}", options.rank, options.size,
                              options.micro_batch_size));
  if (options.global_batch_size <= 0 || options.global_batch_size % together != 0) {
    const Index below = options.global_batch_size / together * together;
    throw Error(ExitCode::usage,
                {.what = "the global batch cannot be divided among the replicas",
                 .got = fmt::format("global_batch_size = {}, micro_batch_size = {}, {} data-parallel ranks",
                                    options.global_batch_size, options.micro_batch_size, options.size),
                 .wanted = fmt::format("a multiple of {} x {} = {}", options.micro_batch_size, options.size, together),
                 .todo = below > 0 ? fmt::format("set batch.global_batch_size to {} or {}", below, below + together)
                                   : fmt::format("set batch.global_batch_size to {}", together)});
  }
}

Index TokenLoader::num_microbatches() const {
  return options_.global_batch_size / (options_.micro_batch_size * options_.size);
}

Index TokenLoader::valid_tokens() const { return options_.global_batch_size * options_.sequence_length; }

SampleIndex::Place TokenLoader::place(Index global_sample) const {
  const Index n = num_samples();
  return samples_.place(permuted_index(options_.seed, global_sample / n, global_sample % n, n));
}

Batch TokenLoader::batch(Index position, Index microbatch) const {
  const Index local = options_.global_batch_size / options_.size;
  Batch batch = make_batch(options_, position + options_.rank * local + microbatch * options_.micro_batch_size);
  for (Index row = 0; row < options_.micro_batch_size; ++row)
    read_row(batch, row);
  return batch;
}

void TokenLoader::set_passed_over(std::vector<IndexRange> samples) {
  passed_over_ = std::move(samples);
  std::sort(passed_over_.begin(), passed_over_.end(),
            [](const IndexRange& a, const IndexRange& b) { return a.begin < b.begin; });
}

Index samples_before(const std::vector<IndexRange>& ranges, Index position) {
  Index count = 0;
  for (const IndexRange& samples : ranges)
    count += std::max<Index>(0, std::min(samples.end, position) - samples.begin);
  return count;
}

void TokenLoader::read_row(Batch& batch, Index row) const {
  const Index n = num_samples();
  const Index global = batch.first_sample + row;
  const Index offset = row * options_.sequence_length;
  samples_.read(permuted_index(options_.seed, global / n, global % n, n), batch.inputs.data() + offset,
                batch.targets.data() + offset);
}

std::vector<Batch> TokenLoader::preview(Index num_samples) const {
  const Index together = options_.micro_batch_size * options_.size;
  const Index begin = next_position();
  const Index end = begin + num_samples;
  std::vector<Batch> batches;
  for (Index first = begin + options_.rank * options_.micro_batch_size;
       static_cast<Index>(batches.size()) < (num_samples + together - 1) / together; first += together) {
    Batch& batch = batches.emplace_back(make_batch(options_, first));
    for (Index row = 0; row < options_.micro_batch_size && first + row < end; ++row)
      read_row(batch, row);
  }
  return batches;
}

Index TokenLoader::next_position() const {
  Index position = position_;
  for (const IndexRange& samples : passed_over_)
    if (samples.begin <= position && position < samples.end)
      position = samples.end;
  return position;
}

std::vector<Batch> TokenLoader::next_step() {
  position_ = next_position();
  std::vector<Batch> batches;
  for (Index microbatch = 0; microbatch < num_microbatches(); ++microbatch)
    batches.push_back(batch(position_, microbatch));
  position_ += options_.global_batch_size;
  return batches;
}

SequentialLoader::SequentialLoader(std::vector<TokenFile> files, const LoaderOptions& options, Index max_samples)
    : options_(options),
      samples_(std::move(files), options.sequence_length, options.vocab_size),
      num_samples_(max_samples > 0 ? std::min(max_samples, samples_.num_samples()) : samples_.num_samples()) {}

Index SequentialLoader::num_batches() const {
  const Index together = options_.micro_batch_size * options_.size;
  return (num_samples_ + together - 1) / together;
}

Index SequentialLoader::valid_tokens() const { return num_samples_ * options_.sequence_length; }

Batch SequentialLoader::batch(Index index) const {
  Batch batch = make_batch(options_, (index * options_.size + options_.rank) * options_.micro_batch_size);
  for (Index row = 0; row < options_.micro_batch_size; ++row) {
    const Index offset = row * options_.sequence_length;
    if (batch.first_sample + row < num_samples_)
      samples_.read(batch.first_sample + row, batch.inputs.data() + offset, batch.targets.data() + offset);
  }
  return batch;
}

}  // namespace espalier
