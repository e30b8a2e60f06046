// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "io/tokens/token_loader.hpp"
#include "parallel/mesh/process_mesh.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// The training data of this rank. @param tokenizer of the files; if empty, set by the first file that names one
/// @throws Error (data) for a file that cannot be used, and for files of several tokenizers
TokenLoader open_training_loader(const RunConfig& config, const ProcessMesh& mesh, std::string& tokenizer);

/// The validation data of this rank, if the config has any: files, or documents of the training files. The same errors.
std::optional<SequentialLoader> open_validation_loader(const RunConfig& config, const ProcessMesh& mesh,
                                                       std::string& tokenizer);

/// Notes how much text data.validation_fraction takes, and for each set of a blend its share and how often the whole
/// run reads it. Warns of many repetitions, and of fewer validation sequences than run.eval_samples.
void note_loaders(const RunConfig& config, const TokenLoader& train, const std::optional<SequentialLoader>& validation,
                  const std::function<void(const std::string&)>& note);

}  // namespace espalier
