// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/tokens/token_loader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/random.hpp"

namespace espalier {
namespace {

Batch make_batch(const LoaderOptions& options, Index first_sample) {
  const auto size = static_cast<std::size_t>(options.micro_batch_size * options.sequence_length);
  return {options.micro_batch_size,
          options.sequence_length,
          first_sample,
          std::vector<TokenId>(size, 0),
          std::vector<TokenId>(size, -1),
          std::vector<int>(options.separate_documents ? size : 0, 0)};
}

void read_into(Batch& batch, Index row, const SampleIndex& samples, Index sample) {
  const Index offset = row * batch.sequence_length;
  samples.read(sample, batch.inputs.data() + offset, batch.targets.data() + offset,
               batch.positions.empty() ? nullptr : batch.positions.data() + offset);
}

}  // namespace

TokenLoader::TokenLoader(std::vector<SampleIndex> sets, std::optional<Blend> blend, const LoaderOptions& options)
    : options_(options), sets_(std::move(sets)), blend_(std::move(blend)) {
  ESPALIER_ASSERT(blend_ ? blend_->weights().size() == sets_.size() : sets_.size() == 1,
                  "several sets need a blend that says how they mix");
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

bool TokenLoader::all_targets_count() const {
  return std::all_of(sets_.begin(), sets_.end(), [](const SampleIndex& set) { return set.all_targets_count(); });
}

Index TokenLoader::num_tokens() const {
  return std::accumulate(sets_.begin(), sets_.end(), Index{0},
                         [](Index sum, const SampleIndex& set) { return sum + set.num_tokens(); });
}

std::pair<const SampleIndex*, Index> TokenLoader::find(Index global_sample) const {
  const Blend::Draw draw = blend_ ? blend_->at(global_sample) : Blend::Draw{0, global_sample};
  const SampleIndex& set = sets_[draw.set];
  const std::uint64_t seed = options_.seed + draw.set * 0xD1B54A32D192ED03u;  // sets of one size differ in their order
  const Index n = set.num_samples();
  return {&set, permuted_index(seed, draw.index_in_set / n, draw.index_in_set % n, n)};
}

SampleIndex::Location TokenLoader::locate(Index global_sample) const {
  const auto [set, sample] = find(global_sample);
  return set->locate(sample);
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
  const auto [set, sample] = find(batch.first_sample + row);
  read_into(batch, row, *set, sample);
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
    : SequentialLoader(SampleIndex(whole_files(std::move(files), options.document_end), options.samples()), options,
                       max_samples) {}

SequentialLoader::SequentialLoader(SampleIndex samples, const LoaderOptions& options, Index max_samples)
    : options_(options),
      samples_(std::move(samples)),
      num_samples_(max_samples > 0 ? std::min(max_samples, samples_.num_samples()) : samples_.num_samples()) {}

Index SequentialLoader::num_batches() const {
  const Index together = options_.micro_batch_size * options_.size;
  return (num_samples_ + together - 1) / together;
}

Index SequentialLoader::valid_tokens() const { return num_samples_ * options_.sequence_length; }

Batch SequentialLoader::batch(Index index) const {
  Batch batch = make_batch(options_, (index * options_.size + options_.rank) * options_.micro_batch_size);
  for (Index row = 0; row < options_.micro_batch_size; ++row)
    if (batch.first_sample + row < num_samples_)
      read_into(batch, row, samples_, batch.first_sample + row);
  return batch;
}

}  // namespace espalier
