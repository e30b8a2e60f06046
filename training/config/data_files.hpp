// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint_reader.hpp"
#include "io/tokens/token_file.hpp"
#include "parallel/collectives/communicator.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// Of the fingerprints in the state of a checkpoint.
inline constexpr const char* data_files_key = "data_files";

/// The files that entries of data.train or data.validation name.
std::vector<std::string> token_files_of(const std::vector<std::string>& entries);

/// Of all files, headers included.
Index total_bytes(const std::vector<TokenFile>& files);

/// Size and checksums of each token file, for the checkpoints: {"train": [{"bytes": 1, "sample": "...", "whole":
/// "..."}], "validation": []}, in the order of the config. "whole" is of all tokens; it is absent where the file has no
/// checksum of its own and the files are larger than data.check_limit together. "sample" is of 64 pieces all over the
/// file, "index" of Megatron's .idx. `note` gets how each is read, and which files are in both lists. Rank 0 reads,
/// all ranks know. Collective.
/// @throws Error (data).
nlohmann::json describe_data_files(const RunConfig& config, const Communicator& world,
                                   const std::function<void(const std::string&)>& note);

/// For a run that resumes: one line for each file that is not that of the checkpoint; empty: they are the same,
/// wherever they lie, or the checkpoint does not say. @throws Error (checkpoint) where it cannot be read.
std::string changed_data_files(const CheckpointReader& checkpoint, const nlohmann::json& contents);

/// Does the checkpoint say what its token files held? Those of older programs do not.
bool knows_data_files(const CheckpointReader& checkpoint);

}  // namespace espalier
