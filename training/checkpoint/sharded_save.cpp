// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/sharded_save.hpp"

#include <algorithm>
#include <set>

#include "core/tensor.hpp"
#include "io/checkpoint/atomic_directory.hpp"
#include "io/checkpoint/checkpoint_index.hpp"
#include "io/json_reader.hpp"
#include "io/pack/json_text.hpp"
#include "parallel/collectives/agreement.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/texts.hpp"

namespace espalier {
namespace {

using nlohmann::json;

// What a rank is about to write, and the tensors that it knows of.
std::string plan_text(const ShardRecord& plan, const std::vector<std::string>& tensors) {
  return json_text(json{{"record", to_json(plan)}, {"tensors", tensors}});
}

// The blocks of all ranks, proven to be every element once.
std::vector<StoredBlock> checked_plan(const std::vector<std::string>& texts, const Path& path) {
  std::vector<StoredBlock> blocks;
  std::set<std::string> known;
  for (const std::string& text : texts) {
    const json plan = parse_json(text);
    const ShardRecord record = shard_record_from_json(plan.at("record"));
    blocks.insert(blocks.end(), record.blocks.begin(), record.blocks.end());
    known.insert(plan.at("tensors").begin(), plan.at("tensors").end());
  }
  for (const StoredBlock& block : blocks)
    known.erase(block.name);
  const std::string where = "espalier::ShardedSave: ";
  if (!known.empty())
    throw std::logic_error(where + "no rank writes the tensor " + *known.begin());
  try {
    check_coverage(blocks, path);
  } catch (const Error& error) {
    throw std::logic_error(where + error.report().what + ": " + error.report().got);
  }
  return blocks;
}

Index bytes_of(std::span<const TensorBlock> blocks) {
  Index bytes = 0;
  for (const TensorBlock& block : blocks)
    bytes += num_elements(block.count) * static_cast<Index>(size_of(block.type));
  return bytes;
}

}  // namespace

ShardedSave::ShardedSave(const Path& directory, CheckpointInfo info, std::vector<TensorBlock> blocks,
                         const std::vector<std::string>& tensors, const Communicator& world, Index ranks_per_file,
                         const KeptCheckpoints& kept)
    : directory_(directory),
      info_(std::move(info)),
      blocks_(std::move(blocks)),
      world_(&world),
      is_root_(world.rank() == 0) {
  const auto own_blocks = static_cast<Index>(blocks_.size());
  std::vector<Index> num_blocks(static_cast<std::size_t>(world.size()));
  all_gather(world, std::span<Index>(num_blocks), std::span<const Index>(&own_blocks, 1));
  slot_ = shard_slot(num_blocks, world.rank(), ranks_per_file);
  num_turns_ = std::max(1, espalier::num_turns(num_blocks, ranks_per_file));  // rank 0 has the index to write
  record_ = {{.name = slot_.file}, plan_shard(slot_, blocks_)};

  const Index total_bytes = all_reduce(world, bytes_of(blocks_));
  const std::vector<std::string> plans = gather_texts(world, plan_text(record_, tensors));
  attempt_together(world, ExitCode::write, [&] {
    if (!is_root_)
      return;
    plan_ = checked_plan(plans, checkpoint_path(directory_, info_.step));
    begin_checkpoint(directory_, info_.step, total_bytes, kept, info_.owner);
  });
}

ShardedSave::~ShardedSave() {
  if (is_root_ && !published_)
    abandon_checkpoint(directory_, info_.step, info_.owner);
}

void ShardedSave::write(int turn, const std::stop_token& stop) {
  const Path partial = partial_path(checkpoint_path(directory_, info_.step), info_.owner);
  if (!blocks_.empty() && slot_.turn == turn)
    record_ = write_shard(partial, slot_, blocks_, stop);
  if (is_root_ && turn == 0)
    index_ = write_index(partial, info_, plan_);
}

Path ShardedSave::publish() {
  const std::vector<std::string> records = gather_texts(*world_, blocks_.empty() ? "" : json_text(to_json(record_)));
  Path path;
  attempt_together(*world_, ExitCode::write, [&] {
    if (!is_root_)
      return;
    std::vector<ShardRecord> shards;
    for (const std::string& text : records)
      if (!text.empty())
        shards.push_back(shard_record_from_json(parse_json(text)));
    path = publish_checkpoint(directory_, info_, shards, index_);
  });
  published_ = true;
  return broadcast_text(*world_, path.string(), 0);
}

Path save_sharded(const Path& directory, const CheckpointInfo& info, std::span<const TensorBlock> blocks,
                  const std::vector<std::string>& tensors, const Communicator& world, Index ranks_per_file,
                  const KeptCheckpoints& kept) {
  ShardedSave save(directory, info, {blocks.begin(), blocks.end()}, tensors, world, ranks_per_file, kept);
  for (int turn = 0; turn < save.num_turns(); ++turn)
    attempt_together(world, ExitCode::write, [&] { save.write(turn); });
  return save.publish();
}

}  // namespace espalier
