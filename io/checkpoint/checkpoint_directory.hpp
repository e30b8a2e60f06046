// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/scalars.hpp"
#include "io/file.hpp"

namespace espalier {

struct CheckpointEntry {
  Path path;
  Index step = 0;
  bool complete = false;
  bool unfinished = false;  ///< left by a save or a removal that was killed: it never counted, or no longer does
  std::string reason = {};  ///< why it is not complete
  std::string owner = {};   ///< the id of the run that wrote it, where that can be read
};

/// Is it another run's than the owner's? So may be what cannot be read where the place is a link: others may use it.
bool may_be_of_another(const CheckpointEntry& entry, const std::string& owner);

/// Newest first, complete or not; none where there is no such directory. Judges manifests and sizes; checksums of data
/// are read by loading or verify(). @throws Error (checkpoint) when the directory is there and cannot be listed.
std::vector<CheckpointEntry> find_checkpoints(const Path& directory);

/// Those of a run directory, without the ones that other runs may have in the same place: they are counted.
std::vector<CheckpointEntry> checkpoints_of_run(const Path& run, Index& of_others);

inline constexpr const char* hugging_face_config_name = "config.json";

/// What a directory is, by the names of the files in it. One of `other` may be a checkpoint that lacks its manifest.
enum class DirectoryKind {
  other,
  run,           ///< or what `checkpoint import` makes: it has checkpoints/, a config or a record of ours
  checkpoint,    ///< it has a manifest
  hugging_face,  ///< it has the config of a Hugging Face model
};
DirectoryKind kind_of_directory(const Path& directory);

/// What a user may name where a checkpoint is wanted: a checkpoint, or the directory of a run, which stands for its own
/// complete ones, the newest first; `note` gets newer ones that are passed over. @throws Error (checkpoint) that
/// names what is there and is not complete.
std::vector<Path> complete_checkpoints(const Path& given, const std::function<void(const std::string&)>& note = {});

/// The first of them.
Path resolve_checkpoint(const Path& given, const std::function<void(const std::string&)>& note = {});

/// Gives `use` the first of these checkpoints that it can use: where it throws Error (checkpoint), `note` gets it, and
/// the next one is taken. @throws what `use` throws of the last.
void use_newest(const std::vector<Path>& checkpoints, const std::function<void(const std::string&)>& note,
                const std::function<void(const Path&)>& use);

/// Which complete checkpoints stay.
struct KeptCheckpoints {
  Index last = 2;   ///< so many of the newest, at least 1
  Index every = 0;  ///< and all whose step is a multiple of it; 0: none
};

/// Where this owner is to save the step: DIR/step-00000100, or DIR/step-00000100.OWNER where another run's is in the
/// way.
Path place_for_checkpoint(const Path& directory, Index step, const std::string& owner);

/// Is it a complete checkpoint of this step that this run has written, without anything else in its directory? Only
/// such a one may be removed or replaced.
bool is_checkpoint_of(const Path& path, Index step, const std::string& owner);

/// Removes the complete checkpoints of this owner that need not be kept, never an incomplete one. Those of steps after
/// `newest`, the one just saved, neither count nor go: they are not of this run's past.
void prune_checkpoints(const Path& directory, KeptCheckpoints kept, Index newest = std::numeric_limits<Index>::max(),
                       const std::string& owner = {});

/// Renames all checkpoints of later steps to step-XXXXXXXX.abandoned, which is never taken for a checkpoint: a run that
/// resumes from an older one must not find them when it starts again. Nothing is deleted, and
/// what may be of another owner stays. @returns their new paths.
std::vector<Path> set_aside_checkpoints_after(const Path& directory, Index step, const std::string& owner = {});

}  // namespace espalier
