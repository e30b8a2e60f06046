// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/checkpoint_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <numeric>

#include "core/tensor.hpp"
#include "io/checkpoint/atomic_directory.hpp"
#include "io/checkpoint/checkpoint_index.hpp"
#include "io/checkpoint/checkpoint_names.hpp"
#include "io/hash.hpp"
#include "io/input_limits.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

int count_writers(std::span<const Index> num_blocks) {
  return static_cast<int>(std::count_if(num_blocks.begin(), num_blocks.end(), [](Index blocks) { return blocks > 0; }));
}

// The ranks that share a file with `rank`.
std::span<const Index> group_of(std::span<const Index> num_blocks, Index rank, Index ranks_per_file) {
  const Index first = rank / ranks_per_file * ranks_per_file;
  const Index size = std::min(ranks_per_file, static_cast<Index>(num_blocks.size()) - first);
  return num_blocks.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(size));
}

// What frees space, of what is not at its least already.
std::string advice_on_space(const KeptCheckpoints& kept) {
  constexpr KeptCheckpoints least;
  std::string settings;
  if (kept.last > least.last)
    settings = fmt::format("checkpoint.keep_last = {} (now {})", least.last, kept.last);
  if (kept.every != 0)
    settings += fmt::format("{}checkpoint.keep_every = 0 (now {})", settings.empty() ? "" : ", ", kept.every);
  return "free some space there, or choose another directory" +
         (settings.empty() ? "" : "; fewer checkpoints stay with " + settings + ", once there is space for this one");
}

// A save that cannot fit is refused before it has filled the disk for everybody else.
void check_space(const Path& directory, Index bytes, const KeptCheckpoints& kept) {
  const auto needed = static_cast<std::uintmax_t>(bytes);
  std::error_code error;
  const auto space = std::filesystem::space(directory, error);
  if (!error && space.available < needed)
    throw Error(ExitCode::write, {.what = "no space for a checkpoint",
                                  .where = directory.string(),
                                  .got = fmt::format("{} free", bytes_text(space.available)),
                                  .wanted = bytes_text(needed),
                                  .todo = advice_on_space(kept)});
}

}  // namespace

ShardSlot own_file(int writer) { return {.file = shard_name(writer)}; }

ShardSlot shard_slot(std::span<const Index> num_blocks, int writer, Index ranks_per_file) {
  const std::span<const Index> group = group_of(num_blocks, writer, ranks_per_file);
  const auto in_group = static_cast<std::size_t>(writer % ranks_per_file);
  const std::span<const Index> before = group.first(in_group);
  return {.file = shard_name(writer - static_cast<Index>(in_group)),
          .first_block = std::accumulate(before.begin(), before.end(), Index{0}),
          .turn = count_writers(before),
          .completes = count_writers(group.subspan(in_group + 1)) == 0};
}

int num_turns(std::span<const Index> num_blocks, Index ranks_per_file) {
  int turns = 0;
  for (Index first = 0; first < static_cast<Index>(num_blocks.size()); first += ranks_per_file)
    turns = std::max(turns, count_writers(group_of(num_blocks, first, ranks_per_file)));
  return turns;
}

TensorBlock whole_tensor(std::string name, ScalarType type, std::vector<Index> shape, const void* data) {
  const std::vector<Index> start(shape.size(), 0);
  return {std::move(name), type, shape, start, shape, data};
}

Path checkpoint_path(const Path& directory, Index step) { return directory / step_name(step); }

Path begin_checkpoint(const Path& directory, Index step, Index bytes, const KeptCheckpoints& kept,
                      const std::string& owner) {
  Path partial = begin_directory(checkpoint_path(directory, step), owner);
  try {
    check_space(partial, bytes, kept);
  } catch (...) {
    abandon_checkpoint(directory, step, owner);
    throw;
  }
  return partial;
}

std::vector<StoredBlock> plan_shard(const ShardSlot& slot, std::span<const TensorBlock> blocks) {
  std::vector<StoredBlock> plan;
  for (const TensorBlock& block : blocks) {
    // Blocks of one tensor share its group; the number keeps them apart within a file.
    const Index number = slot.first_block + static_cast<Index>(plan.size());
    plan.push_back({block.name,
                    block.type,
                    block.global_shape,
                    block.start,
                    block.count,
                    slot.file,
                    fmt::format("{}/block-{}", block.name, number),
                    {},
                    {}});
  }
  return plan;
}

ShardRecord write_shard(const Path& partial, const ShardSlot& slot, std::span<const TensorBlock> blocks,
                        const std::stop_token& stop) {
  ShardRecord record{{.name = slot.file}, plan_shard(slot, blocks)};
  const Path path = partial / slot.file;
  try {
    Hdf5Writer file(path, slot.turn == 0 ? Hdf5Writer::Open::create : Hdf5Writer::Open::append);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (stop.stop_requested())
        throw Error(ExitCode::write,
                    {.what = "a save was abandoned",
                     .where = path.string(),
                     .todo = "the run ended during the save and says why; older checkpoints are complete"});
      StoredBlock& stored = record.blocks[i];
      stored.extent = file.write(stored.dataset, stored.type, stored.count, blocks[i].data);
      stored.xxh3_128 = xxh3_128(blocks[i].data, static_cast<std::size_t>(stored.extent.bytes));
    }
    const std::vector<DatasetExtent> extents = slot.completes ? file.extents() : std::vector<DatasetExtent>();
    file.close();
    if (slot.completes) {
      const InputFile written(path, ExitCode::write);
      record.file.bytes = static_cast<Index>(written.size());
      record.file.xxh3_128 = metadata_hash(written, extents);
    }
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    throw;
  }
  return record;
}

Path publish_checkpoint(const Path& directory, const CheckpointInfo& info, std::span<const ShardRecord> shards,
                        const std::optional<StoredFile>& index) {
  Path path = place_for_checkpoint(directory, info.step, info.owner);
  const Path partial = partial_path(path, info.owner);
  Manifest manifest{info, {}, {}, index};
  for (const ShardRecord& shard : shards) {
    if (!shard.file.xxh3_128.empty())  // of whoever completed the file
      manifest.files.push_back(shard.file);
    manifest.blocks.insert(manifest.blocks.end(), shard.blocks.begin(), shard.blocks.end());
  }
  const std::string text = to_text(manifest);
  parse_manifest(text, partial / manifest_name);  // what a reader would refuse must not be published
  if (text.size() > LargestFile::manifest)
    throw Error(ExitCode::write, {.what = "the manifest of a checkpoint is too large to be read",
                                  .where = (partial / manifest_name).string(),
                                  .got = fmt::format("{} bytes, {} blocks", text.size(), manifest.blocks.size()),
                                  .wanted = fmt::format("at most {} bytes", LargestFile::manifest),
                                  .todo = "use fewer replicas with parallel.zero_stage = 1"});
  OutputFile file(partial / manifest_name);
  file.write(text.data(), text.size());
  file.sync_and_close();
  publish_directory(path, info.owner, is_checkpoint_of(path, info.step, info.owner));
  return path;
}

void abandon_checkpoint(const Path& directory, Index step, const std::string& owner) noexcept {
  try {
    remove_partial_directory(checkpoint_path(directory, step), owner);
  } catch (...) {  // what failed before is reported
  }
}

Path save_checkpoint(const Path& directory, const CheckpointInfo& info, std::span<const TensorBlock> blocks) {
  try {
    Index bytes = 0;
    for (const TensorBlock& block : blocks)
      bytes += num_elements(block.count) * static_cast<Index>(size_of(block.type));
    const Path partial = begin_checkpoint(directory, info.step, bytes, {}, info.owner);
    const ShardRecord shard = write_shard(partial, own_file(0), blocks);
    return publish_checkpoint(directory, info, {&shard, 1}, write_index(partial, info, shard.blocks));
  } catch (...) {
    abandon_checkpoint(directory, info.step, info.owner);
    throw;
  }
}

}  // namespace espalier
