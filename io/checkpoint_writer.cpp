// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cerrno>

#include "io/atomic_directory.hpp"
#include "io/checkpoint.hpp"
#include "io/hash.hpp"
#include "io/metadata_hash.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

// A save that cannot fit is refused before it has filled the disk for everybody else.
void check_space(const Path& directory, Index bytes) {
  const auto needed = static_cast<std::uintmax_t>(bytes);
  std::error_code error;
  const auto space = std::filesystem::space(directory, error);
  if (!error && space.available < needed)
    throw Error(ExitCode::write,
                {.what = "no space for a checkpoint",
                 .where = directory.string(),
                 .got = fmt::format("{} free", bytes_text(space.available)),
                 .wanted = bytes_text(needed),
                 .todo = "free some space there, lower checkpoint.keep_last or choose another directory"});
}

}  // namespace

TensorBlock whole_tensor(std::string name, ScalarType type, std::vector<Index> shape, const void* data) {
  const std::vector<Index> start(shape.size(), 0);
  return {std::move(name), type, shape, start, shape, data};
}

Path checkpoint_path(const Path& directory, Index step) { return directory / fmt::format("step-{:08}", step); }

Path begin_checkpoint(const Path& directory, Index step, Index bytes) {
  Path partial = begin_directory(checkpoint_path(directory, step));
  try {
    check_space(partial, bytes);
  } catch (...) {
    abandon_checkpoint(directory, step);
    throw;
  }
  return partial;
}

ShardRecord write_shard(const Path& partial, int writer, std::span<const TensorBlock> blocks) {
  ShardRecord record;
  record.file.name = fmt::format("rank-{:05}.h5", writer);
  const Path path = partial / record.file.name;
  try {
    Hdf5Writer file(path);
    for (const TensorBlock& block : blocks) {
      // Blocks of one tensor share its group; the number tells them apart within a file.
      const std::string dataset = fmt::format("{}/block-{}", block.name, record.blocks.size());
      const DatasetPlace place = file.write(dataset, block.type, block.count, block.data);
      record.blocks.push_back({block.name, block.type, block.global_shape, block.start, block.count, record.file.name,
                               dataset, place, xxh3_128(block.data, static_cast<std::size_t>(place.bytes))});
    }
    file.close();
    record.file.bytes = static_cast<Index>(std::filesystem::file_size(path));
    std::vector<DatasetPlace> places;
    for (const StoredBlock& block : record.blocks)
      places.push_back(block.place);
    record.file.xxh3_128 = metadata_hash(path, places, ExitCode::write);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    throw;
  }
  return record;
}

Path publish_checkpoint(const Path& directory, const CheckpointInfo& info, std::span<const ShardRecord> shards) {
  Path path = checkpoint_path(directory, info.step);
  const Path partial = Path(path) += partial_suffix;
  Manifest manifest{info, {}, {}};
  for (const ShardRecord& shard : shards) {
    manifest.files.push_back(shard.file);
    manifest.blocks.insert(manifest.blocks.end(), shard.blocks.begin(), shard.blocks.end());
  }
  const std::string text = to_text(manifest);
  parse_manifest(text, partial / "manifest.json");  // what a reader would refuse must not be published
  OutputFile file(partial / "manifest.json");
  file.write(text.data(), text.size());
  file.sync_and_close();
  publish_directory(path);
  return path;
}

void abandon_checkpoint(const Path& directory, Index step) noexcept {
  std::error_code ignored;
  std::filesystem::remove_all(checkpoint_path(directory, step) += partial_suffix, ignored);
}

Path save_checkpoint(const Path& directory, const CheckpointInfo& info, std::span<const TensorBlock> blocks) {
  try {
    Index bytes = 0;
    for (const TensorBlock& block : blocks)
      bytes += num_elements(block.count) * static_cast<Index>(size_of(block.type));
    const Path partial = begin_checkpoint(directory, info.step, bytes);
    const ShardRecord shard = write_shard(partial, 0, blocks);
    return publish_checkpoint(directory, info, {&shard, 1});
  } catch (...) {
    abandon_checkpoint(directory, info.step);
    throw;
  }
}

}  // namespace espalier
