// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/sharded_save.hpp"

#include <set>

#include "io/atomic_directory.hpp"
#include "parallel/agreement.hpp"
#include "parallel/collectives.hpp"
#include "parallel/texts.hpp"

namespace espalier {
namespace {

using nlohmann::json;

// What a rank is about to write, without places and checksums, and the tensors that it knows of.
std::string plan_text(std::span<const TensorBlock> blocks, const std::vector<std::string>& tensors) {
  ShardRecord plan;
  for (const TensorBlock& block : blocks)
    plan.blocks.push_back({block.name, block.type, block.global_shape, block.start, block.count, "", "", {}, ""});
  return json{{"record", to_json(plan)}, {"tensors", tensors}}.dump();
}

void check_plans(const std::vector<std::string>& texts, const Path& path) {
  std::vector<StoredBlock> blocks;
  std::set<std::string> known;
  for (const std::string& text : texts) {
    const json plan = json::parse(text);
    const ShardRecord record = shard_record_from_json(plan.at("record"));
    blocks.insert(blocks.end(), record.blocks.begin(), record.blocks.end());
    known.insert(plan.at("tensors").begin(), plan.at("tensors").end());
  }
  for (const StoredBlock& block : blocks)
    known.erase(block.name);
  const std::string where = "espalier::save_sharded: ";
  if (!known.empty())
    throw std::logic_error(where + "no rank writes the tensor " + *known.begin());
  try {
    check_coverage(blocks, path);
  } catch (const Error& error) {
    throw std::logic_error(where + error.report().what + ": " + error.report().got);
  }
}

Index bytes_of(std::span<const TensorBlock> blocks) {
  Index bytes = 0;
  for (const TensorBlock& block : blocks)
    bytes += num_elements(block.count) * static_cast<Index>(size_of(block.type));
  return bytes;
}

}  // namespace

Path save_sharded(const Path& directory, const CheckpointInfo& info, std::span<const TensorBlock> blocks,
                  const std::vector<std::string>& tensors, const Communicator& world) {
  const bool is_root = world.rank() == 0;
  Path path = checkpoint_path(directory, info.step);
  const auto together = [&](const auto& attempt) { attempt_together(world, ExitCode::write, attempt); };

  const Index total_bytes = all_reduce(world, bytes_of(blocks));
  const std::vector<std::string> plans = gather_texts(world, plan_text(blocks, tensors));
  const Path partial = Path(path) += partial_suffix;
  together([&] {
    if (!is_root)
      return;
    check_plans(plans, path);
    begin_checkpoint(directory, info.step, total_bytes);
  });
  try {
    std::string record;
    together([&] {
      if (!blocks.empty())
        record = to_json(write_shard(partial, world.rank(), blocks)).dump();
    });
    const std::vector<std::string> records = gather_texts(world, record);
    together([&] {
      if (!is_root)
        return;
      std::vector<ShardRecord> shards;
      for (const std::string& text : records)
        if (!text.empty())
          shards.push_back(shard_record_from_json(json::parse(text)));
      publish_checkpoint(directory, info, shards);
    });
  } catch (...) {
    if (is_root)
      abandon_checkpoint(directory, info.step);
    throw;
  }
  return path;
}

}  // namespace espalier
