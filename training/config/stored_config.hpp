// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "io/checkpoint/checkpoint_reader.hpp"
#include "io/config/config_diff.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// The config of the run that wrote a checkpoint, as it stands in its state.
/// @throws Error (checkpoint) without one that has a [model].
std::string stored_config(const CheckpointReader& checkpoint);

/// The model of that config. The rest of it says how it was trained: on what layout, with what library, in what
/// batches; that need not be possible here. @throws Error (checkpoint)
ModelConfig stored_model(const CheckpointReader& checkpoint);

/// A config to run that model forward on one rank as its run did: its model, sequence length and micro-batch, and its
/// precision, or the given one. @param precision a word of precision.compute; empty: the run's
/// @throws Error (checkpoint)
RunConfig stored_forward(const CheckpointReader& checkpoint, const std::string& precision);

/// The section [model] of a config, with its heading; empty without one.
std::string model_section(const std::string& config);

/// The lines of it, and of [rotary], that are not those of the default model: they make a config of the same model.
std::string changed_model_section(const std::string& config);

/// What differs between the config of a checkpoint and the present one. A key that the checkpoint's program did not
/// know counts as stored with its default.
std::vector<ConfigDifference> differences_from(const std::string& stored, const RunConfig& config);

/// What the paths of [data] may be: such that lead to the same files, as many others, whose content is compared
/// elsewhere, or any.
enum class DataPaths { same_files, as_many, any };

/// For a run that resumes from this checkpoint: what differs, all of which may (may_change_on_resume()).
/// @throws Error (usage) that lists what may not.
std::vector<ConfigDifference> require_same_run(const CheckpointReader& checkpoint, const RunConfig& config,
                                               DataPaths paths = DataPaths::same_files);

/// What a run has left in its directory, checkpoints apart.
struct EarlierRun {
  Index steps = 0;                        ///< in its metrics
  Index checkpoint_interval = 0;          ///< of its config
  std::vector<ConfigDifference> changes;  ///< of its config
  std::string refused;                    ///< lines about those that may not be; empty: the same run
};

/// @throws Error for metrics or a config that cannot be read.
EarlierRun earlier_run_in(const Path& run_directory, const RunConfig& config);

/// "The checkpoint belongs to another model": the lines of `differences` show it, or what it has and what is wanted.
Error of_another_model(const CheckpointReader& checkpoint, const std::string& differences, const std::string& got = "",
                       const std::string& wanted = "");

/// For a run that only takes the weights: they must mean the same. Shapes do not show all of it: four heads or two have
/// the same weights. @throws Error (checkpoint) that lists the keys of [model] that differ.
void require_same_model(const CheckpointReader& checkpoint, const RunConfig& config);

}  // namespace espalier
