// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/scalars.hpp"
#include "io/checkpoint/checkpoint_names.hpp"
#include "io/checkpoint/hdf5_file.hpp"
#include "io/file.hpp"

// What older versions of the checkpoint format stored under other names.

namespace espalier {

/// Versions that are read; the last one is written.
inline constexpr int oldest_checkpoint_version = 1;
inline constexpr int checkpoint_format_version = 2;

/// A tensor of the current version that an older one stored as index `part` of the first dimension of `tensor`.
struct StoredPart {
  std::string tensor;
  Index part = 0;
};

/// Whether a checkpoint of `version` may have a tensor of this name: one of version 1 has none of the names that
/// version 2 brought.
bool is_name_of_version(const std::string& tensor, int version);

/// The parts of a stored tensor, by their names today. Empty: the name is that of today. Until version 1 Q, K and V
/// were one tensor: weights/h.0.attention.qkv.weight of (3, C, C).
std::map<std::string, StoredPart> parts_of_stored(const std::string& tensor, int version);

/// A box inside a logical tensor, and where its elements lie: one dataset of one file.
struct StoredBlock {
  std::string name;  ///< of the logical tensor: "weights/h.3.mlp.up.weight"
  ScalarType type = ScalarType::fp32;
  std::vector<Index> global_shape;
  std::vector<Index> start;
  std::vector<Index> count;
  std::string file;
  std::string dataset;
  DatasetExtent extent;
  std::string xxh3_128;
};

struct StoredFile {
  std::string name;
  Index bytes = 0;
  std::string xxh3_128 = {};  ///< of every byte that is in no dataset: HDF5's metadata and padding
};

/// What one writer has written: rank 0 collects these (as JSON text) and publishes them together. Of several writers
/// of one file the last has the file's size and checksum.
struct ShardRecord {
  StoredFile file;
  std::vector<StoredBlock> blocks;
};

/// That wrote a checkpoint, for people.
struct StoredLayout {
  std::string text;
  Index world = 1;  ///< ranks
};

struct CheckpointInfo {
  std::string run;  ///< name of the run
  Index step = 0;
  StoredLayout layout;
  nlohmann::json state = nlohmann::json::object();  ///< all that is no tensor: data position, seed, config, versions
  std::string owner = {};                           ///< the id of the run (io/checkpoint/atomic_directory.hpp)
};

struct Manifest {
  CheckpointInfo info;
  std::vector<StoredFile> files;
  std::vector<StoredBlock> blocks;
  std::optional<StoredFile> index = std::nullopt;  ///< index.h5, with the XXH3-128 of all its bytes
  int version = checkpoint_format_version;         ///< of the format
};

nlohmann::json to_json(const ShardRecord& record);
ShardRecord shard_record_from_json(const nlohmann::json& item);

/// The text of manifest.json. It contains a checksum of itself, taken with the digits of the checksum as
/// zeros.
std::string to_text(const Manifest& manifest);

/// Parses and checks everything that can be checked without the data files. @throws Error (checkpoint); `path` is for
/// the message.
Manifest parse_manifest(const std::string& text, const Path& path);

/// Every element of every tensor must lie in exactly one block. Costs n log n. @pre each block lies inside its tensor.
/// @throws Error (checkpoint) naming the tensor.
void check_coverage(const std::vector<StoredBlock>& blocks, const Path& path);

/// What manifest a checkpoint is refused for. @param todo empty: to use another checkpoint. @throws Error (checkpoint)
[[noreturn]] void refuse_manifest(const Path& path, const std::string& what, std::string got = {},
                                  std::string wanted = {}, std::string todo = {});

}  // namespace espalier
