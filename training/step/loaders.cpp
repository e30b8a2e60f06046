// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/step/loaders.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "io/pack/input_files.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

constexpr double max_epochs = 4;  // Muennighoff et al. 2023: up to about so many, repeated text is as good as new

LoaderOptions loader_options(const RunConfig& config, const ProcessMesh& mesh) {
  LoaderOptions options;
  options.micro_batch_size = config.layout.micro_batch;
  options.sequence_length = config.sequence_length;
  options.global_batch_size = config.layout.global_batch;
  options.rank = mesh.dp().rank();
  options.size = mesh.dp().size();
  options.seed = static_cast<std::uint64_t>(config.run.seed);
  options.vocab_size = config.model.shape.vocab_size;
  options.separate_documents = config.data.separates_documents();
  if (config.data.document_end >= 0)
    options.document_end = static_cast<TokenId>(config.data.document_end);
  return options;
}

enum class Side { whole, train, validation };

// Opens the files of a config, one entry after the other.
class FileOpener {
 public:
  FileOpener(const RunConfig& config, const LoaderOptions& options, std::string& tokenizer)
      : config_(config), options_(options), tokenizer_(tokenizer) {}

  void add(const std::string& entry, Side side, std::vector<TokenSubset>& set) {
    for (const std::string& path : expand_token_files(entry)) {
      TokenFile file(path);
      require_same_tokenizer(file.info(), tokenizer_, "pack all texts with one tokenizer");
      if (options_.separate_documents)
        require_documents(file, options_.document_end, "data.documents = \"separate\"");
      if (side == Side::whole)
        set.emplace_back(std::move(file), options_.document_end);
      else
        set.push_back(part_of(std::move(file), side));
    }
  }

 private:
  TokenSubset part_of(TokenFile file, Side side) {
    require_documents(file, options_.document_end, "data.validation_fraction");
    DocumentSplit split =
        split_documents(file, options_.document_end, options_.seed, num_split_++, config_.data.validation_fraction);
    const bool trains = side == Side::train;
    return {std::move(file), options_.document_end, std::move(trains ? split.train : split.validation),
            trains ? split.train_tokens : split.validation_tokens};
  }

  const RunConfig& config_;
  const LoaderOptions& options_;
  std::string& tokenizer_;
  std::size_t num_split_ = 0;
};

// What a set is drawn as often as: its weight, or its samples times its epochs.
std::optional<Blend> blend_of(const RunConfig::Data& data, const std::vector<SampleIndex>& sets) {
  std::vector<double> weights = data.weights;
  for (std::size_t set = 0; set < data.epochs.size(); ++set)
    weights.push_back(data.epochs[set] * static_cast<double>(sets[set].num_samples()));
  return weights.empty() ? std::nullopt : std::optional<Blend>(std::move(weights));
}

// @param side "training"  @param remedy what makes it larger
void require_sequence(const std::vector<TokenSubset>& files, const RunConfig& config, const char* side,
                      const char* remedy) {
  Index most = 0;
  for (const TokenSubset& file : files)
    most = std::max(most, file.num_tokens());
  if (config.data.validation_fraction > 0 && most <= config.sequence_length)
    throw Error(ExitCode::data,
                {.what = fmt::format("data.validation_fraction leaves no sequence for {}", side),
                 .where = fmt::format("data.validation_fraction = {:g}", config.data.validation_fraction),
                 .got = fmt::format("documents of {} tokens there", most),
                 .wanted = fmt::format("at least {}: batch.sequence_length = {} and the target of its last token",
                                       config.sequence_length + 1, config.sequence_length),
                 .todo = fmt::format("{} data.validation_fraction, or pack more text", remedy)});
}

}  // namespace

TokenLoader open_training_loader(const RunConfig& config, const ProcessMesh& mesh, std::string& tokenizer) {
  const LoaderOptions options = loader_options(config, mesh);
  const bool blends = !config.data.weights.empty() || !config.data.epochs.empty();
  FileOpener opener(config, options, tokenizer);
  std::vector<std::vector<TokenSubset>> files(blends ? config.data.train.size() : 1);
  for (std::size_t entry = 0; entry < config.data.train.size(); ++entry)
    opener.add(config.data.train[entry], config.data.validation_fraction > 0 ? Side::train : Side::whole,
               files[blends ? entry : 0]);
  std::vector<SampleIndex> sets;
  for (std::vector<TokenSubset>& set : files) {
    require_sequence(set, config, "training", "lower");
    sets.emplace_back(std::move(set), options.samples());
  }
  std::optional<Blend> blend = blend_of(config.data, sets);
  return {std::move(sets), std::move(blend), options};
}

std::optional<SequentialLoader> open_validation_loader(const RunConfig& config, const ProcessMesh& mesh,
                                                       std::string& tokenizer) {
  if (!config.data.validates())
    return std::nullopt;
  const LoaderOptions options = loader_options(config, mesh);
  const bool splits = config.data.validation_fraction > 0;
  FileOpener opener(config, options, tokenizer);
  std::vector<TokenSubset> files;
  for (const std::string& entry : splits ? config.data.train : config.data.validation)
    opener.add(entry, splits ? Side::validation : Side::whole, files);
  require_sequence(files, config, "validation", "raise");
  return SequentialLoader(SampleIndex(std::move(files), options.samples()), options, config.run.eval_samples);
}

void note_loaders(const RunConfig& config, const TokenLoader& train, const std::optional<SequentialLoader>& validation,
                  const std::function<void(const std::string&)>& note) {
  if (config.data.validation_fraction > 0)
    note(fmt::format("trains on {}, validates on {} of other documents of the same files",
                     counted(train.num_tokens(), "token"), counted(validation->num_samples(), "sequence")));
  if (validation && validation->num_samples() < config.run.eval_samples)
    note(fmt::format("warning: run.eval_samples = {}, but validation has only {}", config.run.eval_samples,
                     counted(validation->num_samples(), "sequence")));
  if (!train.blend())
    return;
  const std::vector<Index> drawn = train.blend()->drawn_before(config.total_steps() * config.layout.global_batch);
  for (std::size_t set = 0; set < drawn.size(); ++set) {
    const double epochs = static_cast<double>(drawn[set]) / static_cast<double>(train.sets()[set].num_samples());
    note(fmt::format("{}{}: {:.2f} % of the samples, {:.2f} epochs in the whole run",
                     epochs > max_epochs ? "warning: much repeated: " : "", config.data.train[set],
                     100 * train.blend()->weights()[set], epochs));
  }
}

}  // namespace espalier
