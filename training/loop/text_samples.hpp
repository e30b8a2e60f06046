// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/text/tokenizer.hpp"
#include "training/checkpoint/checkpoint_saver.hpp"
#include "training/loop/loop_observer.hpp"

namespace espalier {

struct TextSample {
  std::string prompt;
  std::string text;  ///< that the model has written after it
};

/// Continuations of run.sample_prompts; without prompts, one text from nothing. Every token costs a forward pass of a
/// micro-batch, in the arrays of training, on any layout. Training is not changed. Collective.
/// @param tokenizer on rank 0; the others need none
/// @param must_stop all ranks call it before each token; it must return the same on all
/// @returns all of them on rank 0, none on others; nothing after a yes
std::optional<std::vector<TextSample>> sample_texts(Trainer& trainer, const RunConfig& config,
                                                    const Tokenizer* tokenizer, const Communicator& world,
                                                    const std::function<bool()>& must_stop);

/// Writes such samples every run.sample_interval steps. Saves go on meanwhile, and a stop ends it.
class SampleNotes : public LoopObserver {
 public:
  /// What is given must outlive it. `tokenizer` as for sample_texts().
  SampleNotes(const RunContext& run, Trainer& trainer, CheckpointSaver& saver, const Tokenizer* tokenizer)
      : run_(run), trainer_(trainer), saver_(saver), tokenizer_(tokenizer) {}

  void after_step(const LoopStep& step) override;

 private:
  const RunContext& run_;
  Trainer& trainer_;
  CheckpointSaver& saver_;
  const Tokenizer* tokenizer_;
};

}  // namespace espalier
