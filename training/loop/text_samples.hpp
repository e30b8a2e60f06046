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

/// How the model goes on with run.sample_prompts; without prompts, one text of its own. Every token costs a forward
/// pass of a micro-batch, in the arrays that training has, on any layout; training notices nothing. Collective.
/// @param tokenizer on rank 0; the others need none
/// @param must_stop is asked before each token by all ranks, and gives all the same answer
/// @returns all of them on rank 0, none on others; nothing after a yes
template <class P>
std::optional<std::vector<TextSample>> sample_texts(Trainer<P>& trainer, const RunConfig& config,
                                                    const Tokenizer* tokenizer, const Communicator& world,
                                                    const std::function<bool()>& must_stop);

/// Writes such samples every run.sample_interval steps. Saves go on meanwhile, and a stop ends it.
template <class P>
class SampleNotes : public LoopObserver {
 public:
  /// What is given must outlive it. `tokenizer` as for sample_texts().
  SampleNotes(const RunContext& run, Trainer<P>& trainer, CheckpointSaver<P>& saver, const Tokenizer* tokenizer)
      : run_(run), trainer_(trainer), saver_(saver), tokenizer_(tokenizer) {}

  void after_step(const LoopStep& step) override;

 private:
  const RunContext& run_;
  Trainer<P>& trainer_;
  CheckpointSaver<P>& saver_;
  const Tokenizer* tokenizer_;
};

}  // namespace espalier
