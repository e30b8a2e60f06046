// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint_manifest.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <set>

#include "core/tensor.hpp"
#include "io/block_copy.hpp"
#include "io/hash.hpp"
#include "io/json_text.hpp"

namespace espalier {
namespace {

using nlohmann::json;

constexpr const char* format_name = "espalier-checkpoint";
const std::string checksum_key = "\"manifest_xxh3_128\": \"";
const std::string zero_checksum(32, '0');

[[noreturn]] void refuse_manifest(const Path& path, const std::string& what, std::string got = {},
                                  std::string wanted = {}) {
  throw Error(ExitCode::checkpoint,
              {.what = what,
               .where = path.string(),
               .got = std::move(got),
               .wanted = std::move(wanted),
               .todo = "use another checkpoint; this one was damaged or not written by Espalier"});
}

ScalarType parse_type(const std::string& name) {
  for (const ScalarType type : {ScalarType::fp32, ScalarType::fp64, ScalarType::bf16, ScalarType::fp16})
    if (name == to_string(type))
      return type;
  throw std::invalid_argument("unknown dtype \"" + name + "\"");
}

// rank-00000.h5: no other name, so no path can leave the directory.
bool is_shard_name(const std::string& name) {
  const bool framed = name.size() >= 13 && name.starts_with("rank-") && name.ends_with(".h5");
  return framed && std::all_of(name.begin() + 5, name.end() - 3, [](char c) { return c >= '0' && c <= '9'; });
}

bool is_dataset_name(const std::string& name) {
  if (name.empty() || name.front() == '/' || name.back() == '/' || name.find("//") != std::string::npos)
    return false;
  return std::all_of(name.begin(), name.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
}

json block_to_json(const StoredBlock& block) {
  return {{"tensor", block.name},      {"dtype", to_string(block.type)}, {"global_shape", block.global_shape},
          {"start", block.start},      {"count", block.count},           {"file", block.file},
          {"dataset", block.dataset},  {"offset", block.place.offset},   {"bytes", block.place.bytes},
          {"xxh3_128", block.xxh3_128}};
}

StoredBlock block_from_json(const json& item) {
  return {item.at("tensor"),       parse_type(item.at("dtype")),
          item.at("global_shape"), item.at("start"),
          item.at("count"),        item.at("file"),
          item.at("dataset"),      {item.at("offset"), item.at("bytes")},
          item.at("xxh3_128")};
}

json file_to_json(const StoredFile& file) {
  return {{"name", file.name}, {"bytes", file.bytes}, {"metadata_xxh3_128", file.xxh3_128}};
}

StoredFile file_from_json(const json& item) {
  return {item.at("name"), item.at("bytes"), item.at("metadata_xxh3_128")};
}

void check_block(const StoredBlock& block, Index file_bytes, const Path& path) {
  const std::size_t rank = block.global_shape.size();
  const auto fail = [&](const std::string& what) {
    refuse_manifest(
        path, fmt::format("tensor {}: {}", block.name, what),
        fmt::format("shape ({}), start ({}), count ({}), {} bytes at {}", fmt::join(block.global_shape, ", "),
                    fmt::join(block.start, ", "), fmt::join(block.count, ", "), block.place.bytes, block.place.offset));
  };
  if (!is_dataset_name(block.dataset) || !is_dataset_name(block.name))
    fail("impossible name");
  if (rank > 32 || block.start.size() != rank || block.count.size() != rank)
    fail("shape, start and count disagree");
  Index elements = 1;
  for (std::size_t d = 0; d < rank; ++d) {
    if (block.global_shape[d] < 1 || block.start[d] < 0 || block.count[d] < 1 ||
        block.count[d] > block.global_shape[d] || block.start[d] > block.global_shape[d] - block.count[d])
      fail("a block outside its tensor");
    if (elements > (Index{1} << 55) / block.global_shape[d])
      fail("an absurd size");
    elements *= block.global_shape[d];
  }
  if (block.place.bytes != num_elements(block.count) * static_cast<Index>(size_of(block.type)) ||
      block.place.offset < 0 || block.place.offset > file_bytes - block.place.bytes)
    fail("a block outside its file");
}

}  // namespace

json to_json(const ShardRecord& record) {
  json blocks = json::array();
  for (const StoredBlock& block : record.blocks)
    blocks.push_back(block_to_json(block));
  return {{"file", file_to_json(record.file)}, {"blocks", std::move(blocks)}};
}

ShardRecord shard_record_from_json(const json& item) {
  ShardRecord record{file_from_json(item.at("file")), {}};
  for (const json& block : item.at("blocks"))
    record.blocks.push_back(block_from_json(block));
  return record;
}

std::string to_text(const Manifest& manifest) {
  nlohmann::ordered_json root;
  root["format"] = format_name;
  root["format_version"] = checkpoint_format_version;
  root["manifest_xxh3_128"] = zero_checksum;
  root["run"] = manifest.info.run;
  root["step"] = manifest.info.step;
  root["layout"] = manifest.info.layout;
  root["state"] = manifest.info.state;
  json files = json::array();
  for (const StoredFile& file : manifest.files)
    files.push_back(file_to_json(file));
  root["files"] = files;
  if (manifest.index)
    root["index"] = {
        {"name", manifest.index->name}, {"bytes", manifest.index->bytes}, {"xxh3_128", manifest.index->xxh3_128}};
  json blocks = json::array();
  for (const StoredBlock& block : manifest.blocks)
    blocks.push_back(block_to_json(block));
  root["blocks"] = blocks;
  std::string text = json_text(root, 1) + "\n";
  text.replace(text.find(checksum_key) + checksum_key.size(), 32, xxh3_128(text.data(), text.size()));
  return text;
}

Manifest parse_manifest(const std::string& text, const Path& path) {
  // The key stands near the start; a run whose name contains it comes later.
  const std::size_t key = text.find(checksum_key);
  if (key == std::string::npos || key + checksum_key.size() + 32 > text.size())
    refuse_manifest(path, "a checkpoint manifest is not one of Espalier's",
                    fmt::format("{} bytes without a checksum", text.size()), "a complete manifest.json");
  std::string zeroed = text;
  zeroed.replace(key + checksum_key.size(), 32, zero_checksum);
  const std::string wanted = text.substr(key + checksum_key.size(), 32);
  const std::string found = xxh3_128(zeroed.data(), zeroed.size());
  Manifest manifest;
  try {
    if (found != wanted) {  // a newer format may define its checksum otherwise, so say that first
      const json root = json::parse(text, nullptr, false);
      if (root.is_object() && root.value("format_version", json()).is_number_integer() &&
          root["format_version"] > checkpoint_format_version)
        refuse_manifest(path, "a checkpoint of a newer format", json_text(root["format_version"]),
                        fmt::format("version {}", checkpoint_format_version));
      refuse_manifest(path, "a checkpoint manifest is damaged", "XXH3-128 " + found, wanted);
    }
    const json root = json::parse(text);
    if (root.at("format") != format_name || root.at("format_version") != checkpoint_format_version)
      refuse_manifest(path, "a checkpoint of another format",
                      fmt::format("{} version {}", json_text(root.at("format")), json_text(root.at("format_version"))),
                      fmt::format("\"{}\" version {}", format_name, checkpoint_format_version));
    manifest.info = {root.at("run"), root.at("step"), root.at("layout"), root.at("state")};
    for (const json& file : root.at("files"))
      manifest.files.push_back(file_from_json(file));
    for (const json& block : root.at("blocks"))
      manifest.blocks.push_back(block_from_json(block));
    if (const auto index = root.find("index"); index != root.end())
      manifest.index = {index->at("name"), index->at("bytes"), index->at("xxh3_128")};
  } catch (const json::exception& error) {
    refuse_manifest(path, "a checkpoint manifest cannot be understood", error.what(),
                    "the keys of docs/checkpoint_format.md");
  } catch (const std::invalid_argument& error) {
    refuse_manifest(path, "a checkpoint manifest cannot be understood", error.what(), "fp32, fp64, bf16 or fp16");
  }
  std::map<std::string, Index> file_bytes;
  for (const StoredFile& file : manifest.files)
    if (!is_shard_name(file.name) || file.bytes < 0 || !file_bytes.emplace(file.name, file.bytes).second)
      refuse_manifest(path, "a checkpoint manifest names an impossible file", '"' + file.name + '"',
                      "rank-00000.h5 and so on, in the directory itself, each once");
  if (manifest.index && manifest.index->name != index_name)
    refuse_manifest(path, "a checkpoint manifest names an impossible file", '"' + manifest.index->name + '"',
                    index_name);
  std::set<std::pair<std::string, std::string>> datasets;
  for (const StoredBlock& block : manifest.blocks) {
    const auto file = file_bytes.find(block.file);
    if (file == file_bytes.end() || !datasets.insert({block.file, block.dataset}).second)
      refuse_manifest(path, "a checkpoint manifest names an impossible file", block.file + ": dataset " + block.dataset,
                      "files of its list, each dataset once");
    check_block(block, file->second, path);
  }
  check_coverage(manifest.blocks, path);
  return manifest;
}

void check_coverage(const std::vector<StoredBlock>& blocks, const Path& path) {
  std::map<std::string, std::vector<const StoredBlock*>> tensors;
  for (const StoredBlock& block : blocks)
    tensors[block.name].push_back(&block);
  for (auto& [name, parts] : tensors) {
    // By the start along the first dimension: only neighbours in this order can overlap.
    const auto first_start = [](const StoredBlock* block) { return block->start.empty() ? 0 : block->start[0]; };
    std::sort(parts.begin(), parts.end(),
              [&](const auto* a, const auto* b) { return first_start(a) < first_start(b); });
    Index covered = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (parts[i]->global_shape != parts[0]->global_shape || parts[i]->type != parts[0]->type)
        refuse_manifest(path, "the blocks of a tensor disagree about its shape or type", name);
      covered += num_elements(parts[i]->count);
      for (std::size_t j = i + 1; j < parts.size(); ++j) {
        if (!parts[i]->start.empty() && first_start(parts[j]) >= parts[i]->start[0] + parts[i]->count[0])
          break;
        if (parts[j]->start.size() == parts[i]->start.size() && overlaps(*parts[i], *parts[j]))
          refuse_manifest(path, "an element of a tensor is stored twice", name, "exactly one writer for every element");
      }
    }
    const Index wanted = num_elements(parts[0]->global_shape);
    if (covered != wanted)
      refuse_manifest(path, "elements of a tensor are not stored", fmt::format("{} of {} in {}", covered, wanted, name),
                      "exactly one writer for every element");
  }
}

}  // namespace espalier
