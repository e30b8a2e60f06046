// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/text_samples.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/printable_text.hpp"
#include "io/checkpoint/block_copy.hpp"
#include "parallel/collectives/collectives.hpp"
#include "training/loop/generated_text.hpp"
#include "training/loop/run_files.hpp"
#include "training/loop/stop_agreement.hpp"

namespace espalier {
namespace {

// Letters: B = micro-batch size, T = sequence length, V = vocabulary.

constexpr Index nothing = -1;  // row of a text that is complete

// A micro-batch with the ends of texts, and for each sequence the row of (B T) whose logits are wanted.
struct Windows {
  Batch batch;
  std::vector<Index> rows;  // (B)
};

bool goes_on(const GeneratedText& text, Index longest) { return !text.is_complete() && !text.window(longest).empty(); }

Windows windows_of(std::span<const GeneratedText> texts, const RunConfig& config) {
  const Index length = config.sequence_length;
  Windows windows;
  windows.batch.batch_size = config.layout.micro_batch;
  windows.batch.sequence_length = length;
  windows.batch.inputs.assign(static_cast<std::size_t>(config.layout.micro_batch * length), 0);
  windows.batch.targets.assign(windows.batch.inputs.size(), -1);
  if (config.data.separates_documents())  // each window is one
    for (Index i = 0; i < std::ssize(windows.batch.inputs); ++i)
      windows.batch.positions.push_back(static_cast<int>(i % length));
  windows.rows.assign(static_cast<std::size_t>(config.layout.micro_batch), nothing);
  for (Index i = 0; i < std::ssize(texts); ++i) {
    if (!goes_on(texts[static_cast<std::size_t>(i)], length))
      continue;
    const std::span<const TokenId> window = texts[static_cast<std::size_t>(i)].window(length);
    std::ranges::copy(window, windows.batch.inputs.begin() + i * length);
    windows.rows[static_cast<std::size_t>(i)] = i * length + std::ssize(window) - 1;
  }
  return windows;
}

// Draws the next token of each text whose row is there. Weights that have diverged end all texts.
bool draw(std::span<GeneratedText> texts, const std::vector<Index>& rows, std::span<const float> logits, Index vocab) {
  if (!is_finite(ScalarType::fp32, logits.data(), std::ssize(logits)))
    return false;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (rows[i] == nothing)
      continue;
    const auto row = logits.first(static_cast<std::size_t>(vocab));
    texts[i].add(texts[i].draw({row.begin(), row.end()}));
    logits = logits.subspan(row.size());
  }
  return true;
}

// Of at most B texts, which rank 0 has. False: must_stop said so.
bool complete(Trainer& trainer, const RunConfig& config, std::span<GeneratedText> texts, const Communicator& world,
              const std::function<bool()>& must_stop) {
  for (;;) {
    if (must_stop())
      return false;
    Windows windows = windows_of(texts, config);
    broadcast(world, std::span<TokenId>(windows.batch.inputs), 0);
    broadcast(world, std::span<Index>(windows.rows), 0);
    std::vector<Index> rows = windows.rows;
    std::erase(rows, nothing);
    if (rows.empty())
      return true;
    const std::vector<float> logits = trainer.next_logits(windows.batch, rows);  // (rows, V)
    if (!draw(texts, windows.rows, logits, config.model.shape.vocab_size))
      return true;
  }
}

}  // namespace

std::optional<std::vector<TextSample>> sample_texts(Trainer& trainer, const RunConfig& config,
                                                    const Tokenizer* tokenizer, const Communicator& world,
                                                    const std::function<bool()>& must_stop) {
  const RunConfig::Run& run = config.run;
  const std::vector<std::string> prompts =
      run.sample_prompts.empty() ? std::vector<std::string>(1) : run.sample_prompts;
  const GenerationRules rules{.max_tokens = run.sample_tokens,
                              .stop_texts = {},
                              .stop_tokens = {},
                              .sampling = {.temperature = run.sample_temperature, .top_p = 0.95},
                              .seed = static_cast<std::uint64_t>(run.seed)};
  std::vector<GeneratedText> texts;
  if (world.rank() == 0)
    for (const std::string& prompt : prompts)
      texts.emplace_back(prompt, rules, *tokenizer);
  const auto together = static_cast<std::size_t>(config.layout.micro_batch);
  for (std::size_t first = 0; first < prompts.size(); first += together) {
    const std::span all(texts);
    const auto some = all.empty() ? all : all.subspan(first, std::min(together, texts.size() - first));
    if (!complete(trainer, config, some, world, must_stop))
      return std::nullopt;
  }
  std::vector<TextSample> samples;
  for (std::size_t i = 0; i < texts.size(); ++i)
    samples.push_back({prompts[i], texts[i].take().substr(prompts[i].size())});
  return samples;
}

void SampleNotes::after_step(const LoopStep& step) {
  const Index interval = run_.config.run.sample_interval;
  if (interval == 0 || step.report.step % interval != 0 || run_.stop.is_agreed())
    return;
  run_.mesh.world().observers().operation_begins(-1, "samples", -1, -1);
  const auto samples = sample_texts(trainer_, run_.config, tokenizer_, run_.mesh.world(), [&] {
    saver_.poll();
    return run_.stop.agree();
  });
  if (!samples || !run_.is_root())
    return;
  for (const TextSample& sample : *samples)
    run_.note(fmt::format("step {}: {}", step.report.step, printable_line(sample.prompt + sample.text)));
  run_.files.records().add_samples(step.report.step, *samples);
}

}  // namespace espalier
